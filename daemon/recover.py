"""What becomes of a dead letter: back to the queue, set aside, removed, or left for the next sweep.

Core in kind: no I/O, no clock. Rules: a letter speaks of one attempt; where the ledger has gone on, the letter is old
and removed; where the document has not ended, its message still exists and the letter is left alone. A document is
reclaimed `max_reclaims` times in all, then parked; what no retry can cure is parked at once, and so is a document that
killed its parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from daemon.model import PERMANENT_CAUSES, Attempt, Cause, Document, Outcome, ResultStatus
from daemon.queue import MAX_DELAY_S, DeadMessage
from daemon.recovery import Parked, Standing

#: Never reclaimed: the first ones because nothing changes, the last one because each try may cost a parent.
PARKED_AT_ONCE = PERMANENT_CAUSES | {Cause.PARENT_DIED}
#: Each delay is so many times the one before.
_GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """Count it, reopen it, send it, remove the letter."""

    document: Document
    #: What is reclaimed; the same key is counted once.
    key: str
    #: The attempt that gave it up; None for a message that SQS moved.
    attempt: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Write it down, remove the letter."""

    parked: Parked


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Remove the letter: what it speaks of is past."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Touch nothing; the letter comes back."""

    reason: str


Action = Reclaim | Park | Discard | Leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What a decision needs beside the letter and the ledger."""

    at: datetime
    #: The engine that is installed here.
    build: str
    max_reclaims: int


def reclaim_delay_s(number: int, *, first_s: float) -> float:
    """Seconds that the reclaim of this number waits in the queue."""
    return float(min(MAX_DELAY_S, first_s * _GROWTH ** min(number - 1, 20)))


def unreadable(letter: DeadMessage, detail: str, *, now: Now) -> Park:
    """A message from which no document can be read, parked under its own id."""
    return Park(
        parked=Parked(
            key=letter.message_id,
            body=letter.body,
            cause=Cause.MALFORMED_MESSAGE,
            detail=detail,
            since=now.at,
        )
    )


def judged(letter: DeadMessage, document: Document | None, standing: Standing, *, body: str, now: Now) -> Action:
    """Our own letter about a document; `document` is what the ledger or the body says it is, `body` asks for it."""
    assert letter.cause is not None, "a letter of ours has a cause"
    assert letter.document_id is not None, "one without a document is unreadable"
    if standing.parked is not None:
        return _beside(standing.parked)
    if standing.document is not None and standing.settled is None:
        return _judged_open(letter, standing.document, standing)
    settled = standing.settled
    if settled is not None and (settled.attempt != letter.attempts or settled.status is not ResultStatus.FAILED):
        return Discard(reason=f"attempt {settled.attempt} has ended it")
    if letter.cause in PARKED_AT_ONCE or standing.spent >= now.max_reclaims or document is None:
        return Park(parked=_parked(letter, letter.cause, letter.document_id, document, standing, body=body, now=now))
    if settled is None:  # another ledger's, or one from before this ledger: numbers of attempts mean nothing here
        return Reclaim(document=document, key=_moved_key(letter), attempt=None)
    return Reclaim(document=document, key=_key(letter), attempt=letter.attempts)


def _judged_open(letter: DeadMessage, document: Document, standing: Standing) -> Action:
    """Not settled: reclaimed by this very letter and perhaps not sent yet, tried again since, or not settled yet."""
    if _moved_key(letter) in standing.reclaims:
        return Reclaim(document=document, key=_moved_key(letter), attempt=None)
    if letter.attempts == standing.reopened_after and _key(letter) in standing.reclaims:
        return Reclaim(document=document, key=_key(letter), attempt=letter.attempts)
    if letter.attempts <= standing.reopened_after:
        return Discard(reason="it was tried again since")
    return Leave(reason="not settled: its message still exists")


def _key(letter: DeadMessage) -> str:
    return f"attempt:{letter.attempts}"


def _moved_key(letter: DeadMessage) -> str:
    return f"message:{letter.message_id}"


def judged_moved(letter: DeadMessage, document: Document, standing: Standing, *, body: str, now: Now) -> Action:
    """A document of a message that SQS moved by itself, or a person put there."""
    key = _moved_key(letter)
    if standing.parked is not None:
        return _beside(standing.parked)
    if standing.settled is not None:
        return Discard(reason=f"attempt {standing.settled.attempt} has ended it")
    newest = standing.attempts[-1] if standing.attempts else None
    if newest is not None and newest.ended_at is None and newest.lease_until > now.at:
        return Leave(reason=f"attempt {newest.number} works on it")
    if key not in standing.reclaims and standing.spent >= now.max_reclaims:
        parked = _parked(letter, Cause.REDRIVEN, document.id, document, standing, body=body, now=now)
        return Park(parked=parked)
    return Reclaim(document=document, key=key, attempt=None)


def _beside(parked: Parked) -> Discard | Leave:
    if parked.retrying:
        return Leave(reason="it is on its way back to the queue")
    return Discard(reason="it is parked")


def _parked(
    letter: DeadMessage,
    cause: Cause,
    document_id: str,
    document: Document | None,
    standing: Standing,
    *,
    body: str,
    now: Now,
) -> Parked:
    died_of = _last(standing.attempts, cause)
    moved = "SQS moved its message to the dead letters: it was received too often, and nobody ended it"
    return Parked(
        key=document_id,
        document_id=document_id,
        uri=None if document is None else document.uri,
        body=body,
        cause=cause,
        signal=None if died_of is None else died_of.signal,
        stage=None if died_of is None else died_of.stage,
        build=now.build,
        detail=moved if cause is Cause.REDRIVEN else letter.detail,
        attempts=len(standing.attempts) or letter.attempts,
        reclaims=standing.spent,
        since=now.at,
    )


def _last(attempts: Sequence[Attempt], cause: Cause) -> Outcome | None:
    """The newest outcome of this cause; else the newest that a child died of."""
    newest_first = [outcome for attempt in reversed(attempts) for outcome in reversed(attempt.outcomes)]
    same = [outcome for outcome in newest_first if outcome.cause is cause]
    return next(iter(same or [outcome for outcome in newest_first if outcome.signal is not None]), None)
