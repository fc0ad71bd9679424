"""What is done next with a document, from what has happened so far.

Core. One table row per cause, no I/O, no clock, never inside `except`. Failures of pages are `ladder.py`'s; this joins
them with what the other causes lead to. `next_step` is total, and bounded by the ladder: failures recorded by earlier
attempts count here too, whatever their parents suffered in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from daemon.ladder import Standing
from daemon.model import WORLD_CAUSES, Attempt, Cause, Holder, Outcome, PageReport, PageState, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert:
    """Start a fresh child with this plan."""

    plan: Plan


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
    #: Another child, as the ladder says.
    GO_ON = "go_on"
    GIVE_UP = "give_up"
    RELEASE = "release"


#: What a cause leads to. A timeout is given up: it would be as slow again, and hold its slot twice as long.
_ANSWERS: Mapping[Cause, _Answer] = {
    Cause.CONVERTED: _Answer.COMPLETE,
    Cause.SLICED: _Answer.GO_ON,
    Cause.CRASHED: _Answer.GO_ON,
    Cause.PROTOCOL: _Answer.GO_ON,
    Cause.MEMORY: _Answer.GO_ON,
    Cause.SCRATCH: _Answer.GO_ON,
    Cause.ENGINE_ERROR: _Answer.GO_ON,
    Cause.STALLED: _Answer.GO_ON,
    Cause.TIMEOUT: _Answer.GIVE_UP,
    Cause.EMPTY: _Answer.GIVE_UP,
    Cause.INCOMPLETE: _Answer.GIVE_UP,
    Cause.PARENT_DIED: _Answer.GIVE_UP,
    Cause.REDRIVEN: _Answer.GIVE_UP,
    Cause.ENCRYPTED: _Answer.GIVE_UP,
    Cause.NOT_A_DOCUMENT: _Answer.GIVE_UP,
    Cause.NO_PAGES: _Answer.GIVE_UP,
    Cause.TOO_LARGE: _Answer.GIVE_UP,
    Cause.MALFORMED: _Answer.GIVE_UP,
    Cause.MALFORMED_MESSAGE: _Answer.GIVE_UP,
    Cause.SOURCE_MISSING: _Answer.GIVE_UP,
    Cause.SOURCE_REFUSED: _Answer.GIVE_UP,
    Cause.SOURCE_UNAVAILABLE: _Answer.RELEASE,
    Cause.STORE_UNAVAILABLE: _Answer.RELEASE,
    Cause.QUEUE_UNAVAILABLE: _Answer.RELEASE,
    Cause.DISK_FULL: _Answer.RELEASE,
    Cause.LEASE_LOST: _Answer.RELEASE,
    Cause.DRAINED: _Answer.RELEASE,
    Cause.ZYGOTE_DIED: _Answer.RELEASE,
    Cause.POISON_HOST: _Answer.RELEASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings say about giving up."""

    max_page_crashes: int
    pages_per_child: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What is known of a document's pages."""

    #: Pages whose checkpoint is kept.
    finished: frozenset[int] = frozenset()
    #: How many there are; None until a child has opened the document.
    count: int | None = None

    @property
    def left(self) -> frozenset[int] | None:
        """Pages that are not finished; None while their number is unknown."""
        return None if self.count is None else frozenset(range(1, self.count + 1)) - self.finished


def next_step(outcomes: Sequence[Outcome], *, pages: Pages, ocr: bool, rules: Rules) -> Step:
    """What to do after `outcomes`, oldest first; `ocr` is what the sender asked for.

    No outcomes yet: the first child.
    """
    if outcomes:
        last = outcomes[-1]
        match _ANSWERS[last.cause]:
            case _Answer.COMPLETE:
                return Complete()
            case _Answer.GIVE_UP:
                return DeadLetter(cause=last.cause, detail=history_of(outcomes))
            case _Answer.RELEASE:
                return Release(cause=last.cause, detail=last.detail)
            case _Answer.GO_ON:
                pass
    standing = Standing.after(outcomes, ocr=ocr, max_page_crashes=rules.max_page_crashes)
    if standing.given_up:
        return DeadLetter(cause=outcomes[-1].cause, detail=history_of(outcomes))
    if pages.count and standing.leaves_nothing_of(pages.count):
        detail = f"{history_of(outcomes)}; then nothing was left to try of any page"
        return DeadLetter(cause=outcomes[-1].cause, detail=detail)
    return Convert(plan=plan_of(standing, pages, rules))


def plan_of(standing: Standing, pages: Pages, rules: Rules) -> Plan:
    """Ordinary pages first, in slices; then each page that stands apart, in a child of its own."""
    modes = {page: footing.mode for page, footing in standing.footings.items()}
    apart = standing.apart - pages.finished
    left = pages.left
    only = min(left) if left and left <= apart else None
    return Plan(
        default=standing.default,
        modes=modes,
        skip=frozenset() if only is not None else apart,
        only=only,
        most_pages=rules.pages_per_child,
        preview=standing.preview,
    )


