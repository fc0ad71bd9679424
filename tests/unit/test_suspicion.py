"""Whom to blame: a host, or its documents."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.causes import PERMANENT_CAUSES, WORLD_CAUSES
from daemon.model import Cause, Outcome, Stage
from daemon.suspicion import TROUBLE, Suspicion, letters_answer, pause_s

#: What can be seen: trouble of one of five documents, a clean one, a canary's end.
EVENTS = st.one_of(st.sampled_from(["a", "b", "c", "d", "e"]), st.sampled_from(["CLEAN", "PASSED", "FAILED"]))


def after(events: Sequence[str], window: int = 3) -> Suspicion:
    """Fold them."""
    suspicion = Suspicion(window=window)
    for event in events:
        match event:
            case "CLEAN":
                suspicion = suspicion.clean()
            case "PASSED":
                suspicion = suspicion.passed()
            case "FAILED":
                suspicion = suspicion.failed()
            case _:
                suspicion = suspicion.in_trouble(event)
    return suspicion


@pytest.mark.parametrize(
    ("events", "owes"),
    [
        ("", False),
        ("a b", False),
        ("a b c", True),
        ("a a a a a a", False),
        ("a b a b a b", False),
        ("a b CLEAN c", False),
        ("a b CLEAN c d e", True),
        ("a b c PASSED", False),
        ("a b c PASSED d e", False),
        ("a b c PASSED a b c", True),
        ("a b c d e", True),
    ],
)
def test_a_canary_is_owed(events: str, owes: bool) -> None:  # noqa: FBT001 - a table
    """By three different documents in a row, and by no single one, however often it is tried."""
    assert after(events.split()).owes_canary is owes


@pytest.mark.parametrize(
    ("events", "suspended", "told"),
    [
        ("a b c", False, False),
        ("FAILED", True, False),
        ("FAILED PASSED", False, False),
        ("FAILED FAILED", True, True),
        ("FAILED FAILED FAILED FAILED", True, True),
        ("FAILED CLEAN", True, False),
        ("FAILED PASSED a b c FAILED", True, True),
        ("FAILED PASSED CLEAN a b c FAILED", True, False),
        ("FAILED FAILED PASSED CLEAN", False, False),
    ],
)
def test_a_host_is_suspended_and_told(events: str, suspended: bool, told: bool) -> None:  # noqa: FBT001 - a table
    """By its canary alone; a person is told of the second failure in a row, and of one spell only once."""
    seen = after(events.split())
    assert (seen.suspended, seen.told) == (suspended, told)


@given(st.lists(EVENTS, max_size=60), st.integers(1, 6))
def test_only_a_canary_suspends_and_only_a_canary_ends_it(events: list[str], window: int) -> None:
    """Whatever documents do, the host is suspended exactly when its last canary failed."""
    canaries = [event for event in events if event in {"PASSED", "FAILED"}]
    seen = after(events, window)
    assert seen.suspended is (canaries[-1:] == ["FAILED"])
    assert len(seen.troubled) <= window
    assert len(set(seen.troubled)) == len(seen.troubled)


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "PASSED"]), max_size=200))
def test_poison_documents_never_stop_a_host_whose_canary_converts(events: list[str]) -> None:
    """A hundred guilty documents cost canaries and nothing else."""
    for length in range(len(events) + 1):
        seen = after(events[:length])
        assert not seen.suspended
        assert not seen.told


@given(st.lists(EVENTS, max_size=60))
def test_a_person_is_told_once_for_a_spell(events: list[str]) -> None:
    """Between two clean documents the flag rises at most once, however often the host recovers and relapses."""
    rises, before = 0, Suspicion(window=3)
    for length, event in enumerate(events, start=1):
        now = after(events[:length])
        if event == "CLEAN" and not before.suspended:
            rises = 0
        rises += now.told and not before.told
        assert rises <= 1
        before = now


@pytest.mark.parametrize("stage", [*Stage, None])
@pytest.mark.parametrize("cause", sorted(TROUBLE))
def test_letters_answer_for_what_came_before_pictures(cause: Cause, stage: Stage | None) -> None:
    """A want of memory or of time, and whatever ends a child while it reads, or nobody knows where, asks for more."""
    by_code = cause in {Cause.CRASHED, Cause.PROTOCOL, Cause.STALLED, Cause.ENGINE_ERROR}
    early = stage in {Stage.START, Stage.OPEN, Stage.PARSE}
    assert letters_answer(Outcome(cause=cause, detail="it ended", stage=stage)) is (by_code and early)


def test_pauses_grow_and_are_bounded() -> None:
    """The second canary comes at once, in a fresh zygote; then they are 5 s, 10 s, 20 s … apart, 5 min at most."""
    pauses = [pause_s(failures, first_s=5, longest_s=300) for failures in (1, 2, 3, 4, 8, 9, 10**9)]
    assert pauses == [0, 5, 10, 20, 300, 300, 300]


def test_refusals_are_no_trouble() -> None:
    """A hundred encrypted files in a row, or a source that does not answer, say nothing about a host."""
    assert not TROUBLE & PERMANENT_CAUSES
    assert {Cause.ZYGOTE_DIED} == TROUBLE & WORLD_CAUSES
