"""A document whose bytes change between two deliveries keeps nothing of what the old ones did."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from daemon.model import PageMode, ResultStatus
from tests.fakes.edges import Countdown, DiedError
from tests.shell.test_order import CASES, World

URI = "s3://bucket/long.pdf"


def dies_after_its_first_failure(folder: Path) -> World:
    """Page 3 of 5 has killed a child; the parent has written it down, and dies of something else."""
    for nth in range(1, 60):
        world = World("real", folder / str(nth), CASES["five_pages_one_trap"])
        countdown = Countdown(nth, DiedError, after=True)
        with contextlib.suppress(DiedError):
            world.live("first", countdown)
        outcomes = world.ledger.attempts("long")[0].outcomes
        if countdown.happened == "ledger.record_outcome" and outcomes[-1].page == 3:
            world.next_parent("second")
            return world
        world.ledger.close()
    raise AssertionError("page 3 fails")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One parent has died."""
    for nth in range(1, 60):
        (tmp_path / str(nth)).mkdir()
    return dies_after_its_first_failure(tmp_path)


def test_the_same_bytes_go_on_where_they_were(world: World) -> None:
    """Pages 1 and 2 are kept, and page 3 is not tried again as it was."""
    before = len(world.converter.jobs)
    world.live("second", Countdown(0, DiedError, after=False))
    assert world.converter.jobs[before].plan.modes.keys() == {3}
    world.check()
    world.ledger.close()


@pytest.mark.parametrize("pages", [2, 5, 9])
def test_other_bytes_begin_at_the_first_rung(world: World, pages: int) -> None:
    """Neither the failures nor the number of pages of the old bytes are held against the new ones."""
    before = len(world.converter.jobs)
    world.contents[URI] = b"replaced"
    world.converter.pages = {"long": pages}
    world.converter.traps = {}
    world.converter.converted.clear()
    world.live("second", Countdown(0, DiedError, after=False))
    settled = world.ledger.settled("long")
    assert settled is not None
    assert (settled.status, settled.pages) == (ResultStatus.CONVERTED, pages)
    assert world.converter.jobs[before].plan.modes == {}
    assert {job.plan.default for job in world.converter.jobs[before:]} == {PageMode.FULL}
    assert [page for _, page in world.converter.converted] == list(range(1, pages + 1))
    (first, second) = world.ledger.attempts("long")
    assert first.outcomes[-1].fingerprint != second.outcomes[-1].fingerprint != ""
    world.ledger.close()
