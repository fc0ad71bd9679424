"""One sweep for all hosts: a lock with a lease, in the ledger's table.

Edge. Rules: the lease is judged on the server's clock, like an attempt's; it is renewed while the holder lives, so a
holder that is killed keeps nobody out for longer than one lease. A holder that was overtaken (paused for a whole
lease) is told in the log and goes on: every step of a sweep checks for itself, and can be done twice without harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog

from daemon.dynamodb_calls import Calls, ChangedError, Item, delete, put
from daemon.errors import AlreadyRunningError, WorldError
from daemon.ledger_rows import instant, microseconds

log = structlog.get_logger()

#: A killed holder's lock lasts so long; three renewals fit, so two may fail.
LEASE_S = 60.0


class RunLock:
    """A named lock of this process, taken and given back by hand; `run_lock` renews it too."""

    def __init__(self, calls: Calls, name: str, *, lease_s: float = LEASE_S) -> None:
        self._calls = calls
        self._name = name
        self._key = {"pk": {"S": f"lock#{name}"}, "sk": {"S": "lock"}}
        self._lease = timedelta(seconds=lease_s)
        self._version = 0
        self._since: datetime | None = None

    def take(self, *, advice: str) -> None:
        """Raise `AlreadyRunningError`, naming the holder's pid, host and age, when another one holds it."""
        item, at = self._calls.get(self._key)
        if item is not None and instant(int(item["lease_until_us"]["N"])) > at:
            raise self._held(item, at, advice)
        self._since = at
        try:
            self._write(at, None if item is None else int(item["version"]["N"]))
        except ChangedError:
            item, at = self._calls.get(self._key)
            raise self._held(item, at, advice) from None

    def renew(self) -> None:
        """Begin a new lease. Raises `ChangedError` when somebody else has taken the lock."""
        _, at = self._calls.get(self._key)
        self._write(at, self._version)

    def give_back(self) -> None:
        """Let the next one in at once. Raises like `renew`."""
        self._calls.write([delete(self._key, version=self._version)], token=uuid4().hex)

    def _write(self, at: datetime, version: int | None) -> None:
        since = self._since or at
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since.isoformat()}
        item: dict[str, Any] = self._key | {
            "holder": {"S": json.dumps(holder)},
            "version": {"N": str((version or 0) + 1)},
            "lease_until_us": {"N": str(microseconds(at + self._lease))},
        }
        self._calls.write([put(item, version=version)], token=uuid4().hex)
        self._version = (version or 0) + 1

    def _held(self, item: Item | None, at: datetime, advice: str) -> AlreadyRunningError:
        if item is None:
            who = "another process has just held it"
        else:
            holder = json.loads(item["holder"]["S"])
            age_s = round((at - datetime.fromisoformat(holder["since"])).total_seconds())
            who = f"pid {holder['pid']} on host {holder['host']} has held it for {timedelta(seconds=max(age_s, 0))}"
        place = f"the lock {self._name} in table {self._calls.table}"
        return AlreadyRunningError(f"cannot start: {place} is taken; {who}. {advice}")


@contextlib.contextmanager
def run_lock(calls: Calls, name: str, *, advice: str, lease_s: float = LEASE_S) -> Iterator[None]:
    """Hold the lock while the block runs. Raises `AlreadyRunningError`, and `WorldError` when the table is silent."""
    lock = RunLock(calls, name, lease_s=lease_s)
    lock.take(advice=advice)
    ended = threading.Event()
    renewer = threading.Thread(target=_renew, args=(lock, ended, lease_s / 3), name=f"lock-{name}", daemon=True)
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        try:
            lock.give_back()
        except (ChangedError, WorldError) as error:  # the lease ends by itself, or is another's by now
            log.warning("lease.lost", lock=name, detail=str(error))


def _renew(lock: RunLock, ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        try:
            lock.renew()
        except ChangedError as error:
            log.warning("lease.lost", detail=f"another sweep has begun, and this one goes on: {error}")
            return
        except WorldError as error:
            log.warning("heartbeat.failed", detail=error.detail)
