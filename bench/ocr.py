"""What each choice of our OCR costs and gives, beside RapidOCR as Docling's stock stage calls it.

`python -m bench.ocr [--json] [--corpus DIR] [--rounds N] [NAME...]`. Every choice converts the same documents in the
same pipeline with another OCR stage, taking turns within one run. Costs are those of the OCR stage, in seconds of this
thread's process (it has one); "the whole" is the conversion with everything.

words      F1 of the words read, against what is known of a page: its text layer, where we made the picture from a
           page of letters, or its reference. Order is left out: that is the layout's work. It equals the normalised
           indel similarity of the words in alphabetical order. CJK characters are words of their own.
agreement  the same against what the most careful choice reads
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench import _ocr_figures as figures
from bench._fidelity_text import plain
from bench._loop import load_engine
from bench._measure import in_turn, machine, prepared
from bench._ocr_figures import Run
from daemon import samples, sandbox
from daemon.clock import SystemClock
from daemon.config_engine import EngineSettings
from daemon.model import MediaType, PageRecord, Plan, Stage

if TYPE_CHECKING:
    from bench._ocr_choices import Choice, Pipelines
    from daemon.engine.budget import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Which documents of a folder, by what they are."""

    scans: tuple[str, ...]
    #: Pages with text and pictures.
    mixed: tuple[str, ...]
    #: Documents of letters, of whose first page a picture is made.
    letters: tuple[str, ...]


_CORPUS = Names(
    scans=("ocr_test.pdf", "skew.pdf", "cardinal.pdf", "ccitt.pdf", "francais.pdf", "chinese_scan.pdf"),
    mixed=("normal_4pages.pdf",),
    letters=("multicolumn.pdf", "table_of_contents_01.pdf"),
)
#: Our own samples, where there is no corpus.
_OWN = Names(scans=("scan.pdf", "scan-turned.pdf"), mixed=("mixed.pdf",), letters=("letter.pdf",))
#: Of `cardinal`, whose pages are one page turned four ways, only the one that lies on its side.
_ALL_PAGES = Plan(preview=False)
_PLANS = {"cardinal.pdf": Plan(preview=False, skip=frozenset({1}), most_pages=1)}
#: FINDINGS' four pages that took 18 s.
_FOUR_PAGES = "normal_4pages.pdf"
_DPI = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One document, and what is known of its text."""

    name: str
    data: bytes
    media_type: MediaType
    #: Texts of its lines in any order, or a reference's plain text.
    known: tuple[str, ...] | None
    #: Its reference's Markdown.
    reference: str | None = None
    #: It has text and pictures.
    mixed: bool = False
    plan: Plan = _ALL_PAGES


class _Silent:
    """Nobody listens."""

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See `daemon.engine.api.Progress`."""

    def opened(self, pages: int) -> None:
        """See `daemon.engine.api.Progress`."""

    def page_done(self, record: PageRecord) -> None:
        """See `daemon.engine.api.Progress`."""


def cases(corpus: Path | None, own: Path, budget: Budget, wanted: Sequence[str]) -> list[Case]:
    """The documents of the corpus, else our own samples in `own`; only those `wanted` where any are."""
    folder, names = (own, _OWN) if corpus is None else (corpus, _CORPUS)
    found = [_case(folder, name, mixed=name in names.mixed) for name in (*names.scans, *names.mixed)]
    found += [facsimile(_file(folder, name), budget) for name in names.letters]
    return [case for case in found if not wanted or case.name in wanted]


def _case(folder: Path, name: str, *, mixed: bool) -> Case:
    reference = folder / "gt" / f"{name}.md"
    text = reference.read_text(encoding="utf-8") if reference.exists() else None
    return Case(
        name=name,
        data=_file(folder, name).read_bytes(),
        media_type=MediaType.PDF,
        known=None if text is None else (plain(text),),
        reference=text,
        mixed=mixed,
        plan=_PLANS.get(name, _ALL_PAGES),
    )


def _file(folder: Path, name: str) -> Path:
    """By name, in whichever folder of a corpus it lies."""
    return next(path for path in sorted(folder.rglob(name)) if path.parent.name != "gt")


def facsimile(path: Path, budget: Budget) -> Case:
    """A picture of the first page of a document of letters, which is known by its own text layer."""
    from PIL import Image  # noqa: PLC0415 - after the engine

    from daemon.engine.pdf import PdfSource  # noqa: PLC0415

    source = PdfSource(path.read_bytes(), budget=budget, max_pages=EngineSettings().max_pages)
    try:
        page = source.load_page(0)
        texts = tuple(cell.text for cell in page.get_visible_text_cells())
        picture, _ = page.picture(wanted=_DPI / 72)
    finally:
        source.unload()
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", dpi=(_DPI, _DPI))
    return Case(name=f"{path.stem}.png", data=file.getvalue(), media_type=MediaType.PNG, known=texts)


