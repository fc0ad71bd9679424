"""The ledger as the parent sees it: documents, attempts, settled results.

Edge (the interface only; `ledger_sqlite.py` is the real one). Every write is durable when its method
returns. One contract suite, `tests/contract/ledger_contract.py`, holds for every implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from daemon.model import Attempt, Document, Holder, Outcome, Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The lease is ours; `attempt.number` is the fencing token."""

    attempt: Attempt
    #: Earlier attempts at this document, oldest first; one without an end was left by a dead parent.
    history: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Somebody works on it: a duplicate delivery, or another host."""

    holder: Holder
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadySettled:
    """It has ended; a redelivery is only deleted."""

    settled: Settled


Claim = Claimed | Held | AlreadySettled


class Ledger(Protocol):
    """What must survive the parent.

    Every method may raise `WorldError(DISK_FULL | STORE_UNAVAILABLE)` when the medium does not answer;
    then nothing was written.
    """

    def claim(self, document: Document, *, holder: Holder, now: datetime, lease_s: float) -> Claim:
        """Register `document` if it is new, and mark an attempt if nobody holds it.

        One conditional write. A lease that has run out is taken over; its attempt stays without an end.
        Raises `DocumentError(MALFORMED_MESSAGE)` when the id is already that of another URI.
        """
        ...

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """Move the lease's end to `now + lease_s`. Raises `LeaseLostError` when a newer attempt exists or it has ended."""
        ...

    def check(self, attempt: Attempt) -> None:
        """Raise `LeaseLostError` unless `attempt` is the newest of its document, unended and unsettled."""
        ...

    def record_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """Append what one child came to, before the next one starts. Raises `LeaseLostError` like `check`."""
        ...

    def end_attempt(self, attempt: Attempt, *, now: datetime) -> None:
        """Give the lease back without settling. Raises `LeaseLostError` like `check`."""
        ...

    def settle(self, attempt: Attempt, settled: Settled) -> None:
        """End the attempt and make `settled` the document's last word; the same again is harmless.

        Raises `LeaseLostError` when a newer attempt exists, or when it was settled otherwise.
        """
        ...

    def break_leases(self, *, host: str, invocation: str, now: datetime) -> int:
        """Let every running lease of `host` that is not of `invocation` run out now; returns how many.

        Only for a parent that holds the host's instance lock, and so knows that the others are dead.
        """
        ...

    def reopen(self, document_id: str) -> bool:
        """Take back a settled state, so that the document can be claimed again; False when it was not settled.

        History and numbering stay, so an old holder stays stale.
        """
        ...

    def document(self, document_id: str) -> Document | None:
        """What was registered under this id."""
        ...

    def attempts(self, document_id: str) -> Sequence[Attempt]:
        """All attempts with their outcomes, oldest first."""
        ...

    def settled(self, document_id: str) -> Settled | None:
        """The terminal record, if there is one."""
        ...

    def running(self) -> Sequence[Attempt]:
        """Attempts without an end whose document is not settled, oldest first, whoever holds them."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Number of documents by state: `running`, `waiting`, `converted`, `partial`, `failed`."""
        ...

    def recent(self, *, limit: int) -> Sequence[Settled]:
        """The last settled documents, newest first."""
        ...

    def close(self) -> None:
        """Give the medium back; the ledger must not be used afterwards."""
        ...
