"""How much of known text comes back from pictures of pages: straight, on their side, upside down, and skewed.

`python -m bench.scans [--json] [--corpus DIR] [NAME...]`. Born-digital pages are rendered at 200 dots per inch within
the engine's budget, turned, and wrapped as a PDF that is a picture; what is known is the Markdown of the page itself,
from its text layer. Beside them stand pictures whose text was typed off, or is the reference of their source. Scores
are 0 to 1, those of `bench.fidelity`:

words     1 - indel distance / (words of both), over word sequences without Markdown's marks
order     the same over the words that are unique on both sides: only their order is left to differ

`seconds` is CPU time of the conversion. Exit status 1 when a document is below its floor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench._fidelity_scores import score
from bench._loop import convert, load_engine
from daemon.config_engine import EngineSettings
from daemon.model import MediaType

#: The target for printed text.
FLOOR = 0.95
#: Clockwise; quarter turns are exact, others leave white corners as a scanner does.
TURNS = (0.0, 90.0, 180.0, 270.0, 2.0, -3.0)
#: Document and page, counted from 1: one column, German, two columns, a manual with drawings, an essay, a paper.
PAGES = (
    ("a/multi_page.pdf", 1),
    ("a/PDFUA-Ref-2-05_BookChapter-german.pdf", 2),
    ("a/multicolumn.pdf", 1),
    ("a/amt_handbook_sample.pdf", 1),
    ("a/us-030.pdf", 2),
    ("a/1901.03003.pdf", 2),
)
#: Typed from the picture.
TYPED = {
    "e/eurotext.tif": """
        The (quick) [brown] {fox} jumps! Over the $43,456.78 <lazy> #90 dog & duck/goose, as 12.5% of E-mail from
        aspammer@website.com is spam. Der „schnelle” braune Fuchs springt über den faulen Hund. Le renard brun
        «rapide» saute par-dessus le chien paresseux. La volpe marrone rapida salta sopra il cane pigro. El zorro
        marrón rápido salta sobre el perro perezoso. A raposa marrom rápida salta sobre o cão preguiçoso.
    """,
}
#: Scans with a reference in the corpus.
REFERENCED = ("b/ocr_test.pdf", "b/ocr_test_rotated_90.pdf")
_MEDIA_TYPES = {".pdf": MediaType.PDF, ".tif": MediaType.TIFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A picture and its text."""

    name: str
    #: Degrees clockwise by which the picture was turned.
    turn: float
    data: bytes
    media_type: MediaType
    known: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a case."""

    document: str
    turn: float
    words: float | None
    order: float | None
    #: CPU time.
    seconds: float


def page_of(data: bytes, number: int) -> bytes:
    """A PDF of one page (counted from 1) of another."""
    import pymupdf  # noqa: PLC0415 - native, after the engine

    with pymupdf.open(stream=data, filetype="pdf") as document:
        document.select([number - 1])
        return bytes(document.tobytes(garbage=3))


def pictured(data: bytes, turn: float) -> bytes:
    """A PDF whose first page is a picture of another's, turned clockwise by `turn` degrees."""
    import pymupdf  # noqa: PLC0415 - native, after the engine
    from PIL import Image  # noqa: PLC0415

    from daemon.engine.budget import READING_SCALE, Budget  # noqa: PLC0415

    settings = EngineSettings()
    budget = Budget(
        page_px=settings.page_budget_px, image_px=settings.image_budget_px, preview_px=settings.preview_budget_px
    )
    with pymupdf.open(stream=data, filetype="pdf") as document:
        seen = budget.render(document[0], wanted=READING_SCALE)
    picture = Image.fromarray(seen).rotate(-turn, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    with pymupdf.open() as scan:
        page = scan.new_page(width=picture.width / READING_SCALE, height=picture.height / READING_SCALE)
        rows = pymupdf.Pixmap(pymupdf.csRGB, picture.width, picture.height, picture.tobytes(), False)
        page.insert_image(page.rect, pixmap=rows)
        return bytes(scan.tobytes(deflate=True))


def markdown(engine: Any, data: bytes, media_type: MediaType) -> str:
    """The engine's Markdown."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return convert(engine, Path(file.name), media_type)["document.md"].decode()


def cases(engine: Any, corpus: Path, names: Iterable[str]) -> Iterator[Case]:
    """All cases, or those whose document is named."""
    wanted = set(names)

    def is_wanted(path: str) -> bool:
        return not wanted or Path(path).name in wanted

    for path, text in TYPED.items():
        if is_wanted(path):
            yield _given(corpus / path, text)
    for path in REFERENCED:
        if is_wanted(path):
            yield _given(corpus / path, (corpus / "gt" / f"{Path(path).name}.md").read_text(encoding="utf-8"))
    for path, number in PAGES:
        if is_wanted(path):
            page = page_of((corpus / path).read_bytes(), number)
            known = markdown(engine, page, MediaType.PDF)
            for turn in TURNS:
                name, data = f"{Path(path).name} p. {number}", pictured(page, turn)
                yield Case(name=name, turn=turn, data=data, media_type=MediaType.PDF, known=known)


def _given(path: Path, known: str) -> Case:
    return Case(name=path.name, turn=0.0, data=path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix], known=known)


def measure(corpus: Path, names: Iterable[str] = ()) -> list[Result]:
    """Convert every case and compare."""
    engine = load_engine()
    results = []
    for case in cases(engine, corpus, names):
        started = time.process_time()
        text = markdown(engine, case.data, case.media_type)
        seconds = time.process_time() - started
        scores = score(case.known, text)
        results.append(
            Result(document=case.name, turn=case.turn, words=scores["words"], order=scores["order"], seconds=seconds)
        )
    return results


def show(results: Iterable[Result]) -> None:
    """The results as a table, those below the floor in red."""
    table = Table("document", "turn", "words", "order", "CPU s")

    def cell(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    words = []
    for result in results:
        words.append(result.words or 0.0)
        low = words[-1] < FLOOR
        said = f"[red]{cell(result.words)}[/]" if low else cell(result.words)
        table.add_row(result.document, f"{result.turn:g}", said, cell(result.order), f"{result.seconds:.1f}")
    table.add_section()
    if words:
        table.add_row("least, median", "", f"{min(words):.3f}, {statistics.median(words):.3f}", "", "")
    Console().print(table)


def main(arguments: Iterable[str]) -> int:
    """Exit status: 0; 1 when a document is below the floor; 2 without a corpus."""
    parser = argparse.ArgumentParser(prog="bench.scans", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"), help="folder with documents and gt/")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these documents, by file name")
    options = parser.parse_args(list(arguments))
    if not (options.corpus / "gt").is_dir():
        print(f"cannot measure: {options.corpus} has no folder gt; name another with --corpus", file=sys.stderr)
        return 2
    results = measure(options.corpus, options.names)
    if options.json:
        documents = [
            {"document": r.document, "turn": r.turn, "words": r.words, "order": r.order, "seconds": r.seconds}
            for r in results
        ]
        print(json.dumps({"documents": documents}, ensure_ascii=False))
    else:
        show(results)
    return int(any((result.words or 0.0) < FLOOR for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
