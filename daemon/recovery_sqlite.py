"""Reclaims and parked documents in the ledger's own SQLite file.

Edge. Rules as in `ledger_sqlite.py`: every public method is one transaction, and every write checks in it that what
it is about has not changed. The tables are `ledger_rows.py`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from daemon.ledger_rows import DOCUMENT_COLUMNS, Row, instant, microseconds, text, to_document
from daemon.ledger_sqlite import SqliteLedger
from daemon.ledger_statements import attempts_of, document_of, register, reopen, settled_of
from daemon.model import Cause, Document, ResultStatus, Stage
from daemon.notice import of_parked
from daemon.outbox_sqlite import enqueue
from daemon.recovery import Listed, Parked, Standing

_COLUMNS = "key, document_id, uri, body, cause, signal, stage, build, detail, attempts, reclaims, parked_us"


class SqliteRecovery:
    """`daemon.recovery.Recovery` beside a `SqliteLedger`, which stays the owner of the file."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._file = ledger.file
        self._notices = ledger.notices
        self._lease_clock = ledger.lease_clock

    def standing(self, document_id: str) -> Standing:
        """See `Recovery.standing`."""
        with self._file.read() as db:
            reopened = db.execute("SELECT reopened_after FROM documents WHERE id = ?", (document_id,)).fetchone()
            rows = db.execute("SELECT key, number FROM reclaims WHERE document_id = ?", (document_id,)).fetchall()
            return Standing(
                document=document_of(db, document_id),
                settled=settled_of(db, document_id),
                attempts=tuple(attempts_of(db, document_id, self._lease_clock.at())),
                reopened_after=reopened[0] if reopened else 0,
                reclaims=dict(rows),
                spent=_spent(db, document_id),
                parked=_parked(db, document_id),
            )

    def documents(self, *, after: str, limit: int) -> Sequence[str]:
        """See `Recovery.documents`."""
        query = "SELECT id FROM documents WHERE id > ? ORDER BY id LIMIT ?"
        with self._file.read() as db:
            return [row[0] for row in db.execute(query, (after, limit)).fetchall()]

    def reclaim(self, document: Document, *, key: str, attempt: int | None, now: datetime) -> int | None:
        """See `Recovery.reclaim`."""
        with self._file.write() as db:
            before = db.execute(
                "SELECT number FROM reclaims WHERE document_id = ? AND key = ?", (document.id, key)
            ).fetchone()
            if before is not None:
                return int(before[0])
            settled = settled_of(db, document.id)
            if attempt is None and settled is not None:
                return None
            if attempt is not None and document_of(db, document.id) is not None:
                given_up = settled is not None and settled.status is ResultStatus.FAILED and settled.attempt == attempt
                if not given_up:
                    return None
                reopen(db, document.id)
            register(db, document, now)
            number = _spent(db, document.id) + 1
            db.execute(
                "INSERT INTO reclaims (document_id, key, number, reclaimed_us) VALUES (?, ?, ?, ?)",
                (document.id, key, number, microseconds(now)),
            )
            return number

    def park(self, parked: Parked) -> None:
        """See `Recovery.park`."""
        with self._file.write() as db:
            if _insert(db, parked) and self._notices:
                _announce(db, parked)

    def parked(self) -> Sequence[Parked]:
        """See `Recovery.parked`."""
        with self._file.read() as db:
            return [_to_parked(row) for row in db.execute("SELECT * FROM parked ORDER BY parked_us, key").fetchall()]

    def mark_alerted(self, keys: Sequence[str], *, now: datetime) -> None:
        """See `Recovery.mark_alerted`."""
        with self._file.write() as db:
            db.executemany(
                "UPDATE parked SET alerted_us = ? WHERE key = ?", [(microseconds(now), text(key)) for key in keys]
            )

    def retry(self, key: str, *, now: datetime) -> Parked | None:
        """See `Recovery.retry`."""
        with self._file.write() as db:
            found = _parked(db, key)
            if found is not None and not found.retrying:
                _grant(db, found.document_id, now)
                db.execute("UPDATE parked SET retry_us = ? WHERE key = ?", (microseconds(now), text(key)))
            return _parked(db, key)

    def requeue(self, document_id: str, *, body: str, now: datetime) -> None:
        """See `Recovery.requeue`."""
        with self._file.write() as db:
            document, settled = document_of(db, document_id), settled_of(db, document_id)
            if document is None or settled is None:
                return
            _insert(
                db,
                Parked(
                    key=document_id,
                    document_id=document_id,
                    uri=document.uri,
                    body=body,
                    cause=settled.cause,
                    detail=settled.detail,
                    since=now,
                ),
            )
            _grant(db, document_id, now)
            db.execute(
                "UPDATE parked SET retry_us = ?, alerted_us = ? WHERE key = ?",
                (microseconds(now), microseconds(now), document_id),
            )

    def unpark(self, key: str) -> bool:
        """See `Recovery.unpark`."""
        with self._file.write() as db:
            return db.execute("DELETE FROM parked WHERE key = ?", (text(key),)).rowcount > 0

    def strangers(self, listed: Sequence[Listed]) -> Sequence[Listed]:
        """See `Recovery.strangers`."""
        with self._file.read() as db:
            return [each for each in listed if not _known(db, each)]

    def register(self, document: Document, *, now: datetime) -> None:
        """See `Recovery.register`."""
        with self._file.write() as db:
            if document_of(db, document.id) is None:
                register(db, document, now)
                db.execute("UPDATE documents SET awaiting_us = ? WHERE id = ?", (microseconds(now), document.id))

    def forgotten(self, *, limit: int) -> Sequence[Document]:
        """See `Recovery.forgotten`."""
        query = f"""SELECT {DOCUMENT_COLUMNS} FROM documents AS d WHERE awaiting_us IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM attempts WHERE document_id = d.id)
            ORDER BY awaiting_us, id LIMIT ?"""
        with self._file.read() as db:
            return [to_document(row) for row in db.execute(query, (limit,)).fetchall()]

    def enqueued(self, document_id: str) -> None:
        """See `Recovery.enqueued`."""
        with self._file.write() as db:
            db.execute("UPDATE documents SET awaiting_us = NULL WHERE id = ?", (document_id,))

    def note(self, name: str) -> str | None:
        """See `Recovery.note`."""
        with self._file.read() as db:
            row = db.execute("SELECT value FROM notes WHERE name = ?", (text(name),)).fetchone()
            return None if row is None else str(row[0])

    def write_note(self, name: str, value: str) -> None:
        """See `Recovery.write_note`."""
        with self._file.write() as db:
            db.execute("INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)", (text(name), text(value)))


