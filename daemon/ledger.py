"""The ledger as the parent sees it: documents, attempts, settled results.

Edge (the interface only; `ledger_sqlite.py` is the real one). Every write is durable when its method
returns. One contract suite, `tests/contract/ledger_contract.py`, holds for every implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from daemon.errors import DocumentError
from daemon.model import WORLD_CAUSES, Attempt, Cause, Document, Holder, Outcome, Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The lease is ours; `attempt.number` is the fencing token."""

    attempt: Attempt
    #: Attempts since the document was registered or last reopened, oldest first. One that was taken over ends with
    #: `PARENT_DIED`, or with `LEASE_LOST` once its holder was heard of again.
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


def id_conflict(document: Document, known: Document) -> DocumentError:
    """The error of a document whose id is already that of `known`."""
    detail = f"cannot register {document.uri}: its id {document.id} is already that of {known.uri}"
    return DocumentError(Cause.MALFORMED_MESSAGE, f"{detail}. Send it under another id.")


def overtaken(attempt: Attempt, *, by: Holder, now: datetime) -> Attempt:
    """An attempt whose lease ran out, as it is ended when `by` takes its document over.

    Where its holder wrote down why it would be cut off (it was told to stop, the world failed), that stands. A holder
    that takes over from itself lives: its mark was not confirmed, or its heartbeats did not get through.
    """
    was = attempt.holder
    who = f"pid {was.pid} on host {was.host}"
    if was == by:
        silent = Outcome(cause=Cause.LEASE_LOST, detail=f"attempt {attempt.number} was left: {who} lost its lease")
        return replace(attempt, ended_at=now, outcomes=(*attempt.outcomes, silent))
    if was.host == by.host and was.boot_id != by.boot_id:
        detail = f"attempt {attempt.number} was cut off: host {was.host} rebooted"
    else:
        detail = f"attempt {attempt.number} was left without an end: {who} died, or was silent for a whole lease"
    died = Outcome(cause=Cause.PARENT_DIED, detail=f"{detail}; pid {by.pid} on host {by.host} took over")
    why = () if attempt.last_cause in WORLD_CAUSES else (died,)
    return replace(attempt, ended_at=now, outcomes=(*attempt.outcomes, *why))


def excused(attempt: Attempt) -> Attempt | None:
    """The same, ended by a lost lease, which costs nothing; None when it was not taken over."""
    if attempt.last_cause is not Cause.PARENT_DIED:
        return None
    detail = f"{attempt.outcomes[-1].detail}; its parent was heard of again: it had only been silent"
    return replace(attempt, outcomes=(*attempt.outcomes[:-1], Outcome(cause=Cause.LEASE_LOST, detail=detail)))


class Ledger(Protocol):
    """What must survive the parent.

    Every method may raise `WorldError(DISK_FULL | STORE_UNAVAILABLE)` when the medium does not answer;
    then nothing was written.
    """

    def claim(self, document: Document, *, holder: Holder, now: datetime, lease_s: float) -> Claim:
        """Register `document` if it is new, and mark an attempt if nobody holds it.

        One conditional write. A lease that has run out is taken over, and its attempt ends with `overtaken`. `now` is
        the caller's wall clock, which is shown and stored; whether a lease has run out, a ledger's own clock says.
        Raises `DocumentError(MALFORMED_MESSAGE)` when the id is already that of another URI.
        """
        ...

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """Move the lease's end to `now + lease_s`. Raises `LeaseLostError` like `check`.

        A lease that ran out is renewed all the same while nobody has taken it over.
        """
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

    def excuse(self, attempt: Attempt) -> None:
        """The holder of `attempt` lives: where it was taken over, it was silent and not dead, and costs nothing.

        Nothing where it was not taken over, and where the document was reopened since.
        """
        ...

    def settle(self, attempt: Attempt, settled: Settled) -> None:
        """End the attempt and make `settled` the document's last word; the same again is harmless.

        "The same" is equal but for `settled_at`; the first instant stays. Raises `LeaseLostError` when a newer
        attempt exists, when this one has ended without settling, or when the document was settled otherwise.
        """
        ...

    def break_leases(self, *, host: str, invocation: str, now: datetime) -> int:
        """Let every running lease of `host` that is not of `invocation` run out now; returns how many.

        Only for a parent that holds the host's instance lock, and so knows that the others are dead.
        """
        ...

    def reopen(self, document_id: str) -> bool:
        """Take back a settled state, so that the document can be claimed again; False when it was not settled.

        Numbering goes on, so an old holder stays stale; the next claim's history begins afresh, so old failures do
        not count against the new tries. `attempts` still tells all of them.
        """
        ...

    def document(self, document_id: str) -> Document | None:
        """What was registered under this id."""
        ...

    def find(self, wanted: str) -> Sequence[Document]:
        """Documents with this id; else those with this URI; else those whose id begins so (at most 20), by id."""
        ...

    def attempts(self, document_id: str) -> Sequence[Attempt]:
        """All attempts with their outcomes, oldest first."""
        ...

    def settled(self, document_id: str) -> Settled | None:
        """The terminal record, if there is one."""
        ...

    def running(self) -> Sequence[Attempt]:
        """The newest attempt of each unsettled document, where it has no end; oldest first, whoever holds it.

        An attempt that was taken over is not among them, and one whose lease ran out is.
        """
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
