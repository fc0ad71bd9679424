"""The ledger in one SQLite file, for one host.

Edge. Rules: every public method is one transaction; every write checks in that same transaction that the caller
still holds what it writes to; a terminal state is only taken back by `reopen`; numbers of attempts are never used
twice. The rules of locking and errors are `sqlite_file.py`'s, the tables are `ledger_rows.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from daemon.errors import LeaseLostError
from daemon.ledger import AlreadySettled, Claim, Claimed, Held, excused, id_conflict, overtaken
from daemon.ledger_rows import (
    APPLICATION_ID,
    ATTEMPT_COLUMNS,
    DOCUMENT_COLUMNS,
    MIGRATIONS,
    OUTCOME_COLUMNS,
    SETTLED_COLUMNS,
    USABLE_FROM,
    Row,
    attempt_row,
    document_row,
    microseconds,
    outcome_row,
    settled_row,
    text,
    to_attempt,
    to_document,
    to_outcome,
    to_settled,
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
                return Held(holder=newest.holder, lease_until=newest.lease_until)
            if newest is not None and newest.ended_at is None:
                closed = overtaken(newest, by=holder, now=now)
                for outcome in closed.outcomes[len(newest.outcomes) :]:
                    _append(db, newest, outcome)
                _end(db, newest, now)
                history = attempts_of(db, document.id)
            attempt = Attempt(
                document_id=document.id,
                number=1 if newest is None else newest.number + 1,
                holder=holder,
                started_at=now,
                lease_until=now + timedelta(seconds=lease_s),
            )
            _insert(db, "attempts", ATTEMPT_COLUMNS, attempt_row(attempt))
            (forgotten,) = db.execute("SELECT reopened_after FROM documents WHERE id = ?", (document.id,)).fetchone()
            return Claimed(attempt=attempt, history=tuple(each for each in history if each.number > forgotten))

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """See `Ledger.renew`."""
        with self._file.write() as db:
            _require(db, attempt)
            db.execute(
                "UPDATE attempts SET lease_until_us = ? WHERE document_id = ? AND number = ?",
                (microseconds(now + timedelta(seconds=lease_s)), attempt.document_id, attempt.number),
            )

    def check(self, attempt: Attempt) -> None:
        """See `Ledger.check`."""
        with self._file.read() as db:
            _require(db, attempt)

    def record_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """See `Ledger.record_outcome`."""
        with self._file.write() as db:
            _require(db, attempt)
            _append(db, attempt, outcome)

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
                _append(db, amended, amended.outcomes[-1])

    def end_attempt(self, attempt: Attempt, *, now: datetime) -> None:
        """See `Ledger.end_attempt`."""
        with self._file.write() as db:
            _require(db, attempt)
            _end(db, attempt, now)

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
            _require(db, attempt)
            _end(db, attempt, settled.settled_at)
            _insert(db, "settled", SETTLED_COLUMNS, settled_row(settled))
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
            return [to_attempt(row, _outcomes(db, row[0]).get(row[1], ())) for row in rows]

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


def reopen(db: sqlite3.Connection, document_id: str) -> bool:
    """`Ledger.reopen` within a transaction of the caller's."""
    if db.execute("DELETE FROM settled WHERE document_id = ?", (document_id,)).rowcount == 0:
        return False
    db.execute(
        """UPDATE documents SET reopened_after =
             (SELECT max(number) FROM attempts WHERE document_id = documents.id) WHERE id = ?""",
        (document_id,),
    )
    return True


def register(db: sqlite3.Connection, document: Document, now: datetime) -> None:
    """Insert `document` unless it is there; raises `DocumentError` when its id is another URI's."""
    known = document_of(db, document.id)
    if known is None:
        columns = f"{DOCUMENT_COLUMNS}, registered_us"
        _insert(db, "documents", columns, (*document_row(document), microseconds(now)))
    elif known.uri != text(document.uri):
        raise id_conflict(document, known)


def _insert(db: sqlite3.Connection, table: str, columns: str, row: Row) -> None:
    db.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", row)


def _append(db: sqlite3.Connection, attempt: Attempt, outcome: Outcome) -> None:
    """One more outcome of an attempt."""
    key = (attempt.document_id, attempt.number)
    query = "SELECT count(*) FROM outcomes WHERE document_id = ? AND attempt = ?"
    (written,) = db.execute(query, key).fetchone()
    columns = f"document_id, attempt, position, {OUTCOME_COLUMNS}"
    _insert(db, "outcomes", columns, (*key, written + 1, *outcome_row(outcome)))


def _end(db: sqlite3.Connection, attempt: Attempt, at: datetime) -> None:
    db.execute(
        "UPDATE attempts SET ended_us = ? WHERE document_id = ? AND number = ?",
        (microseconds(at), attempt.document_id, attempt.number),
    )


def document_of(db: sqlite3.Connection, document_id: str) -> Document | None:
    """What is registered under this id, within a transaction of the caller's."""
    row = db.execute(f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE id = ?", (document_id,)).fetchone()
    return None if row is None else to_document(row)


def attempts_of(db: sqlite3.Connection, document_id: str) -> list[Attempt]:
    """All attempts with their outcomes, oldest first."""
    outcomes = _outcomes(db, document_id)
    rows = db.execute(f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE document_id = ? ORDER BY number", (document_id,))
    return [to_attempt(row, outcomes.get(row[1], ())) for row in rows.fetchall()]


def _outcomes(db: sqlite3.Connection, document_id: str) -> dict[int, list[Outcome]]:
    """Outcomes of a document's attempts by the attempt's number, in order."""
    query = f"SELECT attempt, {OUTCOME_COLUMNS} FROM outcomes WHERE document_id = ? ORDER BY attempt, position"
    by_attempt: dict[int, list[Outcome]] = {}
    for number, *row in db.execute(query, (document_id,)).fetchall():
        by_attempt.setdefault(number, []).append(to_outcome(row))
    return by_attempt


def settled_of(db: sqlite3.Connection, document_id: str) -> Settled | None:
    """The terminal record, if there is one."""
    row = db.execute(f"SELECT {SETTLED_COLUMNS} FROM settled WHERE document_id = ?", (document_id,)).fetchone()
    return None if row is None else to_settled(row)


def _require(db: sqlite3.Connection, attempt: Attempt) -> None:
    """Raise `LeaseLostError`, with the reason, unless `attempt` may still act for its document."""
    what = f"attempt {attempt.number} at {attempt.document_id}"
    if settled_of(db, attempt.document_id) is not None:
        raise LeaseLostError(f"cannot go on with {what}: the document is settled")
    row = db.execute(
        "SELECT number, ended_us, host, pid FROM attempts WHERE document_id = ? ORDER BY number DESC LIMIT 1",
        (attempt.document_id,),
    ).fetchone()
    assert row is not None, f"{what} was never claimed in this ledger"
    number, ended_us, host, pid = row
    if number != attempt.number:
        raise LeaseLostError(f"cannot go on with {what}: attempt {number} has taken over (host {host}, pid {pid})")
    if ended_us is not None:
        raise LeaseLostError(f"cannot go on with {what}: it has ended")
