"""What the ledger keeps of documents that failed: how often each was reclaimed, and which wait for a person.

Edge (the interface and its values; `recovery_sqlite.py` is the real one). Rules: a reclaim is counted by document and
by what was reclaimed, so the same dead letter is never counted twice; what was parked stays until it is sent again
or a person drops it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Protocol

from daemon.model import Attempt, Cause, Document, Settled, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A document, or an unreadable message, that waits for a person."""

    #: The document's id; of a message from which none could be read, the message's.
    key: str
    document_id: str | None = None
    #: Where its bytes are.
    uri: str | None = None
    #: What is sent when it is tried again.
    body: str
    cause: Cause
    #: Of the failure that gave it up, where a child died of it.
    signal: str | None = None
    stage: Stage | None = None
    #: The engine that failed at it.
    build: str = ""
    #: Every cause in order, one sentence each.
    detail: str = ""
    attempts: int = 0
    reclaims: int = 0
    since: datetime
    #: A person was told.
    alerted: bool = False
    #: On its way back to the queue: its send is not confirmed yet.
    retrying: bool = False

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """What makes two of them the same problem."""
        return (str(self.cause), self.signal or "", str(self.stage or ""), self.build)

    @property
    def problem(self) -> str:
        """The fingerprint in eight digits, for a person to choose by."""
        return sha256("\0".join(self.fingerprint).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that is known of one document."""

    document: Document | None = None
    settled: Settled | None = None
    #: All of them, oldest first.
    attempts: Sequence[Attempt] = ()
    #: Number of the last attempt before the document was last reopened; 0: never.
    reopened_after: int = 0
    #: Number of each reclaim, by what was reclaimed.
    reclaims: Mapping[str, int] = field(default_factory=dict)
    #: Reclaims that count against the limit.
    spent: int = 0
    parked: Parked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A document that lies in a source, whether or not a message has ever named it."""

    document: Document
    #: When its bytes became what they are.
    modified_at: datetime


class Recovery(Protocol):
    """What the sweep writes; each method is one durable transaction and may raise `WorldError` like the ledger's."""

    def standing(self, document_id: str) -> Standing:
        """What is known, at one instant."""
        ...

    def documents(self, *, after: str, limit: int) -> Sequence[str]:
        """Ids that come after `after`, ascending, at most `limit`; the empty string comes before all."""
        ...

    def reclaim(self, document: Document, *, key: str, attempt: int | None, now: datetime) -> int | None:
        """Count a return to the queue, and reopen what `attempt` settled as failed; returns the reclaim's number.

        `key` counts once: again, it returns the number that it had. `attempt` None: the document was not given up, its
        message was moved; its history stays. None: somebody was faster, and there is nothing to reclaim.
        """
        ...

    def park(self, parked: Parked) -> None:
        """Set aside; what is parked under this key already stays as it is."""
        ...

    def parked(self) -> Sequence[Parked]:
        """All that are set aside, oldest first."""
        ...

    def mark_alerted(self, keys: Sequence[str], *, now: datetime) -> None:
        """A person was told of these."""
        ...

    def retry(self, key: str, *, now: datetime) -> Parked | None:
        """Reopen what is parked under `key` and mark it as on its way; None when there is no such row.

        One reclaim is taken off the count, so a retry grants one more round and not three. The same again is harmless.
        The caller sends its body, then calls `unpark`.
        """
        ...

    def requeue(self, document_id: str, *, body: str, now: datetime) -> None:
        """Reopen a settled document as if it had been parked and retried; then as after `retry`."""
        ...

    def unpark(self, key: str) -> bool:
        """Remove the row; the document's history stays. False when there was none."""
        ...

    def strangers(self, listed: Sequence[Listed]) -> Sequence[Listed]:
        """Those of which nothing is known here, in their order.

        Known: registered or parked under its id; registered under another id with the same URI and version or ETag; or
        with the same URI at `modified_at` or later, where one of the two names neither.
        """
        ...

    def register(self, document: Document, *, now: datetime) -> None:
        """Make it known, and owed a message. One that is known already stays as it is."""
        ...

    def forgotten(self, *, limit: int) -> Sequence[Document]:
        """Registered, owed a message, and never attempted; at most `limit`, the longest known first."""
        ...

    def enqueued(self, document_id: str) -> None:
        """Its message is confirmed: it is owed none, now and ever after."""
        ...

    def note(self, name: str) -> str | None:
        """What the last `write_note` of this name wrote; None: nothing."""
        ...

    def write_note(self, name: str, value: str) -> None:
        """Leave a short text for the next sweep; replaces the former one."""
        ...
