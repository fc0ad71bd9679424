"""The ledger's tables, and how values become rows and rows become values.

Edge, but without I/O. Instants are stored as integer microseconds since 1970 UTC, so that comparing numbers
compares instants; enums as their values; flags as 0 and 1. Text that is not valid Unicode (a lone surrogate out of
a file name or a child's stderr) is stored with backslash escapes, since SQLite's text is UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from daemon.model import Attempt, Cause, Document, Holder, Options, Outcome, PageMode, ResultStatus, Settled, Stage

#: "Bulk", in the file's header.
APPLICATION_ID = 0x42756C6B

#: Numbered from 1 by position. One that has been released is never edited; the next change is a new one.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE documents (
             id TEXT PRIMARY KEY, uri TEXT NOT NULL, version_id TEXT, etag TEXT, options TEXT NOT NULL,
             registered_us INTEGER NOT NULL, reopened_after INTEGER NOT NULL DEFAULT 0
           ) STRICT""",
        "CREATE INDEX documents_by_uri ON documents (uri)",
        """CREATE TABLE attempts (
             document_id TEXT NOT NULL REFERENCES documents (id), number INTEGER NOT NULL CHECK (number >= 1),
             host TEXT NOT NULL, boot_id TEXT NOT NULL, invocation TEXT NOT NULL, pid INTEGER NOT NULL,
             started_us INTEGER NOT NULL, lease_until_us INTEGER NOT NULL, ended_us INTEGER,
             PRIMARY KEY (document_id, number)
           ) STRICT""",
        "CREATE INDEX attempts_open ON attempts (host) WHERE ended_us IS NULL",
        """CREATE TABLE outcomes (
             document_id TEXT NOT NULL, attempt INTEGER NOT NULL, position INTEGER NOT NULL CHECK (position >= 1),
             cause TEXT NOT NULL, detail TEXT NOT NULL, child INTEGER NOT NULL, ocr INTEGER NOT NULL, signal TEXT,
             mode TEXT, stage TEXT, page INTEGER, pages_done INTEGER NOT NULL, pages INTEGER,
             elapsed_s REAL NOT NULL, peak_rss_bytes INTEGER NOT NULL,
             traceback TEXT NOT NULL, stderr_tail TEXT NOT NULL,
             PRIMARY KEY (document_id, attempt, position),
             FOREIGN KEY (document_id, attempt) REFERENCES attempts (document_id, number)
           ) STRICT""",
        """CREATE TABLE settled (
             document_id TEXT PRIMARY KEY REFERENCES documents (id), status TEXT NOT NULL, attempt INTEGER NOT NULL,
             settled_us INTEGER NOT NULL, cause TEXT NOT NULL, detail TEXT NOT NULL, manifest TEXT,
             pages INTEGER NOT NULL, pages_by_state TEXT NOT NULL,
             FOREIGN KEY (document_id, attempt) REFERENCES attempts (document_id, number)
           ) STRICT""",
        "CREATE INDEX settled_by_time ON settled (settled_us)",
    ),
    (
        # One row per return to the queue; `key` is what was reclaimed, so that the same letter counts once.
        """CREATE TABLE reclaims (
             document_id TEXT NOT NULL REFERENCES documents (id), key TEXT NOT NULL,
             number INTEGER NOT NULL CHECK (number >= 1), reclaimed_us INTEGER NOT NULL, forgiven_us INTEGER,
             PRIMARY KEY (document_id, key)
           ) STRICT""",
        # `key` is the document's id, or that of a message from which none could be read.
        """CREATE TABLE parked (
             key TEXT PRIMARY KEY, document_id TEXT, uri TEXT, body TEXT NOT NULL, cause TEXT NOT NULL,
             signal TEXT, stage TEXT, build TEXT NOT NULL, detail TEXT NOT NULL, attempts INTEGER NOT NULL,
             reclaims INTEGER NOT NULL, parked_us INTEGER NOT NULL, alerted_us INTEGER, retry_us INTEGER
           ) STRICT""",
        "CREATE INDEX parked_by_cause ON parked (cause, parked_us)",
    ),
    (
        "ALTER TABLE outcomes ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''",
        # Since when a document that a sweep found in its source waits for its message to be sent; NULL: it does not.
        "ALTER TABLE documents ADD COLUMN awaiting_us INTEGER",
        "CREATE INDEX documents_awaiting ON documents (awaiting_us) WHERE awaiting_us IS NOT NULL",
        # What a sweep tells the next one: how far it has read a source, and when it told what.
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    ),
    (
        # What is to be told of documents that have ended; gone when it was sent. Counted on, never used twice.
        """CREATE TABLE notices (
             position INTEGER PRIMARY KEY AUTOINCREMENT, document_id TEXT NOT NULL, sequence INTEGER NOT NULL,
             state TEXT NOT NULL, at_us INTEGER NOT NULL, body TEXT NOT NULL, UNIQUE (document_id, sequence)
           ) STRICT""",
    ),
    # The lease's end by the uptime of the boot that gave it; NULL: given by a version that knows only the wall clock.
    ("ALTER TABLE attempts ADD COLUMN lease_uptime_us INTEGER",),
)

#: The number of migrations that the release before had, when all since are additions that it need not know (new tables,
#: indexes, columns with a default): it can then be rolled back to. Else `len(MIGRATIONS)`: it refuses the file.
USABLE_FROM = 2

