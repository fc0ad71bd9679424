"""What `ledger_sqlite.py` and `recovery_sqlite.py` ask and write within their transactions.

Edge. Rules: every function is part of a transaction that the caller has begun; only names of tables and columns, all of
them constants, are put into statements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from daemon.errors import LeaseLostError
from daemon.lease_clock import Instant
from daemon.ledger import id_conflict
from daemon.ledger_rows import (
    ATTEMPT_COLUMNS,
    DOCUMENT_COLUMNS,
    OUTCOME_COLUMNS,
    SETTLED_COLUMNS,
    Row,
    attempt_row,
    document_row,
    microseconds,
    outcome_row,
    text,
    to_attempt,
    to_document,
    to_outcome,
    to_settled,
)
from daemon.model import Attempt, Document, Outcome, Settled

#: A row of `attempts` as it is written and seen here.
_SEEN = f"{ATTEMPT_COLUMNS}, lease_uptime_us"
#: The attempt that may act for its document: the newest, unended, of a document that is not settled.
RUNNING = """
  FROM attempts AS a
  WHERE ended_us IS NULL
    AND number = (SELECT max(number) FROM attempts WHERE document_id = a.document_id)
    AND NOT EXISTS (SELECT 1 FROM settled WHERE document_id = a.document_id)
"""


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
        insert(db, "documents", columns, (*document_row(document), microseconds(now)))
    elif known.uri != text(document.uri):
        raise id_conflict(document, known)


def insert(db: sqlite3.Connection, table: str, columns: str, row: Row) -> None:
    """One row; `columns` are constants of `ledger_rows.py`."""
    db.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", row)


def append_outcome(db: sqlite3.Connection, attempt: Attempt, outcome: Outcome) -> None:
    """One more outcome of an attempt."""
    key = (attempt.document_id, attempt.number)
    query = "SELECT count(*) FROM outcomes WHERE document_id = ? AND attempt = ?"
    (written,) = db.execute(query, key).fetchone()
    columns = f"document_id, attempt, position, {OUTCOME_COLUMNS}"
    insert(db, "outcomes", columns, (*key, written + 1, *outcome_row(outcome)))


def end(db: sqlite3.Connection, attempt: Attempt, at: datetime) -> None:
    """The instant at which an attempt ended."""
    db.execute(
        "UPDATE attempts SET ended_us = ? WHERE document_id = ? AND number = ?",
        (microseconds(at), attempt.document_id, attempt.number),
    )


def begin(db: sqlite3.Connection, attempt: Attempt, at: Instant, lease_s: float) -> None:
    """A new attempt, whose lease ends `lease_s` after `at`."""
    insert(db, "attempts", _SEEN, (*attempt_row(attempt), at.uptime_after(lease_s)))


def lease(db: sqlite3.Connection, attempt: Attempt, at: Instant, lease_s: float) -> None:
    """Let an attempt of this boot keep its lease until `lease_s` after `at`; the wall clock is for older versions."""
    ends = (microseconds(at.now + timedelta(seconds=lease_s)), at.uptime_after(lease_s))
    db.execute(
        "UPDATE attempts SET lease_until_us = ?, lease_uptime_us = ? WHERE document_id = ? AND number = ?",
        (*ends, attempt.document_id, attempt.number),
    )


def document_of(db: sqlite3.Connection, document_id: str) -> Document | None:
    """What is registered under this id, within a transaction of the caller's."""
    row = db.execute(f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE id = ?", (document_id,)).fetchone()
    return None if row is None else to_document(row)


def attempts_of(db: sqlite3.Connection, document_id: str, at: Instant) -> list[Attempt]:
    """All attempts with their outcomes, oldest first; their leases as seen from `at`."""
    outcomes = outcomes_of(db, document_id)
    rows = db.execute(f"SELECT {_SEEN} FROM attempts WHERE document_id = ? ORDER BY number", (document_id,))
    return [_seen(row, outcomes, at) for row in rows.fetchall()]


def running_of(db: sqlite3.Connection, at: Instant) -> list[Attempt]:
    """`Ledger.running`; leases as seen from `at`."""
    rows = db.execute(f"SELECT {_SEEN} {RUNNING} ORDER BY started_us, rowid").fetchall()
    return [_seen(row, outcomes_of(db, row[0]), at) for row in rows]


def _seen(row: Row, outcomes: Mapping[int, Sequence[Outcome]], at: Instant) -> Attempt:
    *columns, lease_uptime_us = row
    return at.seen(to_attempt(columns, outcomes.get(row[1], ())), lease_uptime_us)


def outcomes_of(db: sqlite3.Connection, document_id: str) -> dict[int, list[Outcome]]:
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


def require(db: sqlite3.Connection, attempt: Attempt) -> None:
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
