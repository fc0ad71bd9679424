"""The arithmetic of the benches: spreads, turns, ratios, and the shape of their JSON. Nothing is measured here."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from bench import overhead, throughput
from bench._measure import Cost, Doc, docs, in_turn, median, prepared, spread
from daemon.model import MediaType


def test_a_spread_is_the_median_and_the_middle_half() -> None:
    """One slow value must not move what is reported."""
    found = spread([10.0, 20.0, 30.0, 40.0, 10_000.0])
    assert found is not None
    assert found.as_json() == {"median": 30.0, "p25": 20.0, "p75": 40.0, "count": 5}


def test_one_value_is_its_own_spread() -> None:
    """A run of one round is reported like any other."""
    found = spread([1.234])
    assert found is not None
    assert (found.low, found.median, found.high, found.count) == (1.23, 1.23, 1.23, 1)


def test_nothing_measured_is_not_nought() -> None:
    """A method that did not run has no figure, rather than the best one."""
    assert spread([]) is None
    assert median([]) is None


def test_each_method_comes_first_once() -> None:
    """No method profits from always following the same one."""
    names = ["a", "b", "c"]
    turns = [in_turn(names, turn) for turn in range(3)]
    assert [turn[0] for turn in turns] == names
    assert all(sorted(turn) == names for turn in turns)


def test_documents_are_known_by_their_content(tmp_path: Path) -> None:
    """A corpus may hold anything; what is no document is not measured."""
    (tmp_path / "b.bin").write_bytes(b"%PDF-1.7 and so on")
    (tmp_path / "a.txt").write_bytes(b"nothing of interest")
    found = docs(sorted(tmp_path.iterdir()))
    assert found == [Doc(path=tmp_path / "b.bin", media_type=MediaType.PDF)]


def test_a_bench_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pool's workers inherit is not left to whatever runs next."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    with prepared():
        assert os.environ["OMP_NUM_THREADS"] == "1"
        assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "ORT_DISABLE_TELEMETRY" not in os.environ


def taken() -> overhead.Taken:
    """Two documents, two turns each; the second is spawned in its first turn only."""
    found = overhead.Taken(pool_first_task=2.5)
    small, large = (Doc(path=Path(name), media_type=MediaType.PDF) for name in ("small.pdf", "large.pdf"))
    found.add(
        small, cost(0.100), {"zygote": cost(0.110), "forkserver_pool": cost(0.101), "celery_prefork": cost(0.105)}
    )
    found.add(small, cost(0.200), {"zygote": cost(0.230), "forkserver_pool": cost(0.201)})
    found.add(large, cost(1.000), {"zygote": cost(1.050), "forkserver_pool": cost(1.001), "spawn": cost(4.000)})
    found.add(large, cost(1.000), {"zygote": cost(1.070), "forkserver_pool": cost(1.001)})
    return found


def cost(wall_s: float) -> Cost:
    """One that kept a CPU busy half of the time."""
    return Cost(wall_s=wall_s, cpu_s=wall_s / 2)


def test_overhead_is_what_is_beyond_the_conversion_of_the_same_turn() -> None:
    """A machine that is slow for one turn is slow for both sides of it."""
    figures = overhead.report(taken())
    assert figures["inprocess_ms"] == 0.0
    assert figures["zygote_ms"] == pytest.approx(40.0)
    assert figures["zygote_cpu_ms"] == pytest.approx(20.0)
    assert figures["spawn_ms"] == pytest.approx(3000.0)
    assert figures["forkserver_pool_ms"] == pytest.approx(1.0)
    assert figures["forkserver_pool_first_task_ms"] == 2500.0
    assert figures["conversion_ms"] == pytest.approx(600.0)


def test_overhead_names_the_document_that_it_weighs_most_on() -> None:
    """The target is a share of *any* document, so the worst one is shown."""
    figures = overhead.report(taken())
    assert figures["zygote_worst_share_document"] == "small.pdf"
    assert figures["zygote_worst_share"] == pytest.approx(20 / 150, abs=1e-3)


def test_overhead_of_a_method_that_had_no_turn_is_null() -> None:
    """A document that was not spawned has no figure for it, and JSON says so."""
    figures = json.loads(json.dumps(overhead.report(taken())))
    assert figures["by_document"][0]["spawn_ms"] is None
    assert figures["celery_prefork_ms"] == pytest.approx(5.0)


def rates() -> throughput.Rates:
    """Two rounds: two workers make 1.9 and 1.7 of one loop, two bare loops 1.9 of it."""
    per_minute = defaultdict[str, list[float]](list)
    for name, values in {
        throughput.INPROCESS: [100.0, 100.0],
        throughput.TWO_LOOPS: [190.0, 190.0],
        throughput.ZYGOTE: [90.0, 90.0],
        throughput.TWO_ZYGOTE: [190.0, 170.0],
        throughput.WITH_KILLERS: [180.0, 180.0],
        throughput.SPAWN: [20.0, 20.0],
        throughput.POOL: [180.0, 200.0],
    }.items():
        per_minute[name] = values
    return throughput.Rates(per_minute=per_minute, dead_letters=[1, 1], workers=2)


def test_ratios_are_taken_within_a_round() -> None:
    """Rounds of different speed are compared with themselves, then summed up."""
    found = rates()
    assert found.ratios(throughput.TWO_ZYGOTE, throughput.INPROCESS, times=2) == [0.95, 0.85]
    assert found.ratios(throughput.TWO_ZYGOTE, throughput.TWO_LOOPS) == [1.0, pytest.approx(170 / 190)]


def test_throughput_tells_the_machine_from_us() -> None:
    """What two busy cores cost by themselves stands beside what isolation costs."""
    batch = throughput.Batch(good=documents(100), killers=documents(1))
    figures = json.loads(json.dumps(throughput.report(rates(), batch)))
    assert figures["ratio_two_workers"] == pytest.approx(0.9)
    assert figures["ratio_two_workers_with_killers"] == pytest.approx(0.9)
    assert figures["ratio_machine"] == pytest.approx(0.95)
    assert figures["documents_per_minute"]["zygote_x2"] == 180.0
    assert set(figures["documents_per_minute"]) == set(throughput.METHODS)
    assert figures["killers_dead_lettered"] == [1, 1]


def documents(count: int) -> list[Doc]:
    """Names only."""
    return [Doc(path=Path(f"{number}.pdf"), media_type=MediaType.PDF) for number in range(count)]


def test_killers_are_spread_among_the_good_ones() -> None:
    """A killer at the end would meet an idle second worker, one at the start a cold one."""
    killers = [Doc(path=Path(f"killer-{number}.pdf"), media_type=MediaType.PDF) for number in range(2)]
    mixed = throughput.Batch(good=documents(9), killers=killers).mixed
    places = [number for number, doc in enumerate(mixed) if doc in killers]
    assert len(mixed) == 11
    assert places == [3, 6]
