"""What `bench.throughput` compares is equally warm: by the same documents, outside its time. Nothing is measured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import _isolated, _ways
from bench._batches import Batch, Set
from bench._measure import Doc
from daemon.model import MediaType, ResultStatus
from daemon.queue_local import LocalQueue
from tests.unit.test_bench_batches import documents, killers


def test_every_way_that_stays_loaded_is_warmed_with_the_same_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon's first documents would pay for its scout within the time, and the others' would not."""
    warmed: dict[str, Sequence[Doc]] = {}

    def deliver(batch: Sequence[Doc], *, start: str, workers: int, failpoints: str, warm: Sequence[Doc]) -> object:
        warmed[f"{start}_x{workers}{'_with_killers' if failpoints else ''}"] = warm
        return SimpleNamespace(workers=workers, dead_letters=0, documents=len(batch), elapsed_s=1.0, parent_cpu_s=0.1)

    celery = SimpleNamespace(warm=lambda docs, _workers: warmed.update(celery=docs))
    monkeypatch.setattr(_ways, "Loop", nullcontext)
    monkeypatch.setattr(_ways, "pool", lambda _workers: nullcontext())
    monkeypatch.setattr(_ways, "worker", lambda _workers: nullcontext(celery))
    monkeypatch.setattr(_ways, "by_loops", lambda _loops, docs: warmed.update(loops=docs))
    monkeypatch.setattr(_ways, "by_pool", lambda _pool, docs: warmed.update(pool=docs))
    monkeypatch.setattr(_ways, "deliver", deliver)
    batch = Batch(name=Set.ONE_PAGERS, good=documents(9), killers=killers("killer-1-a.pdf"), distinct=[])
    with _ways.ways([*documents(2), *documents(1)]) as ways:
        for way in (_ways.ZYGOTE, _ways.TWO_ZYGOTE, _ways.WITH_KILLERS):
            ways[way](batch)
    assert set(warmed) == {"loops", "pool", "celery", "zygote_x1", "zygote_x2", "zygote_x2_with_killers"}
    assert {frozenset(docs) for docs in warmed.values()} == {frozenset(documents(2))}
    assert len(warmed["zygote_x2"]) == 2, "a second message about one document would not convert it"


def test_warming_a_daemon_is_not_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is sent, and the time begins, when everything that warms it has ended."""
    names = ("warm-1", "warm-2", "good-1", "good-2")
    for name in names:
        (tmp_path / f"{name}.pdf").write_bytes(b"%PDF-1.7")
    files = [Doc(path=tmp_path / f"{name}.pdf", media_type=MediaType.PDF) for name in names]
    ended: list[list[str]] = []
    monkeypatch.setattr(time, "perf_counter", lambda: float(sum(len(names) for names in ended)))

    @contextmanager
    def assembled(
        _settings: object, *, queue: LocalQueue, on_ended: Callable[[object], None], **_: object
    ) -> Iterator[object]:
        stop = threading.Event()

        def run() -> None:
            while not stop.is_set():
                waiting = queue.receive(10, stop=stop)
                ended.append([])
                for message in waiting:
                    ended[-1].append(Path(json.loads(message.body)["uri"]).stem)
                    queue.delete(message)
                    on_ended(SimpleNamespace(settled=SimpleNamespace(status=ResultStatus.CONVERTED)))

        parent = SimpleNamespace(run=run, request_stop=stop.set)
        yield SimpleNamespace(parent=parent, sizing=SimpleNamespace(workers=2))

    monkeypatch.setattr(_isolated, "assembled", assembled)
    found = _isolated.deliver(files[2:], start="zygote", workers=2, warm=files[:2])
    assert ended == [["warm-1", "warm-2"], ["good-1", "good-2"]]
    assert (found.documents, found.elapsed_s) == (2, 2.0), "a document takes a second"