def after_conversion(
    reports: Sequence[PageReport], outcomes: Sequence[Outcome], *, pages: Pages, deliver_partial: bool
) -> Complete | DeadLetter:
    """Whether what was made is published.

    Not when pages were lost and a partial result is not wanted; and never when it has fewer pages than the document
    had before: the second parser may see fewer, and a document is not cut short in silence.
    """
    lost = [str(report.page) for report in reports if report.state is PageState.FAILED]
    if pages.count is not None and len(reports) < pages.count:
        detail = f"only {len(reports)} of {pages.count} pages can be seen by the parser that did not die of it"
    elif lost and not deliver_partial:
        named = ", ".join(lost[:20])
        detail = f"{len(lost)} of {len(reports)} pages were lost ({named}), and partial results are not wanted"
    else:
        return Complete()
    earlier = history_of(outcomes)
    return DeadLetter(cause=Cause.INCOMPLETE, detail=f"{earlier}; then {detail}" if earlier else detail)


def history_of(outcomes: Sequence[Outcome]) -> str:
    """Every failure in order, one sentence each, so that no cause hides behind the last one."""
    return "; then ".join(o.detail for o in outcomes if o.cause not in {Cause.CONVERTED, Cause.SLICED})


def carried_over(history: Sequence[Attempt], *, fingerprint: str | None = None) -> tuple[Outcome, ...]:
    """Failures of earlier attempts that were the document's own doing; a new attempt goes on from there.

    Without this, a document that crashes its child and whose parent then dies would be given its
    first rung again and again. What went well, or was the world's fault, is simply done again; of an attempt on a
    host that could not convert its canary either, nothing is believed. That a parent died is counted by `counted`, and
    says nothing of a page.

    With the `fingerprint` of what was fetched: only failures of the same bytes, options and engine, and those that
    speak of no bytes. A document that was replaced, or an engine that was, begins at the first rung.
    """
    return tuple(
        outcome
        for attempt in history
        if attempt.last_cause is not Cause.POISON_HOST
        for outcome in attempt.outcomes
        if outcome.cause not in WORLD_CAUSES
        and outcome.cause not in {Cause.CONVERTED, Cause.SLICED, Cause.PARENT_DIED}
        and (fingerprint is None or outcome.fingerprint in {"", fingerprint})
    )


def counted(history: Sequence[Attempt], *, now: Holder) -> int:
    """How many of `history` count against the limit.

    Not counted: an attempt that ended for a reason of the world, one whose parent had been told to stop when it was cut
    off, and one that was cut off because its host rebooted (seen by its boot id, when it ran on the host that asks or a
    later attempt of the same host has another one). Counted: one whose parent died with the host still up;
    whoever took it over has ended it so.
    """
    boots = {attempt.holder.host: attempt.holder.boot_id for attempt in history} | {now.host: now.boot_id}
    return sum(_counts(attempt, boots[attempt.holder.host]) for attempt in history)


def _counts(attempt: Attempt, boot_id_now: str) -> bool:
    if attempt.ended_at is not None and attempt.last_cause is not Cause.PARENT_DIED:
        return attempt.last_cause is not None and attempt.last_cause not in WORLD_CAUSES
    told_to_stop = attempt.last_cause is Cause.DRAINED
    return attempt.holder.boot_id == boot_id_now and not told_to_stop


def first_step(
    history: Sequence[Attempt], *, now: Holder, pages: Pages, ocr: bool, rules: Rules, max_attempts: int
) -> Step:
    """What a new attempt begins with, before it has fetched anything; `Convert` stands for going on to fetch.

    What failed with other bytes must not decide, so only failures that speak of no bytes do. After `max_attempts`
    counted ones the document is not tried again: nobody saw what it did to its parents, so it is treated as what
    killed them.
    """
    spent = counted(history, now=now)
    if spent >= max_attempts:
        detail = f"{spent} attempts ended without a result and without an end: its parent died each time"
        earlier = history_of(carried_over(history))
        return DeadLetter(cause=Cause.PARENT_DIED, detail=f"{earlier}; then {detail}" if earlier else detail)
    return next_step(carried_over(history, fingerprint=""), pages=pages, ocr=ocr, rules=rules)


def release_delay_s(receive_count: int, *, first_s: float, longest_s: float = 900.0) -> float:
    """Seconds until a released message may come back: doubled with each delivery, up to `longest_s`."""
    doublings = min(max(receive_count - 1, 0), 30)
    return float(min(longest_s, first_s * 2**doublings))