#: In the order that the functions below read and write.
DOCUMENT_COLUMNS = "id, uri, version_id, etag, options"
ATTEMPT_COLUMNS = "document_id, number, host, boot_id, invocation, pid, started_us, lease_until_us, ended_us"
OUTCOME_COLUMNS = (
    "cause, detail, child, ocr, mode, signal, stage, page, pages_done, pages, elapsed_s, peak_rss_bytes, traceback, "
    "stderr_tail, fingerprint"
)
SETTLED_COLUMNS = "document_id, status, attempt, settled_us, cause, detail, manifest, pages, pages_by_state"

#: What a newer version wrote and this one does not know counts as the least that can have happened: a failure.
_UNKNOWN_CAUSE = Cause.CRASHED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Choice = TypeVar("Choice", bound=StrEnum)

#: A row as `sqlite3` gives it, or a parameter list as it takes it.
Row = Sequence[Any]


def microseconds(instant: datetime) -> int:
    """Microseconds from 1970 UTC to `instant`, exactly; `instant` must be aware."""
    assert instant.tzinfo is not None, "an instant without a time zone cannot be compared"
    return (instant - _EPOCH) // _MICROSECOND


def instant(value: int) -> datetime:
    """The aware UTC instant that `microseconds` gave."""
    return _EPOCH + value * _MICROSECOND


def text(value: str) -> str:
    """`value` as SQLite can hold it."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def document_row(document: Document) -> Row:
    """Values for `DOCUMENT_COLUMNS`."""
    options = json.dumps({"ocr": document.options.ocr})
    return (document.id, text(document.uri), document.version_id, document.etag, options)


def to_document(row: Row) -> Document:
    """A document from `DOCUMENT_COLUMNS`."""
    identity, uri, version_id, etag, options = row
    return Document(id=identity, uri=uri, version_id=version_id, etag=etag, options=Options(**json.loads(options)))


def attempt_row(attempt: Attempt) -> Row:
    """Values for `ATTEMPT_COLUMNS`."""
    holder = attempt.holder
    ended = None if attempt.ended_at is None else microseconds(attempt.ended_at)
    return (
        attempt.document_id, attempt.number, holder.host, holder.boot_id, holder.invocation, holder.pid,
        microseconds(attempt.started_at), microseconds(attempt.lease_until), ended,
    )  # fmt: skip


def to_attempt(row: Row, outcomes: Sequence[Outcome] = ()) -> Attempt:
    """An attempt from `ATTEMPT_COLUMNS`, with the outcomes that belong to it."""
    document_id, number, host, boot_id, invocation, pid, started_us, lease_until_us, ended_us = row
    return Attempt(
        document_id=document_id,
        number=number,
        holder=Holder(host=host, boot_id=boot_id, invocation=invocation, pid=pid),
        started_at=instant(started_us),
        lease_until=instant(lease_until_us),
        ended_at=None if ended_us is None else instant(ended_us),
        outcomes=tuple(outcomes),
    )


def outcome_row(outcome: Outcome) -> Row:
    """Values for `OUTCOME_COLUMNS`."""
    return (
        outcome.cause.value, text(outcome.detail), outcome.child, int(outcome.ocr),
        None if outcome.mode is None else outcome.mode.value, outcome.signal,
        None if outcome.stage is None else outcome.stage.value, outcome.page, outcome.pages_done, outcome.pages,
        outcome.elapsed_s,
        outcome.peak_rss_bytes, text(outcome.traceback), text(outcome.stderr_tail),
        outcome.fingerprint,
    )  # fmt: skip


def to_outcome(row: Row) -> Outcome:
    """An outcome from `OUTCOME_COLUMNS`."""
    cause, detail, child, ocr, mode, signal, stage, page, done, pages, elapsed_s, peak, traceback, tail, print_ = row
    return Outcome(
        cause=_cause(cause),
        detail=detail,
        child=child,
        ocr=bool(ocr),
        mode=_known(PageMode, mode),
        signal=signal,
        stage=_known(Stage, stage),
        page=page,
        pages_done=done,
        pages=pages,
        elapsed_s=elapsed_s,
        peak_rss_bytes=peak,
        traceback=traceback,
        stderr_tail=tail,
        fingerprint=print_,
    )


def settled_row(settled: Settled) -> Row:
    """Values for `SETTLED_COLUMNS`."""
    return (
        settled.document_id, settled.status.value, settled.attempt, microseconds(settled.settled_at),
        settled.cause.value, text(settled.detail), None if settled.manifest is None else text(settled.manifest),
        settled.pages, json.dumps(dict(settled.pages_by_state), sort_keys=True),
    )  # fmt: skip


def to_settled(row: Row) -> Settled:
    """A terminal record from `SETTLED_COLUMNS`."""
    document_id, status, attempt, settled_us, cause, detail, manifest, pages, pages_by_state = row
    return Settled(
        document_id=document_id,
        status=ResultStatus(status),
        attempt=attempt,
        settled_at=instant(settled_us),
        cause=_cause(cause),
        detail=detail,
        manifest=manifest,
        pages=pages,
        pages_by_state=json.loads(pages_by_state),
    )


def _cause(value: str) -> Cause:
    """The cause of that name; a newer version's, found after going back, is read as a crash."""
    return _known(Cause, value) or _UNKNOWN_CAUSE


def _known(kind: type[Choice], value: str | None) -> Choice | None:
    """The member of that value; None when there is no such member, or no value."""
    return kind(value) if value in frozenset(kind) else None
