"""The arithmetic of the benches: spreads, turns, ratios, and the shape of their JSON. Nothing is measured here."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from bench import _pss, _ways, overhead, throughput
from bench._batches import Batch, Set
from bench._measure import Cost, Doc, Run, docs, in_turn, median, prepared, spread
from daemon.children import ChildJob, ChildResult
from daemon.errors import EngineError
from daemon.model import MediaType, PageRecord, PageReport, PageState


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


def runs(name: Set = Set.ONE_PAGERS) -> throughput.Runs:
    """Two rounds of 100 documents: two workers make 1.9 and 1.7 of one loop, two bare loops 1.9 of it."""
    good = documents(1 if name is Set.LONG else 100)
    batch = Batch(name=name, good=good, killers=documents(1), distinct=[doc.name for doc in good[:25]])
    found = throughput.Runs(batch=batch)
    for way, per_minute in {
        _ways.LOOP: [100.0, 100.0],
        _ways.TWO_LOOPS: [190.0, 190.0],
        _ways.ZYGOTE: [90.0, 90.0],
        _ways.TWO_ZYGOTE: [190.0, 170.0],
        _ways.SPAWN: [20.0, 20.0],
        _ways.POOL: [180.0, 200.0],
        _ways.CELERY: [150.0, 150.0],
    }.items():
        found.by_way[way] = [Run(given=100, delivered=100, elapsed_s=6000 / rate) for rate in per_minute]
    found.by_way[_ways.WITH_KILLERS] = [
        Run(given=101, delivered=100, elapsed_s=6000 / 180, parent_cpu_s=cpu_s) for cpu_s in (1.01, 3.03)
    ]
    found.by_way[_ways.POOL_KILLED] = 2 * [Run(given=101, delivered=50, elapsed_s=1.0)]
    found.by_way[_ways.CELERY_KILLED] = 2 * [Run(given=101, delivered=100, elapsed_s=60.0)]
    found.by_way[_ways.SPAWN_KILLED] = 2 * [Run(given=101, delivered=100, elapsed_s=600.0)]
    return found


def test_ratios_are_taken_within_a_round() -> None:
    """Rounds of different speed are compared with themselves, then summed up."""
    found = runs()
    assert found.ratios(_ways.TWO_ZYGOTE, _ways.LOOP, times=2) == pytest.approx([0.95, 0.85])
    assert found.ratios(_ways.TWO_ZYGOTE, _ways.TWO_LOOPS) == pytest.approx([1.0, 170 / 190])


def test_throughput_tells_the_machine_from_us() -> None:
    """What two busy cores cost by themselves stands beside what isolation costs."""
    figures = json.loads(json.dumps(throughput.report(runs())))
    assert figures["ratio_two_workers"] == pytest.approx(0.9)
    assert figures["ratio_two_workers_with_killers"] == pytest.approx(0.9)
    assert figures["ratio_machine"] == pytest.approx(0.95)
    assert figures["documents_per_minute"]["zygote_x2"] == 180.0
    assert set(figures["documents_per_minute"]) == set(_ways.WAYS)
    assert figures["documents_per_minute"][_ways.LOOP_KILLED] is None, "it had no turn"


def test_copies_are_told_from_documents() -> None:
    """A hundred conversions of 25 documents are no measurement of a hundred documents."""
    figures = throughput.report(runs())
    assert (figures["documents"], figures["distinct_documents"]) == (100, 25)
    assert figures["document_names"] == [f"{number}.pdf" for number in range(25)]


def test_the_parents_own_time_is_told_for_the_daemon_only() -> None:
    """Per document that it was given; a loop has no parent, and a way without a turn no figure."""
    figures = throughput.report(runs())
    told = dict.fromkeys(_ways.DAEMONS) | {_ways.WITH_KILLERS: 20.0}
    assert figures["parent_cpu_ms_per_document"] == told
    spreads = figures["spread"]
    assert spreads[f"parent_cpu_ms_per_document.{_ways.WITH_KILLERS}"] == {  # type: ignore[index]  # made for JSON
        "median": 20.0,
        "p25": 15.0,
        "p75": 25.0,
        "count": 2,
    }


def cells(runs_of_a_set: throughput.Runs) -> dict[str, str]:
    """What the table says of each way over one loop."""
    columns = throughput.table(runs_of_a_set).columns
    return dict(zip(columns[0].cells, columns[2].cells, strict=True))  # type: ignore[arg-type]  # all are strings


def test_a_person_sees_how_far_rounds_lie_apart() -> None:
    """A ratio of two rounds that differ by a tenth must not read like one that was found twice."""
    assert cells(runs())[_ways.TWO_ZYGOTE] == "0.900  (0.875 to 0.925)"
    once = runs()
    for way in list(once.by_way):
        once.by_way[way] = once.by_way[way][:1]
    assert cells(once)[_ways.TWO_ZYGOTE] == "0.950"


def test_the_best_of_the_others_is_the_one_that_delivers() -> None:
    """Being fast over half of the documents is no way to beat one that delivers them all."""
    figures = throughput.report(runs())
    assert figures["best_other_with_killers"] == _ways.CELERY_KILLED
    assert figures["ratio_best_other_with_killers"] == pytest.approx(0.5)
    assert figures["with_killers"][_ways.POOL_KILLED] == {  # type: ignore[index]  # it is made for JSON
        "given": [101, 101],
        "delivered": [50, 50],
        "delivered_share": round(50 / 101, 4),
    }


def test_one_document_is_compared_to_one_loop() -> None:
    """A second worker has nothing to do: half of its speed would be blamed on isolation."""
    assert throughput.report(runs(Set.LONG))["ratio_two_workers"] == pytest.approx(1.8)


def test_what_delivers_nothing_has_a_rate_of_nought() -> None:
    """A loop whose first document kills it, in no time at all."""
    assert Run(given=3, delivered=0, elapsed_s=0.0).per_minute == 0.0


def documents(count: int) -> list[Doc]:
    """Names only."""
    return [Doc(path=Path(f"{number}.pdf"), media_type=MediaType.PDF) for number in range(count)]


class Pages:
    """A converter whose documents have as many pages as anybody wants; one of them may fail at its second page."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing

    def run(self, job: ChildJob, document: BinaryIO, **named: Any) -> ChildResult:
        """Call `on_page` until that ends it."""
        del document
        for page in range(1, 100):
            if job.document_id == self.failing and page == 2:
                raise EngineError("cannot go on")
            named["on_page"](
                PageRecord(page=page, report=PageReport(page=page, state=PageState.TEXT, engine=""), blob=b""), 99
            )
        raise AssertionError("nobody ends it")


def test_memory_is_looked_at_while_every_worker_converts() -> None:
    """One look for each page that all of them have finished, and then they are ended."""
    samples = _pss.samples_of(Pages(), b"%PDF-1.7", 3)
    assert len(samples) == _pss.SAMPLES
    assert min(samples) > 2**20, "this process counts too"


def test_a_worker_that_fails_keeps_nobody_waiting() -> None:
    """The others wait for its page; what it failed for is told, and no figure is made of the rest."""
    with pytest.raises((EngineError, threading.BrokenBarrierError)):
        _pss.samples_of(Pages("bench-1"), b"%PDF-1.7", 2)
