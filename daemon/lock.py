"""One daemon, and one sweep, per state folder: a lock that the kernel gives back however its holder dies.

Edge. The lock is `flock` on a file that is never removed; what is in the file is only for the message to a second
daemon and decides nothing. The descriptor is not inherited by what is exec'ed, so no child keeps the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from daemon.clock import Clock, SystemClock
from daemon.errors import AlreadyRunningError, BulkheadError, ResourceError, WorldError
from daemon.model import Cause

#: More than a holder's line ever has.
_MAX_LINE_BYTES = 4_096


@contextlib.contextmanager
def instance_lock(
    path: Path,
    *,
    clock: Clock | None = None,
    advice: str = "Stop it first, or give this one a state_dir of its own.",
) -> Iterator[None]:
    """Hold the lock on `path` while the block runs; creates the file, not its folder.

    `advice` ends the message to whoever comes second. Raises `AlreadyRunningError` naming the holder's pid, host and
    age, `ResourceError` when the file cannot be made, `WorldError(DISK_FULL)` when there is no room for it.
    """
    clock = clock or SystemClock()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        advice_now = "Check that its folder exists and that this user may write in it."
        raise _unwritable("lock", path, error, advice=advice_now) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            line = os.pread(descriptor, _MAX_LINE_BYTES, 0)
            raise _already_running(path, line, now=clock.now(), advice=advice) from None
        except OSError as error:
            raise ResourceError(f"cannot lock {path}: {error.strerror}. Put state_dir on a local disk.") from error
        _write_holder(descriptor, path, since=clock.now())
        yield
    finally:
        os.close(descriptor)


def _write_holder(descriptor: int, path: Path, *, since: datetime) -> None:
    """Say who holds the lock. Raises like `instance_lock`."""
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since.isoformat()}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
    except OSError as error:
        raise _unwritable("write", path, error, advice="Put state_dir on a disk that works.") from error


def _unwritable(verb: str, path: Path, error: OSError, *, advice: str) -> BulkheadError:
    """A full disk passes, and whoever restarts us shall try again; everything else needs a person."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        detail = f"cannot {verb} {path}: the disk is full. Free some space; the next start goes on."
        return WorldError(Cause.DISK_FULL, detail)
    return ResourceError(f"cannot {verb} {path}: {error.strerror}. {advice}")


def _already_running(path: Path, line: bytes, *, now: datetime, advice: str) -> AlreadyRunningError:
    """The error for a second process; a holder that has not written its line yet is not named."""
    try:
        holder = json.loads(line)
        age_s = round((now - datetime.fromisoformat(holder["since"])).total_seconds())
        who = f"pid {holder['pid']} on host {holder['host']} has held it for {timedelta(seconds=max(age_s, 0))}"
    except (ValueError, KeyError, TypeError):
        who = "another process has just taken it"
    return AlreadyRunningError(f"cannot start: {path} is locked; {who}. {advice}")
