"""The outbox in the ledger's own SQLite file.

Edge. Rules as in `ledger_sqlite.py`, whose file this is; `enqueue` belongs into the transaction of the state that it
tells of.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from daemon.ledger_rows import instant, microseconds, text
from daemon.notice import Notice, NoticeState
from daemon.outbox import Backlog
from daemon.sqlite_file import SqliteFile


def enqueue(db: sqlite3.Connection, notice: Notice) -> None:
    """Write a notice within a transaction of the caller's; the same state again adds nothing."""
    db.execute(
        """INSERT INTO notices (document_id, sequence, state, at_us, body) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT (document_id, sequence) DO NOTHING""",
        (notice.document_id, notice.sequence, str(notice.state), microseconds(notice.at), text(notice.body)),
    )


class SqliteOutbox:
    """`daemon.outbox.Outbox` beside a `SqliteLedger`, which stays the owner of the file."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def waiting(self, *, limit: int) -> Sequence[Notice]:
        """See `Outbox.waiting`."""
        query = "SELECT document_id, sequence, state, at_us, body FROM notices ORDER BY position LIMIT ?"
        with self._file.read() as db:
            return [
                Notice(
                    document_id=document_id, sequence=sequence, state=NoticeState(state), at=instant(at_us), body=body
                )
                for document_id, sequence, state, at_us, body in db.execute(query, (limit,)).fetchall()
            ]

    def sent(self, notices: Sequence[Notice]) -> None:
        """See `Outbox.sent`."""
        with self._file.write() as db:
            db.executemany(
                "DELETE FROM notices WHERE document_id = ? AND sequence = ?",
                [(notice.document_id, notice.sequence) for notice in notices],
            )

    def backlog(self) -> Backlog:
        """See `Outbox.backlog`."""
        with self._file.read() as db:
            number, oldest_us = db.execute("SELECT count(*), min(at_us) FROM notices").fetchone()
        return Backlog(number=number, oldest_at=None if oldest_us is None else instant(oldest_us))
