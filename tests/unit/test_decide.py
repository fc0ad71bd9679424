"""The ladder is total, bounded, and forgets no cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.decide import (
    Complete,
    Convert,
    DeadLetter,
    Pages,
    Release,
    Rules,
    Step,
    after_conversion,
    carried_over,
    counted,
    first_step,
    next_step,
    release_delay_s,
)
from daemon.model import (
    PERMANENT_CAUSES,
    WORLD_CAUSES,
    Attempt,
    Cause,
    Holder,
    Outcome,
    PageMode,
    PageReport,
    PageState,
    Plan,
    Stage,
)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HERE = Holder(host="here", boot_id="boot-2", invocation="now", pid=2)


RULES = Rules(max_page_crashes=10, pages_per_child=40)


def after(outcomes: list[Outcome], *, ocr: bool = True) -> Step:
    """The next step when nothing is known of the pages."""
    return next_step(outcomes, pages=Pages(), ocr=ocr, rules=RULES)


def first(history: list[Attempt]) -> Step:
    """The first step of a new attempt, three being allowed."""
    return first_step(history, now=HERE, pages=Pages(), ocr=True, rules=RULES, max_attempts=3)


def plan(mode: PageMode) -> Plan:
    """Every page in this mode, in slices."""
    return Plan(default=mode, most_pages=40)


def outcome(cause: Cause, *, ocr: bool = True, child: int = 1) -> Outcome:
    """An outcome whose detail names its cause."""
    return Outcome(cause=cause, detail=f"it was {cause}", ocr=ocr, child=child)


def attempt(
    *outcomes: Outcome, ended: bool = True, boot: str = "boot-2", host: str = "here", number: int = 1
) -> Attempt:
    """An earlier attempt; without an end, its parent died."""
    return Attempt(
        document_id="d",
        number=number,
        holder=Holder(host=host, boot_id=boot, invocation="before", pid=1),
        started_at=NOON,
        lease_until=NOON,
        ended_at=NOON if ended else None,
        outcomes=outcomes,
    )


@given(st.lists(st.builds(outcome, st.sampled_from(Cause), ocr=st.booleans()), max_size=5), st.booleans())
def test_every_history_has_a_next_step(outcomes: list[Outcome], ocr: bool) -> None:  # noqa: FBT001 - hypothesis fills it
    """No combination of causes leaves a document without an answer."""
    assert isinstance(after(outcomes, ocr=ocr), Convert | Complete | DeadLetter | Release)


@pytest.mark.parametrize("cause", [Cause.CRASHED, Cause.PROTOCOL, Cause.MEMORY, Cause.ENGINE_ERROR])
def test_a_crash_that_names_no_page_is_retried_once_without_ocr(cause: Cause) -> None:
    """Most documents have a text layer: the code that crashed must not cost it."""
    assert after([outcome(cause)]) == Convert(plan=plan(PageMode.WITHOUT_OCR))


def crashes(page: int, times: int) -> list[Outcome]:
    """The page ended so many children while its content was parsed."""
    return [replace(outcome(Cause.CRASHED), stage=Stage.PARSE, page=page) for _ in range(times)]


def test_a_document_of_lost_pages_needs_no_further_child() -> None:
    """Four rungs are tried, and the last crash is the cause: a child that may touch no page can only fail."""
    tried = crashes(1, 4)
    step = next_step(tried, pages=Pages(count=1), ocr=True, rules=RULES)
    detail = "; then ".join(["it was crashed"] * 4) + "; then nothing was left to try of any page"
    assert step == DeadLetter(cause=Cause.CRASHED, detail=detail)
    assert isinstance(next_step(tried[:3], pages=Pages(count=1), ocr=True, rules=RULES), Convert)


@pytest.mark.parametrize("count", [None, 2])
def test_a_page_that_may_still_have_text_is_converted(count: int | None) -> None:
    """One gap is no reason to give up the others, nor those whose number nobody knows."""
    step = next_step(crashes(1, 4), pages=Pages(count=count), ocr=True, rules=RULES)
    assert step == Convert(plan=Plan(default=PageMode.FULL, modes={1: PageMode.GAP}, most_pages=40))


def test_both_causes_are_in_the_dead_letter() -> None:
    """Whoever reads the dead letter sees the crash and what the retry came to, in that order."""
    step = after([outcome(Cause.CRASHED), outcome(Cause.EMPTY, ocr=False)])
    assert step == DeadLetter(cause=Cause.EMPTY, detail="it was crashed; then it was empty")


@pytest.mark.parametrize("cause", sorted(PERMANENT_CAUSES | {Cause.TIMEOUT, Cause.EMPTY}))
def test_what_would_end_the_same_way_is_not_retried(cause: Cause) -> None:
    """A timeout would be as slow again, an encrypted file as encrypted."""
    assert after([outcome(cause)]) == DeadLetter(cause=cause, detail=f"it was {cause}")


@pytest.mark.parametrize("cause", sorted(WORLD_CAUSES))
def test_the_worlds_failures_release(cause: Cause) -> None:
    """An outage must not push healthy documents into the dead-letter queue."""
    assert after([outcome(cause)]) == Release(cause=cause, detail=f"it was {cause}")


def test_a_sender_who_wants_no_ocr_gets_none() -> None:
    """The first child of such a document already runs without it."""
    assert after([], ocr=False) == Convert(plan=plan(PageMode.WITHOUT_OCR))


def test_deploying_often_does_not_push_a_document_out() -> None:
    """Twenty drained attempts count as none."""
    drained = [attempt(outcome(Cause.DRAINED), number=n) for n in range(1, 21)]
    assert counted(drained, now=HERE) == 0
    assert first(drained) == Convert(plan=plan(PageMode.FULL))


def test_a_rebooted_host_is_not_the_documents_fault() -> None:
    """An attempt that a reboot cut off is not counted, one whose parent alone died is, unless it was told to stop."""
    told, crash = outcome(Cause.DRAINED), outcome(Cause.CRASHED)
    assert counted([attempt(told, ended=False, boot="boot-2")], now=HERE) == 0
    assert counted([attempt(crash, told, ended=False, boot="boot-2")], now=HERE) == 0
    assert counted([attempt(told, crash, ended=False, boot="boot-2")], now=HERE) == 1
    assert counted([attempt(ended=False, boot="boot-1")], now=HERE) == 0
    assert counted([attempt(ended=False, boot="boot-2")], now=HERE) == 1


def test_a_reboot_of_another_host_is_seen_by_its_next_attempt() -> None:
    """The boot id of a host is known from the newest attempt that it made."""
    before = attempt(ended=False, host="there", boot="boot-7")
    after = attempt(outcome(Cause.DRAINED), host="there", boot="boot-8", number=2)
    assert counted([before, after], now=HERE) == 0
    assert counted([before], now=HERE) == 1


def test_what_killed_its_parents_is_given_up() -> None:
    """A document that takes the parent with it is dead-lettered without being opened again."""
    step = first([attempt(ended=False, number=n) for n in (1, 2, 3)])
    assert isinstance(step, DeadLetter)
    assert step.cause is Cause.PARENT_DIED


def test_a_crash_is_remembered_over_the_parents_death() -> None:
    """The parent died after the child's crash was recorded: the next attempt goes on without OCR."""
    history = [attempt(outcome(Cause.CRASHED), ended=False)]
    assert first(history) == Convert(plan=plan(PageMode.WITHOUT_OCR))


