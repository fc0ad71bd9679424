"""The ledger in one SQLite file, for one host.

Edge. Rules: every public method is one transaction; every write checks in that same transaction that the caller
still holds what it writes to; a terminal state is only taken back by `reopen`; numbers of attempts are never used
twice. The rules of locking and errors are `sqlite_file.py`'s, the tables are `ledger_rows.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from daemon.ledger import AlreadySettled, Claim, Claimed, Held, excused, overtaken
from daemon.ledger_rows import (
    APPLICATION_ID,
    ATTEMPT_COLUMNS,
    DOCUMENT_COLUMNS,
    MIGRATIONS,
    SETTLED_COLUMNS,
    USABLE_FROM,
    attempt_row,
    microseconds,
    settled_row,
    text,
    to_attempt,
    to_document,
    to_settled,
)
from daemon.ledger_statements import (
    append_outcome,
    attempts_of,
    document_of,
    end,
    insert,
    lease,
    outcomes_of,
    register,
    reopen,
    require,
    settled_of,
)
from daemon.model import Attempt, Document, Holder, Outcome, ResultStatus, Settled
from daemon.notice import of_settled
from daemon.outbox_sqlite import enqueue
from daemon.sqlite_file import SqliteFile

#: The attempt that may act for its document: the newest, unended, of a document that is not settled.
_RUNNING = """
  FROM attempts AS a
  WHERE a.ended_us IS NULL
    AND a.number = (SELECT max(number) FROM attempts WHERE document_id = a.document_id)
    AND NOT EXISTS (SELECT 1 FROM settled WHERE document_id = a.document_id)
"""


class SqliteLedger:
    """`daemon.ledger.Ledger` on a local disk; used from several threads, one call at a time."""

    def __init__(self, file: SqliteFile, *, notices: bool = False) -> None:
        """`notices`: write each state that a document ends in into the outbox too."""
        self._file = file
        self.notices = notices

    @property
    def file(self) -> SqliteFile:
        """The open file, for `recovery_sqlite.py`, which keeps its tables beside these."""
        return self._file

    @classmethod
    def open(cls, path: Path, *, notices: bool = False) -> Self:
        """Open or create the ledger, and migrate it; `notices` as above.

        Raises `ResourceError` when its folder is missing or not ours to write, `ConfigurationError` when the file is
        damaged, another program's, or written by a newer version that this one cannot follow, `WorldError` when the
        disk is full or locked.
        """
        file = SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS, usable_from=USABLE_FROM)
        return cls(file, notices=notices)

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
            history = attempts_of(db, document.id)
            newest = history[-1] if history else None
            if newest is not None and newest.ended_at is None and newest.lease_until > now:
                # The clock was set back: whoever lives renews it in time, and nobody waits longer for the dead.
                until = min(newest.lease_until, now + timedelta(seconds=lease_s))
                if until < newest.lease_until:
                    lease(db, newest, until)
                return Held(holder=newest.holder, lease_until=until)
            if newest is not None and newest.ended_at is None:
                closed = overtaken(newest, by=holder, now=now)
                for outcome in closed.outcomes[len(newest.outcomes) :]:
                    append_outcome(db, newest, outcome)
                end(db, newest, now)
                history = attempts_of(db, document.id)
            attempt = Attempt(
                document_id=document.id,
                number=1 if newest is None else newest.number + 1,
                holder=holder,
                started_at=now,
                lease_until=now + timedelta(seconds=lease_s),
            )
            insert(db, "attempts", ATTEMPT_COLUMNS, attempt_row(attempt))
            (forgotten,) = db.execute("SELECT reopened_after FROM documents WHERE id = ?", (document.id,)).fetchone()
            return Claimed(attempt=attempt, history=tuple(each for each in history if each.number > forgotten))

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """See `Ledger.renew`."""
        with self._file.write() as db:
            require(db, attempt)
            lease(db, attempt, now + timedelta(seconds=lease_s))

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
            history = attempts_of(db, attempt.document_id)
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
            return db.execute(
                f"""UPDATE attempts SET lease_until_us = :now
                    WHERE (document_id, number) IN (SELECT a.document_id, a.number {_RUNNING})
                      AND host = :host AND invocation != :invocation AND lease_until_us > :now""",
                {"now": microseconds(now), "host": host, "invocation": invocation},
            ).rowcount

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
            return attempts_of(db, document_id)

    def settled(self, document_id: str) -> Settled | None:
        """See `Ledger.settled`."""
        with self._file.read() as db:
            return settled_of(db, document_id)

    def running(self) -> Sequence[Attempt]:
        """See `Ledger.running`."""
        columns = ", ".join(f"a.{name}" for name in ATTEMPT_COLUMNS.split(", "))
        with self._file.read() as db:
            rows = db.execute(f"SELECT {columns} {_RUNNING} ORDER BY a.started_us, a.rowid").fetchall()
            return [to_attempt(row, outcomes_of(db, row[0]).get(row[1], ())) for row in rows]

    def counts(self) -> Mapping[str, int]:
        """See `Ledger.counts`."""
        with self._file.read() as db:
            (documents,) = db.execute("SELECT count(*) FROM documents").fetchone()
            (running,) = db.execute(f"SELECT count(*) {_RUNNING}").fetchone()
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
