"""A calibration as it goes: whose turn it is, what is given up, and when it ends. Time is virtual; nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.calibrate import Calibration, check_target, write
from daemon.calibrate_run import Cut, Refused, Stop
from daemon.calibration import ROUNDS, Combination, Plan, Run, Turn
from daemon.errors import ConfigurationError, EngineError
from tests.fakes.clock import FakeClock

ONE = Combination(workers=1, threads=1, pages_per_child=40)
TWO = Combination(workers=2, threads=1, pages_per_child=40)
THREADS = Combination(workers=1, threads=2, pages_per_child=40)
LOAD_S = 5.0
DOCUMENTS = 60


class Host:
    """How long each combination takes here, in s; it is cut off as a real turn is."""

    def __init__(self, takes_s: dict[Combination, float]) -> None:
        self.takes_s = takes_s
        self.clock = FakeClock()
        self.stop = Stop()
        #: What becomes of a turn, instead of a run.
        self.instead: Callable[[Turn], Refused | None] = lambda _turn: None
        self.turns: list[Turn] = []

    def take(self, turn: Turn, within_s: float, deadline: float) -> Run | Cut | Refused:
        """One turn."""
        self.turns.append(turn)
        if refused := self.instead(turn):
            return refused
        self.clock.advance(LOAD_S)
        needs_s = self.takes_s.get(turn.combination, 10.0)
        given_s = max(0.0, min(within_s, deadline - self.clock.monotonic()))
        if self.stop.asked or needs_s > given_s:
            self.clock.advance(min(needs_s, given_s))
            return Cut(documents=int(DOCUMENTS * given_s / needs_s), of=DOCUMENTS)
        self.clock.advance(needs_s)
        return Run(
            turn=turn,
            documents=DOCUMENTS,
            failed=0,
            pages=DOCUMENTS,
            elapsed_s=needs_s,
            peak_memory_bytes=1,
            largest_child_bytes=1,
            starved=0,
            spawned=False,
        )

    def calibration(self, *, seconds: float = 10_000.0, planned: tuple[Combination, ...] = ()) -> Calibration:
        """One with the combinations that this host knows."""
        return Calibration(
            Plan(combinations=planned or tuple(self.takes_s), refused={}),
            self.take,
            memory_bytes=100,
            pages_per_child=40,
            rounds=ROUNDS,
            seconds=seconds,
            clock=self.clock,
            stop=self.stop,
        )


def test_all_rounds() -> None:
    """With time enough everything has all its turns, and the faster one is recommended."""
    host = Host({TWO: 30.0, ONE: 60.0})
    going = host.calibration()
    going.go(lambda: 1)
    assert len(host.turns) == 2 * ROUNDS
    assert {run.turn for run in going.runs} == set(host.turns)
    choice = going.choice()
    assert choice is not None
    assert choice.figures.combination == TWO


def test_what_has_lost_is_given_up() -> None:
    """Three times as long as the fastest: stopped there, said so, and not tried again."""
    host = Host({TWO: 30.0, THREADS: 1000.0})
    going = host.calibration()
    going.go(lambda: 1)
    assert [turn.combination for turn in host.turns].count(THREADS) == 1
    assert going.why_not[THREADS] == "stopped: it took 3 times as long as the fastest when 5 of 60 documents had ended"
    assert host.clock.monotonic() - 1000.0 == pytest.approx((ROUNDS + 1) * LOAD_S + ROUNDS * 30 + 90)


def test_the_time_is_over() -> None:
    """What had no time is said; what would not end is not begun again; what is known is used."""
    host = Host({TWO: 30.0, ONE: 60.0, THREADS: 80.0})
    going = host.calibration(seconds=140.0)
    going.go(lambda: 1)
    assert host.clock.monotonic() - 1000.0 <= 140.0
    assert {run.turn.combination for run in going.runs} == {TWO, ONE}
    assert going.why_not[THREADS] == "not measured: the time was over when 26 of 60 documents had ended"
    assert going.choice() is not None


def test_a_short_rest_is_used() -> None:
    """A turn that would not end is left out, and a shorter one still has its turn."""
    host = Host({TWO: 30.0, ONE: 60.0})
    going = host.calibration(seconds=(35.0 + 65.0) + 60.0)
    going.go(lambda: 1)
    assert [run.turn.combination for run in going.runs] == [TWO, ONE, TWO]
    assert going.why_not == {}


def test_slices_are_added_after_the_first_round() -> None:
    """Only then it is known how long the documents are; of the best so far, and in each round from the first."""
    host = Host({ONE: 60.0, TWO: 30.0})
    going = host.calibration()
    going.go(lambda: 50)
    added = [each for each in going.planned if each.pages_per_child != 40]
    assert [(each.workers, each.pages_per_child) for each in added] == [(2, 10), (2, 20), (2, 80)]
    assert [turn.round for turn in host.turns[2:5]] == [1, 1, 1]
    assert len(host.turns) == 5 * ROUNDS


def test_a_combination_that_does_not_run() -> None:
    """It is shown with the reason, and the others are measured."""
    host = Host({TWO: 30.0, THREADS: 30.0})
    error = EngineError("no threads here")
    host.instead = lambda turn: Refused(error=error) if turn.combination == THREADS else None
    going = host.calibration()
    going.go(lambda: 1)
    assert going.why_not == {THREADS: "does not run here: no threads here"}
    assert [turn.combination for turn in host.turns].count(THREADS) == 1
    assert {run.turn.combination for run in going.runs} == {TWO}


def test_a_host_on_which_nothing_runs() -> None:
    """The first reason is the command's, with its own exit status."""
    host = Host({TWO: 30.0, ONE: 30.0})
    host.instead = lambda turn: Refused(error=EngineError(f"broken with {turn.combination.workers}"))
    with pytest.raises(EngineError, match="broken with 2"):
        host.calibration().go(lambda: 1)


def test_an_interruption() -> None:
    """No turn begins after it, the turn that was cut is not blamed on the combination, and nothing is recommended."""
    host = Host({TWO: 30.0, ONE: 60.0})
    going = host.calibration()

    def interrupt(turn: Turn) -> None:
        if turn.combination == ONE:
            host.stop.ask()

    host.instead = interrupt
    going.go(lambda: 1)
    assert [turn.combination for turn in host.turns] == [TWO, ONE]
    assert len(going.runs) == 1
    assert going.why_not == {}
    assert going.choice() is None


def test_a_file_that_is_there(tmp_path: Path) -> None:
    """Refused before anything is measured, and again when it came meanwhile; replaced only when asked to."""
    out = tmp_path / "calibrated.toml"
    check_target(out, force=False)
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="it exists"):
        check_target(out, force=False)
    with pytest.raises(ConfigurationError, match="cannot write"):
        write(out, "new", force=False)
    assert out.read_text(encoding="utf-8") == "mine"
    check_target(out, force=True)
    write(out, "new", force=True)
    assert out.read_text(encoding="utf-8") == "new"
    for nowhere in (tmp_path, tmp_path / "absent" / "file"):
        with pytest.raises(ConfigurationError, match="folder that exists"):
            check_target(nowhere, force=True)
