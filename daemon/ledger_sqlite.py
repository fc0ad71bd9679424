"""The ledger in one SQLite file, for one host.

Edge. Rules: every public method is one transaction; every write checks in that same transaction that the caller
still holds what it writes to; a terminal state is only taken back by `reopen`; numbers of attempts are never used
twice. **A lease ends by the host's uptime** (`lease_clock.py`), so that no step of its wall clock ends or prolongs one;
the callers' `now` is only shown and stored. The rules of locking and errors are `sqlite_file.py`'s, the tables are
`ledger_rows.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from daemon import host as this_host
from daemon.clock import Clock, SystemClock
from daemon.lease_clock import LeaseClock
from daemon.ledger import AlreadySettled, Claim, Claimed, Held, excused, overtaken
from daemon.ledger_rows import (
    APPLICATION_ID,
    DOCUMENT_COLUMNS,
    MIGRATIONS,
    SETTLED_COLUMNS,
    USABLE_FROM,
    settled_row,
    text,
    to_document,
    to_settled,
)
from daemon.ledger_statements import (
    RUNNING,
    append_outcome,
    attempts_of,
    begin,
    document_of,
    end,
    insert,
    lease,
    register,
    reopen,
    require,
    running_of,
    settled_of,
)
from daemon.model import Attempt, Document, Holder, Outcome, ResultStatus, Settled
from daemon.notice import of_settled
from daemon.outbox_sqlite import enqueue
from daemon.sqlite_file import SqliteFile


class SqliteLedger:
    """`daemon.ledger.Ledger` on a local disk; used from several threads, one call at a time."""

    def __init__(
        self, file: SqliteFile, *, notices: bool = False, clock: Clock | None = None, boot_id: str | None = None
    ) -> None:
        """`notices`: write each state that a document ends in into the outbox too.

        `clock` and `boot_id`, by which leases end, are this host's unless others are given.
        """
        self._file = file
        self.notices = notices
        self.lease_clock = LeaseClock(clock=clock or SystemClock(), boot_id=boot_id or this_host.holder().boot_id)

    @property
    def file(self) -> SqliteFile:
        """The open file, for `recovery_sqlite.py`, which keeps its tables beside these."""
        return self._file

    @classmethod
    def open(cls, path: Path, *, notices: bool = False, clock: Clock | None = None, boot_id: str | None = None) -> Self:
        """Open or create the ledger, and migrate it; the rest as above.

        Raises `ResourceError` when its folder is missing or not ours to write, `ConfigurationError` when the file is
        damaged, another program's, or written by a newer version that this one cannot follow, `WorldError` when the
        disk is full or locked.
        """
        file = SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS, usable_from=USABLE_FROM)
        return cls(file, notices=notices, clock=clock, boot_id=boot_id)

    @classmethod
    def open_read_only(cls, path: Path) -> Self:
        """Open a ledger that a daemon may be writing; creates and changes nothing, and must only be asked.

        Raises like `open`, and `ResourceError` when there is no file.
        """
        return cls(SqliteFile.open_read_only(path, application_id=APPLICATION_ID, known=len(MIGRATIONS)))

    def claim(self, document: Document, *, holder: Holder, now: datetime, lease_s: float) -> Claim:
        """See `Ledger.claim`."""
        with self._file.write() as db:
            register(db, document, now)
            settled = settled_of(db, document.id)
            if settled is not None:
                return AlreadySettled(settled=settled)
            at = self.lease_clock.at(now, boot_id=holder.boot_id)
            history = attempts_of(db, document.id, at)
            newest = history[-1] if history else None
            until = now + timedelta(seconds=lease_s)
            if newest is not None and newest.ended_at is None and newest.lease_until > now:
                if newest.lease_until > until:  # whoever lives renews it in time, and nobody waits longer for the dead
                    lease(db, newest, at, lease_s)
                return Held(holder=newest.holder, lease_until=min(newest.lease_until, until))
            if newest is not None and newest.ended_at is None:
                closed = overtaken(newest, by=holder, now=now)
                for outcome in closed.outcomes[len(newest.outcomes) :]:
                    append_outcome(db, newest, outcome)
                end(db, newest, now)
                history = attempts_of(db, document.id, at)
            number = 1 if newest is None else newest.number + 1
            attempt = Attempt(document_id=document.id, number=number, holder=holder, started_at=now, lease_until=until)
            begin(db, attempt, at, lease_s)
            (forgotten,) = db.execute("SELECT reopened_after FROM documents WHERE id = ?", (document.id,)).fetchone()
            return Claimed(attempt=attempt, history=tuple(each for each in history if each.number > forgotten))

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """See `Ledger.renew`."""
        with self._file.write() as db:
            require(db, attempt)
            lease(db, attempt, self.lease_clock.at(now), lease_s)

    def check(self, attempt: Attempt) -> None:
        """See `Ledger.check`."""
        with self._file.read() as db:
            require(db, attempt)

    def record_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """See `Ledger.record_outcome`."""
        with self._file.write() as db:
            require(db, attempt)
            append_outcome(db, attempt, outcome)

    def excuse(self, attempt: Attempt) -> None:
        """See `Ledger.excuse`."""
        with self._file.write() as db:
            history = attempts_of(db, attempt.document_id, self.lease_clock.at())
            row = db.execute("SELECT reopened_after FROM documents WHERE id = ?", (attempt.document_id,)).fetchone()
            if row is None or not row[0] < attempt.number < len(history):
                return
            amended = excused(history[attempt.number - 1])
            if amended is not None:
                db.execute(
                    "DELETE FROM outcomes WHERE document_id = ? AND attempt = ? AND position = ?",
                    (attempt.document_id, attempt.number, len(amended.outcomes)),
                )
                append_outcome(db, amended, amended.outcomes[-1])

    def end_attempt(self, attempt: Attempt, *, now: datetime) -> None:
        """See `Ledger.end_attempt`."""
        with self._file.write() as db:
            require(db, attempt)
            end(db, attempt, now)

    def settle(self, attempt: Attempt, settled: Settled) -> None:
        """See `Ledger.settle`."""
        assert (settled.document_id, settled.attempt) == (attempt.document_id, attempt.number), (
            "settled by another attempt"
        )
        with self._file.write() as db:
            before = settled_of(db, attempt.document_id)
            if before is not None and replace(before, settled_at=settled.settled_at) == to_settled(
                settled_row(settled)
            ):
                return
            require(db, attempt)
            end(db, attempt, settled.settled_at)
            insert(db, "settled", SETTLED_COLUMNS, settled_row(settled))
            document = document_of(db, settled.document_id)
            if self.notices and document is not None:
                enqueue(db, of_settled(document, settled))

    def break_leases(self, *, host: str, invocation: str, now: datetime) -> int:
        """See `Ledger.break_leases`."""
        with self._file.write() as db:
            at = self.lease_clock.at(now)
            left = [
                attempt
                for attempt in running_of(db, at)
                if attempt.holder.host == host and attempt.holder.invocation != invocation and attempt.lease_until > now
            ]
            for attempt in left:
                lease(db, attempt, at, 0.0)
            return len(left)

    def reopen(self, document_id: str) -> bool:
        """See `Ledger.reopen`."""
        with self._file.write() as db:
            return reopen(db, document_id)

    def document(self, document_id: str) -> Document | None:
        """See `Ledger.document`."""
        with self._file.read() as db:
            return document_of(db, document_id)

    def find(self, wanted: str) -> Sequence[Document]:
        """See `Ledger.find`."""
        begins = "id >= :wanted AND id < :wanted || char(0x10FFFF) ORDER BY id LIMIT 20"
        with self._file.read() as db:
            for condition in ("id = :wanted", "uri = :wanted ORDER BY id", begins):
                query = f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE {condition}"
                if found := db.execute(query, {"wanted": text(wanted)}).fetchall():
                    return [to_document(row) for row in found]
        return []

    def attempts(self, document_id: str) -> Sequence[Attempt]:
        """See `Ledger.attempts`."""
        with self._file.read() as db:
            return attempts_of(db, document_id, self.lease_clock.at())

    def settled(self, document_id: str) -> Settled | None:
        """See `Ledger.settled`."""
        with self._file.read() as db:
            return settled_of(db, document_id)

    def running(self) -> Sequence[Attempt]:
        """See `Ledger.running`."""
        with self._file.read() as db:
            return running_of(db, self.lease_clock.at())

    def counts(self) -> Mapping[str, int]:
        """See `Ledger.counts`."""
        with self._file.read() as db:
            (documents,) = db.execute("SELECT count(*) FROM documents").fetchone()
            (running,) = db.execute(f"SELECT count(*) {RUNNING}").fetchone()
            settled = dict(db.execute("SELECT status, count(*) FROM settled GROUP BY status").fetchall())
        terminal = {status.value: settled.get(status.value, 0) for status in ResultStatus}
        return {"running": running, "waiting": documents - running - sum(terminal.values()), **terminal}

    def recent(self, *, limit: int) -> Sequence[Settled]:
        """See `Ledger.recent`."""
        query = f"SELECT {SETTLED_COLUMNS} FROM settled ORDER BY settled_us DESC, rowid DESC LIMIT ?"
        with self._file.read() as db:
            return [to_settled(row) for row in db.execute(query, (limit,)).fetchall()]

    def close(self) -> None:
        """See `Ledger.close`."""
        self._file.close()
