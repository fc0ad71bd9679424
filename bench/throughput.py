"""Documents per minute of each way to run them: `python -m bench.throughput [--json]`.

Rules: every way converts the same documents in the same run, in turn; loading the engine is not in the time, handing
out the documents, storing and settling is. `ratio_two_workers` compares the whole daemon with two workers to twice one
in-process loop, which does none of that. What two busy cores cost by themselves (shared caches, memory, host) is told
apart by `ratio_machine`: two in-process loops at once, compared in the same way. Killers are documents whose process
dies whenever it comes to one of their pages; of each way it is told how many documents it delivered all the same.
A single document is converted by one child at a time, so of the set `long` everything is compared to one loop.
`parent_cpu_ms_per_document` is CPU time of the daemon's parent over all documents that it was given, killers included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench import _batches, _ways
from bench._batches import Batch, Set
from bench._measure import Doc, Run, docs, in_turn, machine, median, prepared, ratio, spread
from daemon import samples

TARGET, TARGET_WITH_KILLERS = 0.95, 0.9
#: Of each real document: a set then keeps one loop busy for about a minute, beside which the last document is little.
REPEAT = 4


@dataclass(slots=True)
class Runs:
    """What each way made of one set, one `Run` per round."""

    batch: Batch
    by_way: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))

    def per_minute(self, way: str) -> list[float]:
        """One value per round; none of a way that this set has not."""
        return [run.per_minute for run in self.by_way.get(way, [])]

    def ratios(self, part: str, whole: str, *, times: int = 1) -> list[float]:
        """One value per round: `part` over `times` `whole`."""
        both = zip(self.per_minute(part), self.per_minute(whole), strict=False)  # none of a way that has no turn
        return [ratio(mine, times * theirs) for mine, theirs in both]

    def parent_cpu_ms(self, way: str) -> list[float]:
        """Per document that was given, one value per round; none of a way without a parent, or without a turn."""
        runs = self.by_way.get(way, [])
        return [1000 * ratio(run.parent_cpu_s, run.given) for run in runs if run.parent_cpu_s is not None]

    def delivered_share(self, way: str) -> float:
        """Of all documents of all rounds that it was given, killers included."""
        return ratio(sum(run.delivered for run in self.by_way[way]), sum(run.given for run in self.by_way[way]))

    def best_other(self) -> str | None:
        """Of the other ways with killers: the one that delivers the largest share, then the fastest of these."""
        others = [way for way in _ways.KILLED if way != _ways.WITH_KILLERS and self.by_way.get(way)]
        return max(
            others, key=lambda way: (self.delivered_share(way), median(self.per_minute(way)) or 0.0), default=None
        )


def measure(batches: Sequence[Batch], warm: Sequence[Doc], *, rounds: int, tell: Callable[[str], None]) -> list[Runs]:
    """Run every way over every batch, `rounds` times; `warm` is converted before, and not measured."""
    found = [Runs(batch=batch) for batch in batches]
    with _ways.ways(warm) as ways:
        for number in range(rounds):
            for runs in found:
                for way in in_turn(_ways.of_set(runs.batch.name), number):
                    tell(f"round {number + 1} of {rounds}, {runs.batch.name}: {way}")
                    runs.by_way[way].append(ways[way](runs.batch))
    return found


def report(runs: Runs) -> dict[str, object]:
    """The figures of one set: medians over rounds at the top, spreads below; a way without a turn is null."""
    busy = runs.batch.busy
    ratios = {
        "ratio_two_workers": runs.ratios(_ways.TWO_ZYGOTE, _ways.LOOP, times=busy),
        "ratio_two_workers_with_killers": runs.ratios(_ways.WITH_KILLERS, _ways.LOOP, times=busy),
        "ratio_machine": runs.ratios(_ways.TWO_LOOPS, _ways.LOOP, times=busy),
        "ratio_to_machine": runs.ratios(_ways.TWO_ZYGOTE, _ways.TWO_LOOPS),
        "ratio_to_machine_with_killers": runs.ratios(_ways.WITH_KILLERS, _ways.TWO_LOOPS),
        "ratio_one_worker": runs.ratios(_ways.ZYGOTE, _ways.LOOP),
        "ratio_forkserver_pool": runs.ratios(_ways.POOL, _ways.LOOP, times=busy),
        "ratio_celery_prefork": runs.ratios(_ways.CELERY, _ways.LOOP, times=busy),
    }
    spreads = {name: spread(values, digits=4) for name, values in ratios.items()}
    spreads |= {f"documents_per_minute.{way}": spread(runs.per_minute(way)) for way in _ways.WAYS}
    spreads |= {f"parent_cpu_ms_per_document.{way}": spread(runs.parent_cpu_ms(way)) for way in _ways.DAEMONS}
    other = runs.best_other()
    ratios_of_other = [] if other is None else runs.ratios(other, _ways.LOOP, times=busy)
    return {
        **{name: median(values, digits=4) for name, values in ratios.items()},
        "ratio_is_over_loops": busy,
        "documents_per_minute": {way: median(runs.per_minute(way), digits=1) for way in _ways.WAYS},
        "parent_cpu_ms_per_document": {way: median(runs.parent_cpu_ms(way), digits=1) for way in _ways.DAEMONS},
        "documents": len(runs.batch.good),
        "distinct_documents": len(runs.batch.distinct),
        "document_names": list(runs.batch.distinct),
        "documents_spawned": len(_ways.spawned(runs.batch)),
        "killers": len(runs.batch.killers),
        "with_killers": {way: _delivered(runs, way) for way in _ways.KILLED if runs.by_way.get(way)},
        "best_other_with_killers": other,
        "ratio_best_other_with_killers": median(ratios_of_other, digits=4),
        "spread": {name: each.as_json() for name, each in spreads.items() if each is not None},
    }


def _delivered(runs: Runs, way: str) -> dict[str, object]:
    """What it was given and what it delivered, round by round."""
    return {
        "given": [run.given for run in runs.by_way[way]],
        "delivered": [run.delivered for run in runs.by_way[way]],
        "delivered_share": round(runs.delivered_share(way), 4),
    }


def table(runs: Runs) -> Table:
    """For a person: one row per way."""
    batch, other = runs.batch, runs.best_other()
    shown = Table(box=box.SIMPLE, title=f"{batch.name}: documents per minute; loading the engine excluded")
    for column in ("way", "median (middle half)", f"of {batch.busy} x one loop", "delivered"):
        shown.add_column(column, justify="left" if column == "way" else "right")
    for way in _ways.of_set(batch.name):
        part = way.startswith(_ways.SPAWN)  # which converts only some, so that its rate is of other documents
        whole = "" if part else _said(runs.ratios(way, _ways.LOOP, times=batch.busy))
        given, delivered = (sum(getattr(run, name) for run in runs.by_way[way]) for name in ("given", "delivered"))
        name = f"{way}  (best of the others)" if way == other else way
        shown.add_row(name, str(spread(runs.per_minute(way), digits=1)), whole, f"{delivered} of {given}")
    shown.caption = (
        f"{len(batch.good)} documents, {len(batch.distinct)} of them distinct, "
        f"{len(batch.killers)} killers where there are any; spawn ran {len(_ways.spawned(batch))}. "
        f"Target: {TARGET} of {batch.busy} x one loop, {TARGET_WITH_KILLERS} with killers."
    )
    return shown


def _said(ratios: Sequence[float]) -> str:
    """As a cell: the median, and the middle half where there is more than one round."""
    found = spread(ratios, digits=3)
    if found is None:
        return ""
    return f"{found.median:.3f}" + (f"  ({found.low:.3f} to {found.high:.3f})" if found.count > 1 else "")


def batches(
    names: Sequence[Set], folder: Path, *, count: int, pages: int, corpus: Path | None, repeat: int
) -> list[Batch]:
    """The sets that were asked for, each made in a folder of its own below `folder`; all that exist by default."""
    if corpus is None and (missing := {Set.BORN_DIGITAL, Set.SCANNED} & set(names)):
        raise SystemExit(f"cannot measure {', '.join(sorted(missing))}: name a folder of real documents with --corpus")
    found = []
    for name in names or [name for name in Set if corpus is not None or name in {Set.ONE_PAGERS, Set.LONG}]:
        own = folder / name
        own.mkdir()
        if name is Set.ONE_PAGERS:
            found.append(_batches.one_pagers(own, count))
        elif name is Set.LONG:
            found.append(_batches.long(own, pages))
        else:
            assert corpus is not None, "refused above"
            found.append(_batches.from_corpus(name, corpus, own, repeat=repeat))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--set", dest="sets", type=Set, nargs="+", choices=list(Set), default=[], help="default: all")
    parser.add_argument("--one-pagers", type=int, default=200, help="documents of the set one-pagers")
    parser.add_argument("--long-pages", type=int, default=100, help="pages of the set long")
    parser.add_argument("--corpus", type=Path, help="a folder whose `a` is born digital and whose `b` is scanned")
    repeat = f"copies of each real document (default: {REPEAT}, so that a set lasts about a minute on one loop)"
    parser.add_argument("--repeat", type=int, default=REPEAT, metavar="N", help=repeat)
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error("cannot repeat documents less than once; give --repeat 1 or more")
    errors = Console(stderr=True)
    with prepared() as load, tempfile.TemporaryDirectory(prefix="bench-batch-") as folder:
        chosen = batches(
            options.sets,
            Path(folder),
            count=options.one_pagers,
            pages=options.long_pages,
            corpus=options.corpus,
            repeat=options.repeat,
        )
        samples.write(Path(folder))
        warm = docs([Path(folder) / "letter.pdf", Path(folder) / "table.pdf"] * 2)
        found = measure(chosen, warm, rounds=options.rounds, tell=lambda text: errors.print(text, style="dim"))
    sets = {runs.batch.name.value: report(runs) for runs in found}
    if options.json:
        head = {"bench": "throughput", "rounds": options.rounds, "target": TARGET, **machine(load)}
        first = next(iter(sets.values()))  # whose figures are the bench's own
        print(json.dumps({**head, "target_with_killers": TARGET_WITH_KILLERS, **first, "sets": sets}))
        return
    for runs in found:
        Console().print(table(runs))


if __name__ == "__main__":
    main()
