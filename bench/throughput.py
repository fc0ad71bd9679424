"""Documents per minute of each way to run them: `python -m bench.throughput [--json]`.

Rules: every method converts the same batch in the same run, in turn; loading the engine is not in the time, handing out
the documents, storing and settling is. `ratio_two_workers` compares the whole daemon with two workers to twice one
in-process loop, which does none of that. What two busy cores cost by themselves (shared caches, memory, host) is told
apart by `ratio_machine`: two in-process loops at once, compared in the same way. A killer is a document whose child
dies whenever it opens a page; it ends in a dead letter, and only what is delivered counts.
"""

from __future__ import annotations

import argparse
import json
import queue
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench._isolated import Delivered, Start, deliver
from bench._loop import Loop
from bench._measure import Doc, corpus, docs, in_turn, machine, median, prepared, ratio, spread
from bench._pool import pool, task
from daemon import samples

TARGET = 0.95
#: Copied to fill the batch with documents of one page.
ONE_PAGERS = ("letter.pdf", "accents.pdf", "table.pdf", "two-columns.pdf", "text-rotate.pdf", "owner-password.pdf")
#: Seconds of OCR each, as scan.pdf and photo.png have too: they would only make the run longer.
_LEFT_OUT = frozenset({"fax.tiff", "scan-turned.pdf", "scan-rotate.pdf", "photo.jpg"})
#: One of a hundred kills its child.
KILLER_SHARE = 0.01
KILL = "child.page@doc=killer-*=segv"
#: A spawned child takes seconds to begin; a few documents are enough to see it.
SPAWNED = 8
INPROCESS, TWO_LOOPS, ZYGOTE, TWO_ZYGOTE = "inprocess", "inprocess_x2", "zygote_x1", "zygote_x2"
WITH_KILLERS, SPAWN, POOL = "zygote_x2_with_killers", "spawn_x2", "forkserver_pool_x2"
METHODS = (INPROCESS, TWO_ZYGOTE, TWO_LOOPS, WITH_KILLERS, POOL, ZYGOTE, SPAWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What each method converts."""

    good: Sequence[Doc]
    killers: Sequence[Doc]

    @property
    def mixed(self) -> list[Doc]:
        """The good ones, with the killers spread evenly among them."""
        mixed = list(self.good)
        step = len(mixed) // (len(self.killers) + 1)
        for number, killer in enumerate(self.killers, start=1):
            mixed.insert(number * step, killer)
        return mixed


@dataclass(slots=True)
class Rates:
    """Documents per minute by method, one value per round; and how the killers ended."""

    per_minute: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    dead_letters: list[int] = field(default_factory=list)
    workers: int = 0

    def ratios(self, part: str, whole: str, *, times: int = 1) -> list[float]:
        """One value per round: `part` over `times` `whole`."""
        both = zip(self.per_minute[part], self.per_minute[whole], strict=True)
        return [ratio(mine, times * theirs) for mine, theirs in both]


def make_batch(folder: Path, one_pagers: int, real: Sequence[Doc]) -> Batch:
    """Copies of the one-page samples, every other good sample, the real ones, and the killers."""
    made = folder / "samples"
    samples.write(made)
    copies = []
    for number in range(one_pagers):
        name = ONE_PAGERS[number % len(ONE_PAGERS)]
        copies.append(Path(shutil.copy(made / name, folder / f"{number:03}-{name}")))
    others = [made / each.name for each in samples.GOOD if each.name not in {*ONE_PAGERS, *_LEFT_OUT}]
    # Long ones first, as `bulkhead convert` does: the last document must not be a second's work for one of two.
    good = [*real, *docs(others), *docs(copies)]
    killers = max(1, round(len(good) * KILLER_SHARE))
    made_to_kill = [
        Path(shutil.copy(made / "letter.pdf", folder / f"killer-{number}.pdf")) for number in range(killers)
    ]
    return Batch(good=good, killers=docs(made_to_kill))


def measure(batch: Batch, *, rounds: int, tell: Callable[[str], None]) -> Rates:
    """Run every method over the batch, `rounds` times."""
    rates = Rates()
    with _methods(batch, rates) as methods:
        for number in range(rounds):
            for name in in_turn(METHODS, number):
                tell(f"round {number + 1} of {rounds}: {name}")
                rates.per_minute[name].append(methods[name]())
    return rates


@contextmanager
def _methods(batch: Batch, rates: Rates) -> Iterator[dict[str, Callable[[], float]]]:
    """Each gives documents per minute. Loops and pool stay loaded, idle between their turns; a daemon starts anew."""
    with ExitStack() as stack:
        loops = [stack.enter_context(Loop()) for _ in range(2)]
        executor = stack.enter_context(pool(2))
        warm = [batch.good[-1], *batch.good[-2:]]
        for each in loops:
            converted_by([each], warm)
        list(executor.map(task, [str(doc.path) for doc in warm], [doc.media_type for doc in warm]))

        def daemon(start: Start, workers: int, documents: Sequence[Doc]) -> float:
            delivered = deliver(documents, start=start, workers=workers)
            assert delivered.documents == len(documents), "good documents are delivered"
            rates.workers = max(rates.workers, delivered.workers)
            return delivered.per_minute

        yield {
            INPROCESS: lambda: converted_by(loops[:1], batch.good),
            TWO_LOOPS: lambda: converted_by(loops, batch.good),
            ZYGOTE: lambda: daemon("zygote", 1, batch.good),
            TWO_ZYGOTE: lambda: daemon("zygote", 2, batch.good),
            WITH_KILLERS: lambda: _with_killers(
                deliver(batch.mixed, start="zygote", workers=2, failpoints=KILL), rates
            ),
            SPAWN: lambda: daemon("spawn", 2, batch.good[-SPAWNED:]),
            POOL: lambda: _rate(
                len(batch.good),
                lambda: executor.map(
                    task, [str(doc.path) for doc in batch.good], [doc.media_type for doc in batch.good]
                ),
            ),
        }


def _with_killers(delivered: Delivered, rates: Rates) -> float:
    rates.dead_letters.append(delivered.dead_letters)
    return delivered.per_minute


def converted_by(loops: Sequence[Loop], documents: Sequence[Doc]) -> float:
    """Documents per minute of in-process loops, each taking the next document when it is free."""
    waiting: queue.SimpleQueue[Doc] = queue.SimpleQueue()
    for doc in documents:
        waiting.put(doc)

    def work(loop: Loop) -> None:
        while True:
            try:
                doc = waiting.get_nowait()
            except queue.Empty:
                return
            loop.convert(doc)

    with ThreadPoolExecutor(len(loops)) as threads:
        return _rate(len(documents), lambda: threads.map(work, loops))


def _rate(documents: int, work: Callable[[], Iterable[object]]) -> float:
    """Documents per minute of `work`, whose results are all awaited."""
    started = time.perf_counter()
    list(work())
    return documents * 60 / (time.perf_counter() - started)


def report(rates: Rates, batch: Batch) -> dict[str, object]:
    """The figures of one run: medians over rounds at the top, spreads below."""
    ratios = {
        "ratio_two_workers": rates.ratios(TWO_ZYGOTE, INPROCESS, times=2),
        "ratio_two_workers_with_killers": rates.ratios(WITH_KILLERS, INPROCESS, times=2),
        "ratio_machine": rates.ratios(TWO_LOOPS, INPROCESS, times=2),
        "ratio_to_machine": rates.ratios(TWO_ZYGOTE, TWO_LOOPS),
        "ratio_to_machine_with_killers": rates.ratios(WITH_KILLERS, TWO_LOOPS),
        "ratio_one_worker": rates.ratios(ZYGOTE, INPROCESS),
        "ratio_forkserver_pool": rates.ratios(POOL, INPROCESS, times=2),
    }
    spreads = {name: spread(values, digits=4) for name, values in ratios.items()}
    spreads |= {f"documents_per_minute.{name}": spread(rates.per_minute[name]) for name in METHODS}
    return {
        **{name: median(values, digits=4) for name, values in ratios.items()},
        "target": TARGET,
        "documents_per_minute": {name: median(rates.per_minute[name], digits=1) for name in METHODS},
        "documents": len(batch.good),
        "documents_spawned": min(SPAWNED, len(batch.good)),
        "killers": len(batch.killers),
        "killers_dead_lettered": rates.dead_letters,
        "workers": rates.workers,
        "spread": {name: each.as_json() for name, each in spreads.items() if each is not None},
    }


def table(rates: Rates, figures: Mapping[str, object]) -> Table:
    """For a person: one row per method."""
    shown = Table(box=box.SIMPLE, title="Documents per minute; loading the engine excluded")
    for column in ("method", "median (middle half)", "of 2 x one loop", "of two loops"):
        shown.add_column(column, justify="left" if column == "method" else "right")
    for method in METHODS:
        whole = "" if method == SPAWN else f"{median(rates.ratios(method, INPROCESS, times=2)) or 0.0:.3f}"
        against = "" if method == SPAWN else f"{median(rates.ratios(method, TWO_LOOPS)) or 0.0:.3f}"
        shown.add_row(method, str(spread(rates.per_minute[method], digits=1)), whole, against)
    shown.caption = (
        f"{figures['documents']} documents, {figures['killers']} killers beside them where there are any; spawn ran "
        f"{figures['documents_spawned']} short ones. Target: {TARGET} of 2 x one loop."
    )
    return shown


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one-pagers", type=int, default=60, help="copies of one-page samples in the batch")
    parser.add_argument("--corpus", type=Path, help="a folder of real documents, converted besides our own")
    options = parser.parse_args(argv)
    errors = Console(stderr=True)
    with prepared() as load, tempfile.TemporaryDirectory(prefix="bench-batch-") as folder:
        batch = make_batch(Path(folder), options.one_pagers, corpus(options.corpus))
        rates = measure(batch, rounds=options.rounds, tell=lambda text: errors.print(text, style="dim"))
    figures = report(rates, batch)
    if options.json:
        print(json.dumps({"bench": "throughput", "rounds": options.rounds, **machine(load), **figures}))
    else:
        Console().print(table(rates, figures))


if __name__ == "__main__":
    main()
