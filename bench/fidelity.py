"""How much of the reference text the engine gives back, in which order.

`python -m bench.fidelity [--json] [--corpus DIR] [--html DIR] [NAME...]`. Reference: Docling's own Markdown, made with
its large models, and facts about single documents. Scores are 0 to 1; what a document has no reference for is null.

words     1 - indel distance / (words of both), over word sequences without Markdown's marks
headings  F1 of heading texts, levels ignored
lists     F1 of the texts of list items, depth and marker ignored
tables    mean TEDS (tree edit distance) of tables, matched in order; one without its like counts 0
order     the same as `words` over the words that are unique on both sides: only their order is left to differ
facts     share of statements (present, absent, before, cell beside cell) that hold

`--html` writes one file per document that differs: page, reference and ours side by side, for a person to look at.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import _fidelity_pages, _fidelity_scores
from bench._fidelity_facts import Fact, checkable, share
from bench._fidelity_scores import Scores, floor, mean, score
from bench._loop import convert, load_engine
from daemon.config_engine import EngineSettings
from daemon.model import MediaType

#: Pixels per point of a page shown to a person.
_SHOWN_SCALE = 1.2
#: Worst pages of a document that are shown.
_MOST_PAGES = 12
_KEYS = ("words", "headings", "lists", "tables", "order", "facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One document and what is known of it."""

    path: Path
    reference: str | None
    facts: tuple[Fact, ...]


def cases(corpus: Path, names: Iterable[str] = ()) -> list[Case]:
    """Every document with a reference or facts, by name; only `names` where there are any."""
    facts: dict[str, list[Fact]] = {}
    for line in (corpus / "gt" / "olmocr_facts.jsonl").read_text(encoding="utf-8").splitlines():
        for fact in checkable([json.loads(line)]):
            facts.setdefault(Path(str(fact["pdf"])).name, []).append(fact)
    references = {path.name.removesuffix(".md"): path for path in (corpus / "gt").glob("*.md")}
    wanted = set(names) or {*references, *facts}
    documents = {path.name: path for path in sorted(corpus.glob("*/*.pdf")) if path.parent.name != "gt"}
    return [
        Case(
            path=documents[name],
            reference=references[name].read_text(encoding="utf-8") if name in references else None,
            facts=tuple(facts.get(name, ())),
        )
        for name in sorted(wanted & documents.keys())
    ]


def scores_of(case: Case, markdown: str) -> Scores:
    """All scores of one document; None for what nothing is known of."""
    found: Scores = dict.fromkeys(_KEYS)
    if case.reference is not None:
        found |= score(case.reference, markdown)
    return found | {"facts": share(case.facts, markdown)}


def measure(corpus: Path, *, names: Iterable[str] = (), pages: Path | None = None) -> dict[str, Scores]:
    """Scores of every document; the side-by-side pages of those that differ go to the folder `pages`."""
    engine = load_engine()
    documents: dict[str, Scores] = {}
    for case in cases(corpus, names):
        made = convert(engine, case.path, MediaType.PDF)
        documents[case.path.name] = scores_of(case, made["document.md"].decode())
        if pages is not None and case.reference is not None and documents[case.path.name]["words"] != 1.0:
            show_pages(case, documents[case.path.name], made["document.json"], pages)
    return documents


def show_pages(case: Case, scores: Scores, document_json: bytes, folder: Path) -> None:
    """Write the side-by-side page of one document. The pages are rendered within the engine's own budget."""
    # Native code, so imported after the engine was loaded.
    from docling_core.types.doc import DoclingDocument  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    from daemon.engine.budget import Budget  # noqa: PLC0415
    from daemon.engine.pdf import PdfSource  # noqa: PLC0415

    settings = EngineSettings()
    budget = Budget(
        page_px=settings.page_budget_px, image_px=settings.image_budget_px, preview_px=settings.preview_budget_px
    )
    document = DoclingDocument.model_validate_json(document_json)
    texts = [document.export_to_markdown(page_no=number) for number in sorted(document.pages)]
    source = PdfSource(case.path.read_bytes(), budget=budget, max_pages=settings.max_pages)

    def picture(number: int) -> bytes:
        png = io.BytesIO()
        Image.fromarray(source.load_page(number - 1).picture(wanted=_SHOWN_SCALE)[0]).save(png, format="PNG")
        return png.getvalue()

    try:
        said = ", ".join(f"{key} {value:.3f}" for key, value in scores.items() if value is not None)
        page = _fidelity_pages.document_html(
            case.path.name, said, case.reference or "", texts, picture, most=_MOST_PAGES
        )
    finally:
        source.unload()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{case.path.name}.html").write_text(page, encoding="utf-8")


def show(documents: dict[str, Scores]) -> None:
    """The scores as a table, means below; what is under its floor in red, what has a floor of its own explained."""
    table = Table("document", *_KEYS)

    def cell(name: str, key: str) -> str:
        value, least = documents[name][key], floor(name, key)
        text = "" if value is None else f"{value:.3f}"
        return f"[red]{text}[/]" if value is not None and least is not None and value < least else text

    for name in documents:
        table.add_row(name, *(cell(name, key) for key in _KEYS))
    table.add_section()
    means = (mean([scores[key] for scores in documents.values()]) for key in _KEYS)
    table.add_row("mean", *("" if value is None else f"{value:.3f}" for value in means))
    console = Console()
    console.print(table)
    for (name, key), (least, reason) in _fidelity_scores.EXCEPTIONS.items():
        if name in documents:
            console.print(f"{name}: {key} must reach {least} only: {reason}")


def main(arguments: Iterable[str]) -> int:
    """Exit status: 0; 1 when something is below its floor; 2 without a corpus."""
    parser = argparse.ArgumentParser(prog="bench.fidelity", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="documents to measure, as a.pdf; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"), help="folder with documents and gt/")
    parser.add_argument("--html", type=Path, help="folder for side-by-side pages")
    options = parser.parse_args(list(arguments))
    if not (options.corpus / "gt").is_dir():
        print(f"cannot measure: {options.corpus} has no folder gt; name another with --corpus", file=sys.stderr)
        return 2
    documents = measure(options.corpus, names=options.names, pages=options.html)
    if options.json:
        print(json.dumps({"documents": documents}, ensure_ascii=False))
    else:
        show(documents)
    failures = list(_fidelity_scores.failures(documents))
    for failure in failures:
        print(f"below its floor: {failure}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
