"""The ladder and the settlement table: what is done next, from what has happened so far.

Core. One table row per cause, no I/O, no clock, never inside `except`. `next_step` is total over every
cause and bounded: a document's life has at most `len(Rung)` children whose failure was its own doing,
whatever its parents suffer in between, because failures recorded by earlier attempts count here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from daemon.model import WORLD_CAUSES, Attempt, Cause, Holder, Outcome


class Rung(StrEnum):
    """How much of the engine the next child may use."""

    FULL = "full"
    WITHOUT_OCR = "without_ocr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert:
    """Start a fresh child on this rung."""

    rung: Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Publish what the last child made, settle, delete the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Send it to the dead-letter queue, settle as failed, delete the message."""

    cause: Cause
    #: Every failure in order, one sentence each.
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give the message back; the attempt is not counted."""

    cause: Cause
    detail: str


Step = Convert | Complete | DeadLetter | Release


class _Answer(StrEnum):
    COMPLETE = "complete"
    #: A fresh child with OCR off.
    RETRY = "retry"
    GIVE_UP = "give_up"
    RELEASE = "release"


#: (what is done when OCR was on, what is done when it was off). A crash gets exactly one retry, with OCR off:
#: most documents have a text layer, and the code that crashed does not run again. A timeout gets none: it would be
#: as slow again, and hold the slot twice as long.
_LADDER: Mapping[Cause, tuple[_Answer, _Answer]] = {
    Cause.CONVERTED: (_Answer.COMPLETE, _Answer.COMPLETE),
    Cause.CRASHED: (_Answer.RETRY, _Answer.GIVE_UP),
    Cause.PROTOCOL: (_Answer.RETRY, _Answer.GIVE_UP),
    Cause.MEMORY: (_Answer.RETRY, _Answer.GIVE_UP),
    Cause.ENGINE_ERROR: (_Answer.RETRY, _Answer.GIVE_UP),
    Cause.TIMEOUT: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.EMPTY: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.PARENT_DIED: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.ENCRYPTED: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.NOT_A_DOCUMENT: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.NO_PAGES: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.TOO_LARGE: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.MALFORMED: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.MALFORMED_MESSAGE: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.SOURCE_MISSING: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.SOURCE_REFUSED: (_Answer.GIVE_UP, _Answer.GIVE_UP),
    Cause.SOURCE_UNAVAILABLE: (_Answer.RELEASE, _Answer.RELEASE),
    Cause.STORE_UNAVAILABLE: (_Answer.RELEASE, _Answer.RELEASE),
    Cause.QUEUE_UNAVAILABLE: (_Answer.RELEASE, _Answer.RELEASE),
    Cause.DISK_FULL: (_Answer.RELEASE, _Answer.RELEASE),
    Cause.LEASE_LOST: (_Answer.RELEASE, _Answer.RELEASE),
    Cause.DRAINED: (_Answer.RELEASE, _Answer.RELEASE),
    Cause.ZYGOTE_DIED: (_Answer.RELEASE, _Answer.RELEASE),
}


def next_step(outcomes: Sequence[Outcome], *, ocr: bool) -> Step:
    """What to do after `outcomes`, oldest first, of one attempt; `ocr` is what the sender asked for.

    No outcomes yet: the first child.
    """
    if not outcomes:
        return Convert(rung=Rung.FULL if ocr else Rung.WITHOUT_OCR)
    last = outcomes[-1]
    with_ocr, without_ocr = _LADDER[last.cause]
    match with_ocr if last.ocr else without_ocr:
        case _Answer.COMPLETE:
            return Complete()
        case _Answer.RETRY:
            return Convert(rung=Rung.WITHOUT_OCR)
        case _Answer.GIVE_UP:
            return DeadLetter(cause=last.cause, detail=history_of(outcomes))
        case _Answer.RELEASE:
            return Release(cause=last.cause, detail=last.detail)


def history_of(outcomes: Sequence[Outcome]) -> str:
    """Every failure in order, one sentence each, so that no cause hides behind the last one."""
    return "; then ".join(outcome.detail for outcome in outcomes if outcome.cause is not Cause.CONVERTED)


def carried_over(history: Sequence[Attempt]) -> tuple[Outcome, ...]:
    """Failures of earlier attempts that were the document's own doing; a new attempt goes on from there.

    Without this, a document that crashes its child and whose parent then dies would be given its
    first rung again and again. What went well, or was the world's fault, is simply done again.
    """
    return tuple(
        outcome
        for attempt in history
        for outcome in attempt.outcomes
        if outcome.cause is not Cause.CONVERTED and outcome.cause not in WORLD_CAUSES
    )


def counted(history: Sequence[Attempt], *, now: Holder) -> int:
    """How many of `history` count against the limit.

    Not counted: an attempt that ended for a reason of the world, and one that was cut off because its
    host rebooted (seen by its boot id, when it ran on the host that asks or a later attempt of the same
    host has another one). Counted: one whose parent died with the host still up.
    """
    boots = {attempt.holder.host: attempt.holder.boot_id for attempt in history} | {now.host: now.boot_id}
    return sum(_counts(attempt, boots[attempt.holder.host]) for attempt in history)


def _counts(attempt: Attempt, boot_id_now: str) -> bool:
    if attempt.ended_at is not None:
        return attempt.last_cause is not None and attempt.last_cause not in WORLD_CAUSES
    return attempt.holder.boot_id == boot_id_now


def first_step(history: Sequence[Attempt], *, now: Holder, ocr: bool, max_attempts: int) -> Step:
    """What a new attempt begins with, from the attempts before it.

    After `max_attempts` counted ones the document is not tried again: nobody saw what it did to its
    parents, so it is treated as what killed them.
    """
    spent = counted(history, now=now)
    if spent >= max_attempts:
        detail = f"{spent} attempts ended without a result and without an end: its parent died each time"
        earlier = history_of(carried_over(history))
        return DeadLetter(cause=Cause.PARENT_DIED, detail=f"{earlier}; then {detail}" if earlier else detail)
    return next_step(carried_over(history), ocr=ocr)


def release_delay_s(receive_count: int, *, first_s: float, longest_s: float = 900.0) -> float:
    """Seconds until a released message may come back: doubled with each delivery, up to `longest_s`."""
    doublings = min(max(receive_count - 1, 0), 30)
    return float(min(longest_s, first_s * 2**doublings))