def convert(pipelines: Pipelines, choice: Choice, case: Case, budget: Budget) -> Run:
    """Convert one document with one choice."""
    from daemon.engine.document import OpenDocument  # noqa: PLC0415 - after the engine

    pipeline, watched = pipelines.of(choice)
    started = time.process_time()
    document = OpenDocument(
        case.data,
        media_type=case.media_type,
        plan=case.plan,
        budget=budget,
        max_pages=EngineSettings().max_pages,
        pipeline=pipeline,
        progress=_Silent(),
        clock=SystemClock(),
    )
    try:
        conversion = document.convert({}, manifest={})
    finally:
        document.close()
    seen = watched.seen
    return Run(
        choice=choice.name,
        document=case.name,
        pages=seen.pages,
        cpu_s=seen.cpu_s,
        wall_s=seen.wall_s,
        whole_cpu_s=time.process_time() - started,
        texts=tuple(seen.texts),
        markdown=None if conversion is None else conversion.artefacts["document.md"].decode(),
    )


def measure(corpus: Path | None, *, rounds: int, names: Sequence[str], console: Console) -> dict[str, Any]:
    """All figures, as JSON values."""
    load_engine()
    from bench import _ocr_choices as choices  # noqa: PLC0415 - native, and the engine comes first
    from daemon.engine.budget import Budget  # noqa: PLC0415

    settings = EngineSettings()
    budget = Budget(
        page_px=settings.page_budget_px, image_px=settings.image_budget_px, preview_px=settings.preview_budget_px
    )
    pipelines = choices.Pipelines()
    by_name = {choice.name: choice for choice in choices.CHOICES}
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="bench-ocr-") as own:
        if corpus is None:
            samples.write(Path(own))
        documents = cases(corpus, Path(own), budget, names)
    for turn in range(rounds):
        for case in documents:
            console.print(f"round {turn + 1}: {case.name}", style="dim")
            fitting = [name for name, choice in by_name.items() if case.mixed or not choice.mixed_only]
            runs += [convert(pipelines, by_name[name], case, budget) for name in in_turn(fitting, turn)]
    known = {case.name: case.known for case in documents if case.known is not None}
    rows = figures.rows(runs, known=known, careful=choices.CAREFUL, production=choices.PRODUCTION)
    four = figures.factor(
        [run for run in runs if run.document == _FOUR_PAGES],
        production=choices.PRODUCTION,
        stock=choices.STOCK,
        reference=next((case.reference for case in documents if case.name == _FOUR_PAGES), None),
    )
    return {"choices": rows, "four_pages": four, "by_document": figures.by_document(runs, known=known)}


def table(found: dict[str, Any]) -> Table:
    """The choices, one a line."""
    shown = Table(title="OCR: what each choice costs and gives", box=box.SIMPLE)
    for column in ("choice", "pages", "CPU s a page", "wall s a page", "CPU over as it is", "words", "agreement"):
        shown.add_column(column)
    for row in found["choices"]:
        values = (row[key] for key in ("pages", "cpu_s_per_page", "wall_s_per_page", "cpu_ratio", "words", "agreement"))
        shown.add_row(row["choice"], *("" if value is None else str(value) for value in values))
    return shown


def as_a_child(arguments: Sequence[str]) -> None:
    """Become a process with the environment of the daemon's children, if this is none: it decides what memory costs."""
    if any(os.environ.get(name) != value for name, value in sandbox.FORCED_VARIABLES.items()):
        command = [sys.executable, "-m", "bench.ocr", *arguments]
        os.execve(sys.executable, command, sandbox.environment(os.environ))  # noqa: S606 - itself, anew


def main(arguments: Iterable[str]) -> int:
    """Exit status: 0; 2 for a corpus that is none, or names that it has not."""
    parser = argparse.ArgumentParser(prog="python -m bench.ocr", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these documents")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--corpus", type=Path, help="folder with documents and gt/; without it, our own samples")
    parser.add_argument("--rounds", type=int, default=1, help="times that everything is converted")
    options = parser.parse_args(list(arguments))
    if options.corpus is not None and not (options.corpus / "gt").is_dir():
        print(f"cannot measure: {options.corpus} has no folder gt; name another with --corpus", file=sys.stderr)
        return 2
    with prepared() as load:
        found = measure(options.corpus, rounds=options.rounds, names=options.names, console=Console(stderr=True))
    if options.json:
        print(json.dumps({"bench": "ocr", **machine(load), "rounds": options.rounds, **found}, ensure_ascii=False))
    else:
        Console().print(table(found))
        Console().print_json(data={"four_pages": found["four_pages"]})
    return 0


if __name__ == "__main__":
    as_a_child(sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
