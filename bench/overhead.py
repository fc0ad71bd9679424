"""What isolation costs per document, the conversion itself excluded: `python -m bench.overhead [--json]`.

Rules: for each document and round every method has its turn right after the others, and its cost is its wall time less
that of the in-process loop in the same turn; so a cost may be negative, and is only worth something as a median.
`inprocess_ms` is 0 by this definition. A spawned child is too slow to be run for each document in each round:
each document is spawned once over all rounds. The pool's first task, which starts its worker, is told apart.
Celery's way holds its broker (a folder, looked at every 2 ms) besides its pool; the others have none.
Beside the zygote's wall time stands its CPU time, which a busy machine stretches less.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench._celery import Worker, worker
from bench._isolated import isolated, live
from bench._loop import Loop
from bench._measure import Cost, Doc, corpus, docs, in_turn, machine, median, prepared, ratio, spread
from bench._pool import pool, task
from daemon import samples

#: DESIGN's targets.
TARGET_MS, TARGET_SHARE = 50.0, 0.05
METHODS = ("zygote", "spawn", "forkserver_pool", "celery_prefork")
#: Seconds of OCR each, which say nothing about isolation that scan.pdf and photo.png do not say.
_LEFT_OUT = frozenset({"fax.tiff", "scan-turned.pdf", "scan-rotate.pdf", "photo.jpg"})


@dataclass(slots=True)
class Taken:
    """Seconds of wall time, as they were measured."""

    #: By document.
    inprocess: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: By method and document, the in-process time of the same turn subtracted.
    beyond: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {method: defaultdict(list) for method in METHODS}
    )
    #: CPU time of the zygote's way beyond the loop's, of all documents.
    zygote_cpu: list[float] = field(default_factory=list)
    pool_first_task: float = 0.0
    #: A task that Celery never answered; it gets no other one.
    celery_lost: str = ""

    def add(self, doc: Doc, inprocess: Cost, taken: Mapping[str, Cost]) -> None:
        """Keep one turn."""
        self.inprocess[doc.name].append(inprocess.wall_s)
        for method, cost in taken.items():
            self.beyond[method][doc.name].append(cost.wall_s - inprocess.wall_s)
        self.zygote_cpu.append(taken["zygote"].cpu_s - inprocess.cpu_s)


def measure(documents: Sequence[Doc], *, rounds: int, tell: Callable[[str], None]) -> Taken:
    """Run all methods over all documents, `rounds` times."""
    taken = Taken()
    with _all_methods(documents[0], taken) as methods:
        for doc in documents:
            methods["inprocess"](doc)  # the first conversion of each kind is not yet a warm one
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            for index, doc in enumerate(documents):
                turn = index + number
                now = [name for name in METHODS if name != "spawn" or turn % rounds == 0]
                costs = {name: methods[name](doc) for name in in_turn(["inprocess", *now], turn)}
                measured = {name: cost for name, cost in costs.items() if cost is not None}
                taken.add(doc, measured.pop("inprocess"), measured)
    return taken


@contextmanager
def _all_methods(first: Doc, taken: Taken) -> Iterator[dict[str, Callable[[Doc], Cost | None]]]:
    """Every method, warm; ended on leaving."""
    with ExitStack() as stack:
        zygotes = stack.enter_context(isolated("zygote"))
        spawns = stack.enter_context(isolated("spawn"))
        executor = stack.enter_context(pool(1))
        celery = stack.enter_context(worker(1))
        loop = stack.enter_context(Loop())
        loop.convert(first)
        celery.convert(first)  # when the engine is loaded
        taken.pool_first_task = _pooled(executor, first).wall_s - loop.convert(first).wall_s
        yield {
            "inprocess": loop.convert,
            "zygote": lambda doc: live(zygotes, doc),
            "spawn": lambda doc: live(spawns, doc),
            "forkserver_pool": lambda doc: _pooled(executor, doc),
            "celery_prefork": lambda doc: _sent(celery, doc, taken),
        }


def _sent(celery: Worker, doc: Doc, taken: Taken) -> Cost | None:
    if taken.celery_lost:
        return None
    started = time.perf_counter()
    try:
        celery.convert(doc)
    except TimeoutError:
        taken.celery_lost = doc.name
        return None
    return Cost(wall_s=time.perf_counter() - started, cpu_s=0.0)


def _pooled(executor: ProcessPoolExecutor, doc: Doc) -> Cost:
    started = time.perf_counter()
    executor.submit(task, str(doc.path), doc.media_type).result()
    return Cost(wall_s=time.perf_counter() - started, cpu_s=0.0)


def report(taken: Taken) -> dict[str, object]:
    """The figures of one run: medians over documents times rounds at the top, spreads and documents below."""
    conversion_ms = {name: (median(_ms(values)) or 0.0) for name, values in taken.inprocess.items()}
    by_document = [
        {"document": name, "conversion_ms": conversion_ms[name], **_costs(taken, name)} for name in taken.inprocess
    ]
    shares = {
        name: ratio(median(_ms(taken.beyond["zygote"][name])) or 0.0, conversion_ms[name]) for name in taken.inprocess
    }
    worst = max(shares, key=lambda name: shares[name])
    every = {method: _ms([v for each in taken.beyond[method].values() for v in each]) for method in METHODS}
    spreads = {f"{method}_ms": spread(values) for method, values in every.items()}
    spreads["zygote_cpu_ms"] = spread(_ms(taken.zygote_cpu))
    return {
        "inprocess_ms": 0.0,
        **{f"{method}_ms": median(values) for method, values in every.items()},
        "zygote_cpu_ms": median(_ms(taken.zygote_cpu)),
        "celery_prefork_lost": taken.celery_lost or None,
        "forkserver_pool_first_task_ms": round(taken.pool_first_task * 1000, 3),
        "conversion_ms": median([v for values in taken.inprocess.values() for v in _ms(values)]),
        "zygote_share_of_conversion": median(list(shares.values()), digits=4),
        "zygote_worst_share": round(shares[worst], 4),
        "zygote_worst_share_document": worst,
        "target_ms": TARGET_MS,
        "target_share": TARGET_SHARE,
        "spread": {name: each.as_json() for name, each in spreads.items() if each is not None},
        "by_document": by_document,
    }


def _costs(taken: Taken, name: str) -> dict[str, float | None]:
    return {f"{method}_ms": median(_ms(taken.beyond[method].get(name, []))) for method in METHODS}


def _ms(seconds: Sequence[float]) -> list[float]:
    return [value * 1000 for value in seconds]


def table(figures: Mapping[str, object], taken: Taken) -> Table:
    """For a person: one row per method."""
    shown = Table(box=box.SIMPLE, title="Per document, beyond the conversion itself (ms of wall time)")
    for column in ("method", "median (middle half)", "of the zygote's", "of a median conversion"):
        shown.add_column(column, justify="left" if column == "method" else "right")
    conversion_ms = float(str(figures["conversion_ms"]))
    zygote_ms = float(str(figures["zygote_ms"]))
    shown.add_row("one process, a loop", "0 by definition", "", "")
    for method in METHODS:
        values = _ms([v for each in taken.beyond[method].values() for v in each])
        cost_ms = median(values) or 0.0
        relative = f"{cost_ms / zygote_ms:.1f}x" if zygote_ms > 0 else ""
        shown.add_row(method, str(spread(values, digits=1)), relative, f"{cost_ms / conversion_ms:.1%}")
    shown.add_row("zygote, CPU time", str(spread(_ms(taken.zygote_cpu), digits=1)), "", "")
    shown.add_row("forkserver_pool, first task", f"{taken.pool_first_task * 1000:,.0f}", "", "")
    shown.caption = (
        f"Median conversion: {conversion_ms:,.0f} ms. Targets: {TARGET_MS:.0f} ms and {TARGET_SHARE:.0%}; "
        f"the zygote's largest share: {figures['zygote_worst_share']:.1%}, of {figures['zygote_worst_share_document']}."
    )
    return shown


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpus", type=Path, help="a folder of real documents, measured besides our own")
    options = parser.parse_args(argv)
    errors = Console(stderr=True)
    with prepared() as load, tempfile.TemporaryDirectory(prefix="bench-samples-") as folder:
        samples.write(Path(folder))
        good = [Path(folder) / sample.name for sample in samples.GOOD if sample.name not in _LEFT_OUT]
        documents = [*docs(good), *corpus(options.corpus)]
        taken = measure(documents, rounds=options.rounds, tell=lambda text: errors.print(text, style="dim"))
    figures = report(taken)
    if options.json:
        print(json.dumps({"bench": "overhead", "rounds": options.rounds, **machine(load), **figures}))
    else:
        Console().print(table(figures, taken))


if __name__ == "__main__":
    main()