def _known(db: sqlite3.Connection, listed: Listed) -> bool:
    document = listed.document
    query = """SELECT EXISTS (SELECT 1 FROM documents WHERE id = :id)
          OR EXISTS (SELECT 1 FROM parked WHERE key = :id)
          OR EXISTS (SELECT 1 FROM documents WHERE uri = :uri AND (version_id = :version OR etag = :etag
               OR (coalesce(version_id, etag) IS NULL OR coalesce(:version, :etag) IS NULL)
                 AND registered_us >= :modified))"""
    given = {
        "id": document.id,
        "uri": text(document.uri),
        "version": document.version_id,
        "etag": document.etag,
        "modified": microseconds(listed.modified_at),
    }
    return bool(db.execute(query, given).fetchone()[0])


def _grant(db: sqlite3.Connection, document_id: str | None, now: datetime) -> None:
    """One more round: the newest reclaim no longer counts, and the document can be claimed again."""
    if document_id is None:
        return
    db.execute(
        """UPDATE reclaims SET forgiven_us = ? WHERE rowid IN (SELECT rowid FROM reclaims
             WHERE document_id = ? AND forgiven_us IS NULL ORDER BY reclaimed_us DESC, number DESC LIMIT 1)""",
        (microseconds(now), document_id),
    )
    reopen(db, document_id)


def _spent(db: sqlite3.Connection, document_id: str) -> int:
    query = "SELECT count(*) FROM reclaims WHERE document_id = ? AND forgiven_us IS NULL"
    return int(db.execute(query, (document_id,)).fetchone()[0])


def _parked(db: sqlite3.Connection, key: str) -> Parked | None:
    row = db.execute("SELECT * FROM parked WHERE key = ?", (text(key),)).fetchone()
    return None if row is None else _to_parked(row)


def _announce(db: sqlite3.Connection, parked: Parked) -> None:
    """What is told of a parked document; nothing of a message from which none could be read."""
    if parked.document_id is None or parked.uri is None:
        return
    document = document_of(db, parked.document_id) or Document(id=parked.document_id, uri=parked.uri)
    query = "SELECT coalesce(max(number), 0) FROM attempts WHERE document_id = ?"
    (attempts,) = db.execute(query, (document.id,)).fetchone()
    enqueue(db, of_parked(document, attempts=attempts, cause=parked.cause, at=parked.since))


def _insert(db: sqlite3.Connection, parked: Parked) -> bool:
    """Whether it was not there yet."""
    row = (
        text(parked.key), parked.document_id, None if parked.uri is None else text(parked.uri), text(parked.body),
        parked.cause.value, parked.signal, None if parked.stage is None else parked.stage.value, parked.build,
        text(parked.detail), parked.attempts, parked.reclaims, microseconds(parked.since),
    )  # fmt: skip
    marks = ", ".join("?" * len(row))
    done = db.execute(f"INSERT INTO parked ({_COLUMNS}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING", row)
    return done.rowcount > 0


def _to_parked(row: Row) -> Parked:
    """From all columns, in the table's order."""
    key, document_id, uri, body, cause, signal, stage, build, detail, attempts, reclaims, since, alerted, retry = row
    return Parked(
        key=key,
        document_id=document_id,
        uri=uri,
        body=body,
        cause=Cause(cause),
        signal=signal,
        stage=None if stage is None else Stage(stage),
        build=build,
        detail=detail,
        attempts=attempts,
        reclaims=reclaims,
        since=instant(since),
        alerted=alerted is not None,
        retrying=retry is not None,
    )
