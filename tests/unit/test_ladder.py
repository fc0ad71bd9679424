"""The page's ladder: total, only downwards, and bounded whatever a document does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.decide import Complete, Convert, DeadLetter, Pages, Rules, next_step
from daemon.ladder import Failure, Footing, Standing, failure_of, most_failures
from daemon.model import Cause, Outcome, PageMode, Plan, Stage

FAILING = [Cause.CRASHED, Cause.SCRATCH, Cause.PROTOCOL, Cause.MEMORY, Cause.STALLED, Cause.ENGINE_ERROR]
ON_A_PAGE = [Stage.PARSE, Stage.LAYOUT, Stage.OCR, Stage.TABLES]


def failed(cause: Cause, page: int | None = 7, stage: Stage = Stage.LAYOUT, pages: int | None = 18) -> Outcome:
    """A child that ended so, on that page."""
    return Outcome(cause=cause, detail=f"{cause} on {page}", child=1, page=page, stage=stage, pages=pages)


def steps_down(*failures: Outcome, ocr: bool = True) -> list[Footing]:
    """Where page 7 stands after each of `failures`."""
    standings = [
        Standing.after(failures[:count], ocr=ocr, max_page_crashes=100) for count in range(1, len(failures) + 1)
    ]
    return [standing.footings[7] for standing in standings]


def test_a_crash_in_ocr_costs_the_page_its_ocr() -> None:
    """And nothing else: it stays with the others, who keep theirs."""
    standing = Standing.after([failed(Cause.CRASHED, stage=Stage.OCR)], ocr=True, max_page_crashes=10)
    assert standing.mode_of(7) is PageMode.WITHOUT_OCR
    assert standing.mode_of(6) is standing.mode_of(8) is PageMode.FULL
    assert standing.apart == frozenset()


def test_a_page_that_crashes_whatever_is_tried() -> None:
    """Alone, then its text layer, then another parser, then a gap."""
    modes = steps_down(*[failed(Cause.CRASHED)] * 4)
    assert modes == [
        Footing(mode=PageMode.FULL, alone=True),
        Footing(mode=PageMode.TEXT_ONLY, alone=True),
        Footing(mode=PageMode.SECOND_PARSER, alone=True),
        Footing(mode=PageMode.GAP),
    ]


def test_a_page_that_eats_memory() -> None:
    """A lower pixel budget, alone; then as a crash."""
    modes = steps_down(*[failed(Cause.MEMORY)] * 3)
    assert [footing.mode for footing in modes] == [PageMode.REDUCED, PageMode.TEXT_ONLY, PageMode.SECOND_PARSER]
    assert all(footing.alone for footing in modes)


def test_a_page_that_stalls() -> None:
    """Without OCR, then without the usual parsers, then a gap: at most three silences."""
    modes = [footing.mode for footing in steps_down(*[failed(Cause.STALLED)] * 3)]
    assert modes == [PageMode.WITHOUT_OCR, PageMode.SECOND_PARSER, PageMode.GAP]


def test_a_document_that_cannot_be_opened() -> None:
    """Once without OCR, once by the other parser alone, and no more."""
    crash = failed(Cause.CRASHED, page=None, stage=Stage.OPEN, pages=None)
    standings = [Standing.after([crash] * count, ocr=True, max_page_crashes=10) for count in (1, 2, 3)]
    assert [standing.default for standing in standings[:2]] == [PageMode.WITHOUT_OCR, PageMode.SECOND_PARSER]
    assert standings[2].given_up


def test_a_preview_that_crashes_costs_itself() -> None:
    """Side information never costs a page, although it names one."""
    standing = Standing.after([failed(Cause.CRASHED, page=1, stage=Stage.PREVIEW)], ocr=True, max_page_crashes=10)
    assert not standing.preview
    assert not standing.footings
    assert not standing.given_up


def test_an_assembly_that_crashes_is_tried_once_more() -> None:
    """Nothing of a page is at fault; a second time is the end."""
    crash = failed(Cause.CRASHED, page=None, stage=Stage.ASSEMBLE)
    assert not Standing.after([crash], ocr=True, max_page_crashes=10).given_up
    assert Standing.after([crash, crash], ocr=True, max_page_crashes=10).given_up


def test_too_many_pages_cost_the_rest_its_ocr_once() -> None:
    """A document full of traps is not climbed down page by page for ever."""
    traps = [failed(Cause.CRASHED, page=page) for page in range(1, 9)]
    standing = Standing.after(traps[:4], ocr=True, max_page_crashes=3)
    assert standing.default is PageMode.WITHOUT_OCR
    assert standing.reduced
    assert Standing.after(traps, ocr=True, max_page_crashes=3).given_up


def test_only_downwards() -> None:
    """From every footing that a page can reach, every failure has an answer and leads lower, but from the gap."""
    failures = [
        failed(Cause.CRASHED),
        failed(Cause.CRASHED, stage=Stage.OCR),
        failed(Cause.MEMORY),
        failed(Cause.STALLED),
    ]
    assert {failure_of(outcome) for outcome in failures} == set(Failure)
    reached = {Footing(mode=PageMode.FULL), Footing(mode=PageMode.WITHOUT_OCR), Footing(mode=PageMode.SECOND_PARSER)}
    frontier = list(reached)
    while frontier:
        footing = frontier.pop()
        for outcome in failures:
            standing = Standing(default=PageMode.FULL, footings={7: footing})
            moved = standing.moved(outcome, max_page_crashes=100).footings[7]
            assert moved.rank > footing.rank or moved == footing == Footing(mode=PageMode.GAP)
            frontier += {moved} - reached
            reached.add(moved)
    assert Footing(mode=PageMode.GAP) in reached


class Adversary:
    """A document of `pages` pages that fails whenever and however a seed says; a child keeps what it finished."""

    def __init__(self, pages: int, seed: int, wickedness: float) -> None:
        self.pages = pages
        self._random = random.Random(seed)
        self._wickedness = wickedness

    def live(self, plan: Plan, finished: set[int]) -> Outcome:
        """One child: moves `finished` on, and ends in some way."""
        chance = self._random
        if chance.random() < self._wickedness / 4:
            return failed(chance.choice(FAILING), page=None, stage=Stage.OPEN, pages=None)
        wanted = [page for page in range(1, self.pages + 1) if page not in finished and plan.wants(page)]
        for page in wanted[: plan.most_pages]:
            if plan.mode_of(page) is not PageMode.GAP and chance.random() < self._wickedness:
                return failed(chance.choice(FAILING), page=page, stage=chance.choice(ON_A_PAGE), pages=self.pages)
            finished.add(page)
        if len(finished) < self.pages:
            assert wanted, "a child is never started for nothing"
            return Outcome(cause=Cause.SLICED, detail="", child=1, pages=self.pages)
        if chance.random() < self._wickedness:
            stage = chance.choice([Stage.ASSEMBLE, Stage.EXPORT, Stage.PREVIEW])
            return failed(chance.choice(FAILING), page=1 if stage is Stage.PREVIEW else None, stage=stage)
        return Outcome(cause=Cause.CONVERTED, detail="", child=1, pages=self.pages)


@given(
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]),
    st.integers(1, 6),
    st.integers(1, 12),
)
def test_whatever_a_document_does_it_ends(
    pages: int, seed: int, wickedness: float, max_page_crashes: int, pages_per_child: int
) -> None:
    """The number of children has an upper limit that depends on nothing but its pages and the settings."""
    rules = Rules(max_page_crashes=max_page_crashes, pages_per_child=pages_per_child)
    document, finished, outcomes = Adversary(pages, seed, wickedness), set[int](), list[Outcome]()
    failures = most_failures(max_page_crashes)
    # Slices, one child for each page that stands apart, and one for each failure.
    limit = -(-pages // pages_per_child) + 2 * failures + 1
    count: int | None = None
    for _ in range(limit + 1):
        known = Pages(finished=frozenset(finished), count=count)
        step = next_step(outcomes, pages=known, ocr=True, rules=rules)
        if not isinstance(step, Convert):
            break
        outcomes.append(document.live(step.plan, finished))
        count = pages if outcomes[-1].pages else count
    else:
        pytest.fail(f"more than {limit} children")
    assert isinstance(step, Complete | DeadLetter)
    assert sum(failure_of(outcome) is not None for outcome in outcomes) <= failures
    if isinstance(step, Complete):
        assert len(finished) == pages


def test_what_stands_apart_waits_for_the_others() -> None:
    """Ordinary pages first; then each of the others alone, with nobody to lose."""
    outcomes = [failed(Cause.CRASHED, page=7), failed(Cause.CRASHED, page=9)]
    rules = Rules(max_page_crashes=10, pages_per_child=5)
    step = next_step(outcomes, pages=Pages(finished=frozenset(range(1, 7)), count=18), ocr=True, rules=rules)
    assert isinstance(step, Convert)
    assert step.plan.skip == {7, 9}
    assert step.plan.only is None
    others = frozenset(range(1, 19)) - {7, 9}
    step = next_step(outcomes, pages=Pages(finished=others, count=18), ocr=True, rules=rules)
    assert isinstance(step, Convert)
    assert step.plan.only == 7
    step = next_step(outcomes, pages=Pages(finished=others | {7}, count=18), ocr=True, rules=rules)
    assert isinstance(step, Convert)
    assert step.plan.only == 9
