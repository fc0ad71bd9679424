"""Whether any document is slower than before, or its text another.

`python -m bench.before --checkout DIR [--corpus DIR | FILE...] [--rounds N] [--json]`. Two processes have the engine
loaded, one of this checkout and one of the checkout DIR, under the same interpreter and libraries. Each document is
converted by both, once unmeasured, then in turns (A B B A), one side idle while the other works.

A document is slower when its median CPU time is more than 10 % higher than before and the middle halves of the rounds
lie apart. Who is slower so far is measured for as many rounds again, and judged by all of them. What fails, ends its
process or exceeds `--longest-s` is listed and not compared. Give this checkout itself as DIR to see how far two equal
ones lie apart on your machine. Exit status: 0; 1 when a document is slower, or was converted before and no longer is; 2
when nothing can be compared. Another text is told and costs no status.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import _before_figures as figures
from bench._before_figures import Left, Pair
from bench._before_side import Answer, Converted, Failed, Side, TooLong
from bench._loop import LoopEnded
from bench._measure import Doc, docs, in_turn, machine, prepared

_HERE = Path(__file__).resolve().parent.parent
_BEFORE, _AFTER = "before", "after"
#: Of a corpus: born digital and scanned.
_FOLDERS = ("a", "b")


class Converter(Protocol):
    """What a side is to the comparison."""

    def convert(self, doc: Doc) -> Answer:
        """Convert one document."""
        ...


def measure(
    sides: Mapping[str, Converter], documents: Sequence[Doc], *, rounds: int, tell: Callable[[str], None]
) -> tuple[list[Pair], list[Left], int]:
    """Documents that both sides converted, those that one did not, and how many have too many pages."""
    pairs, left, too_long = [], [], 0
    for number, doc in enumerate(documents):
        tell(f"{number + 1} of {len(documents)}: {doc.name}")
        match compared(sides, doc, rounds=rounds, turn=number):
            case Pair() as pair:
                pairs.append(pair)
            case Left() as each:
                left.append(each)
            case None:
                too_long += 1
    return pairs, left, too_long


def compared(sides: Mapping[str, Converter], doc: Doc, *, rounds: int, turn: int) -> Pair | Left | None:
    """One document, by both sides; None when it has too many pages. Even turns begin with `before`.

    What is slower after `rounds` has as many again: of dozens of documents one is slower by chance.
    """
    names = [_BEFORE, _AFTER]
    first = {name: sides[name].convert(doc) for name in in_turn(names, turn)}
    before, after = first[_BEFORE], first[_AFTER]
    if isinstance(before, TooLong) or isinstance(after, TooLong):
        return None
    if isinstance(before, Failed) or isinstance(after, Failed):
        return _left(doc, first)
    pair = Pair(name=doc.name, pages=after.pages, text_before=before.markdown, text_after=after.markdown)
    costs = {_BEFORE: pair.before, _AFTER: pair.after}
    for number in range(2 * rounds):
        if number == rounds and not pair.is_slower:
            break
        for name in in_turn(names, turn + number):
            answer = sides[name].convert(doc)
            if not isinstance(answer, Converted):
                return _left(doc, {**first, name: answer})
            costs[name].append(answer.cost)
    return pair


def _left(doc: Doc, answers: Mapping[str, Answer]) -> Left:
    reasons = {name: answer.reason if isinstance(answer, Failed) else "" for name, answer in answers.items()}
    return Left(name=doc.name, before=reasons[_BEFORE], after=reasons[_AFTER])


def table(pairs: Sequence[Pair], left: Sequence[Left], too_long: int) -> Table:
    """For a person: one row per document, the slower and the lost ones in red."""
    shown = Table(box=box.SIMPLE, title="CPU seconds per document, medians (middle half)")
    for column in ("document", "pages", "before", "after", "after / before", "by the clock", "words alike"):
        shown.add_column(column, justify="left" if column == "document" else "right", overflow="fold")
    for pair in pairs:
        ratio = f"{pair.cpu_ratio:.3f}"
        shown.add_row(
            escape(pair.name),
            str(pair.pages),
            *(
                f"{each.median:.3f} ({each.low:.3f} to {each.high:.3f})"
                for each in map(figures.cpu, (pair.before, pair.after))
            ),
            f"[red]{ratio} slower[/]" if pair.is_slower else ratio,
            f"{pair.wall_ratio:.3f}",
            "same" if pair.is_same else f"{pair.alike:.4f}",
        )
    for each in left:
        before, after = (escape(reason) or "converted" for reason in (each.before, each.after))
        shown.add_row(escape(each.name), "", before, f"[red]{after}[/]" if each.is_lost else after)
    overall = figures.overall(pairs)
    changed = sum(not pair.is_same for pair in pairs)
    shown.caption = (
        f"{len(pairs)} documents compared, {changed} with another text; {len(left)} not compared, "
        f"{too_long} of too many pages. All together: {'nothing' if overall is None else f'{overall:.3f}'} of before."
    )
    return shown


def chosen(corpus: Path, files: Sequence[Path]) -> list[Doc]:
    """The documents among `files`, or without any, those of the corpus's folders a and b."""
    folders = [corpus / name for name in _FOLDERS]
    found = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if path.is_file()]
    return docs(files or found)


def refusal(checkout: Path, corpus: Path, files: Sequence[Path]) -> str:
    """Why nothing can be compared; empty when it can."""
    if not (checkout / "daemon" / "engine" / "pipeline.py").is_file():
        return f"{checkout} has no daemon/engine/pipeline.py; name the folder of a checkout with --checkout"
    if missing := [str(path) for path in files if not path.is_file()]:
        return f"{', '.join(missing)} cannot be found; name files that are there"
    if not chosen(corpus, files):
        return f"there is no document in folder a or b of {corpus}, or among the files; name others"
    return ""


def main(arguments: Iterable[str]) -> int:
    """Measure and print; the exit status."""
    options = _options(arguments)
    if reason := refusal(options.checkout, options.corpus, options.files):
        print(f"cannot compare: {reason}", file=sys.stderr)
        return 2
    documents = chosen(options.corpus, options.files)
    errors = Console(stderr=True)
    with prepared() as load, ExitStack() as stack:
        try:
            sides = {
                name: stack.enter_context(Side(checkout, pages=options.pages, longest_s=options.longest_s))
                for name, checkout in ((_BEFORE, options.checkout), (_AFTER, _HERE))
            }
            pairs, left, too_long = measure(
                sides, documents, rounds=options.rounds, tell=lambda text: errors.print(text, style="dim")
            )
        except LoopEnded as ended:
            print(ended, file=sys.stderr)
            return 2
    if options.json:
        head = {"bench": "before", "rounds": options.rounds, "checkout": str(options.checkout), **machine(load)}
        limits = {"most_pages": options.pages, "longest_s": options.longest_s, "too_many_pages": too_long}
        print(json.dumps({**head, **limits, **figures.report(pairs, left)}, ensure_ascii=False))
    else:
        Console().print(table(pairs, left, too_long))
    return int(any(pair.is_slower for pair in pairs) or any(each.is_lost for each in left))


def _options(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="the version before")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="documents; default: those of the corpus")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"), help="folder whose a and b are taken")
    parser.add_argument("--rounds", type=int, default=3, help="measured conversions of each document by each side")
    parser.add_argument("--pages", type=int, default=20, help="documents of more pages are skipped and counted")
    parser.add_argument("--longest-s", type=float, default=60.0, help="seconds after which a document is given up")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(list(arguments))
    if options.rounds < 1:
        parser.error("cannot compare without a round; give --rounds 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