def test_failures_of_other_bytes_do_not_count() -> None:
    """A document that was replaced begins anew; a failure to fetch speaks of no bytes and counts for all."""
    missing = outcome(Cause.SOURCE_MISSING)
    old, new = (replace(outcome(Cause.CRASHED), fingerprint=print_) for print_ in ("old", "new"))
    history = [attempt(missing, old), attempt(new)]
    assert carried_over(history) == (missing, old, new)
    assert carried_over(history, fingerprint="new") == (missing, new)
    slow = replace(outcome(Cause.TIMEOUT), fingerprint="old")
    assert isinstance(first([attempt(slow)]), Convert), "only a fetch can tell whether it is still the same"
    assert isinstance(first([attempt(missing)]), DeadLetter)


def test_what_went_well_is_not_carried_over() -> None:
    """A conversion that was lost with its parent is simply done again."""
    assert carried_over([attempt(outcome(Cause.CONVERTED), outcome(Cause.STORE_UNAVAILABLE))]) == ()


@given(st.integers(-5, 10_000), st.floats(0, 43_200))
def test_a_release_waits_longer_each_time_and_never_too_long(receive_count: int, first_s: float) -> None:
    """Back-off has a bound, whatever SQS says the receive count is."""
    delay_s = release_delay_s(receive_count, first_s=first_s)
    assert min(first_s, 900) <= delay_s <= 900
    assert delay_s <= release_delay_s(receive_count + 1, first_s=first_s)


def test_lost_pages_and_the_policy() -> None:
    """A partial result is delivered, or dead-lettered with the numbers of the lost pages and what they did."""
    reports = [
        PageReport(page=1, state=PageState.TEXT, engine="fake"),
        PageReport(page=2, state=PageState.FAILED, engine=""),
    ]
    crashes = [outcome(Cause.CRASHED)]
    assert after_conversion(reports, crashes, pages=Pages(), deliver_partial=True) == Complete()
    assert after_conversion(reports[:1], crashes, pages=Pages(count=1), deliver_partial=False) == Complete()
    refused = after_conversion(reports, crashes, pages=Pages(), deliver_partial=False)
    assert isinstance(refused, DeadLetter)
    assert refused.cause is Cause.INCOMPLETE
    assert "it was crashed; then 1 of 2 pages were lost (2)" in refused.detail


def test_a_document_is_not_cut_short_in_silence() -> None:
    """The second parser sees one page of two: that is no result, whatever is delivered else."""
    reports = [PageReport(page=1, state=PageState.DEGRADED, engine="fake")]
    refused = after_conversion(reports, [], pages=Pages(count=2), deliver_partial=True)
    assert isinstance(refused, DeadLetter)
    assert refused.cause is Cause.INCOMPLETE
    assert "only 1 of 2 pages" in refused.detail
