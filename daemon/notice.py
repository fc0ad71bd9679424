"""What is told to whoever waits for a document: how it ended and where its result lies, never what it says.

Core. One function for each state, pure; the message is JSON with sorted keys, so the same end is always the same bytes.
Sequence numbers grow with each state of a document, and are made of the number of its attempt, which is never used
twice: a receiver that keeps the highest one sees through repeated and overtaken messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from daemon.model import Cause, Document, ResultStatus, Settled
from daemon.redact import scrub_text

#: Of the message; a field that goes away or changes its meaning makes a new one.
SCHEMA = 1
#: A signed URL is without its signature in a notice, and no longer than this; its `document_id` is whole.
MOST_URI_CHARACTERS = 4_096


class NoticeState(StrEnum):
    """What can be told of a document."""

    #: Published, no page failed.
    CONVERTED = "converted"
    #: Published, and at least one page failed.
    PARTIAL = "partial"
    #: Given up, for now: a sweep may send it back, and another notice follows.
    FAILED = "failed"
    #: Waits for a person.
    PARKED = "parked"


_STATES: Mapping[ResultStatus, NoticeState] = {
    ResultStatus.CONVERTED: NoticeState.CONVERTED,
    ResultStatus.PARTIAL: NoticeState.PARTIAL,
    ResultStatus.FAILED: NoticeState.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One message to be sent, at least once and after all earlier ones of its document."""

    document_id: str
    #: Grows with each state of this document.
    sequence: int
    state: NoticeState
    #: When the state began.
    at: datetime
    #: JSON, ASCII.
    body: str

    @property
    def key(self) -> str:
        """The same for each copy of this notice: 64 hexadecimal digits."""
        return hashlib.sha256(f"{self.document_id}\0{self.sequence}".encode()).hexdigest()


def of_settled(document: Document, settled: Settled) -> Notice:
    """What is told when a document settles."""
    fields: dict[str, object] = {"manifest": settled.manifest, "pages": settled.pages}
    fields |= {"pages_by_state": dict(settled.pages_by_state), "attempts": settled.attempt}
    return _notice(
        document,
        sequence=2 * settled.attempt,
        state=_STATES[settled.status],
        cause=settled.cause,
        at=settled.settled_at,
        fields=fields,
    )


def of_parked(document: Document, *, attempts: int, cause: Cause, at: datetime) -> Notice:
    """What is told when a document is set aside after `attempts`, 0 when there were none."""
    fields: dict[str, object] = {"manifest": None, "pages": 0, "pages_by_state": {}, "attempts": attempts}
    return _notice(document, sequence=2 * attempts + 1, state=NoticeState.PARKED, cause=cause, at=at, fields=fields)


def _notice(
    document: Document,
    *,
    sequence: int,
    state: NoticeState,
    cause: Cause,
    at: datetime,
    fields: Mapping[str, object],
) -> Notice:
    body = {
        "schema": SCHEMA,
        "type": "bulkhead.notice",
        "document_id": document.id,
        "sequence": sequence,
        "state": str(state),
        "cause": str(cause),
        "at": at.isoformat(),
        "uri": scrub_text(document.uri, limit=MOST_URI_CHARACTERS),
        "version_id": document.version_id,
        "etag": document.etag,
        **fields,
    }
    return Notice(document_id=document.id, sequence=sequence, state=state, at=at, body=json.dumps(body, sort_keys=True))
