"""Tables whose ruling lines say where their rows, columns and merged cells are, on pages and on pictures of pages."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from daemon.engine import runtime
from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    runtime.prepare(1)
    import pymupdf

INTRO = "This page shows what the harbours of the coast reported in the last year, and how much of it was grain."
COLUMNS = [72.0, 180.0, 300.0, 400.0, 500.0]
#: Cells that wrap in two columns of four.
WRAPPED = [
    ["Harbour", "Remark", "Ships", "Cargo"],
    ["Lisbon", "closed for repairs in the winter months", "314", "2718"],
    ["Genoa", "the new pier is open to all ships", "159", "1828"],
    ["Antwerp", "none", "265", "4590"],
    ["Riga", "ice until the middle of March or later", "358", "9793"],
]
NAMES = ["Lisbon", "Genoa", "Antwerp", "Riga", "Oslo", "Cadiz", "Bergen", "Porto", "Brest", "Cork", "Hull", "Gdansk"]
#: Five rows or six in one frame.
FRAMED = [["Harbour", "Ships", "Cargo", "Grain"]] + [
    [name, str(314 + n), str(2718 + 31 * n), str(140 + 3 * n)] for n, name in enumerate(NAMES)
]
MERGED = [
    ["Harbour", "Country", "Traffic of the year", "Traffic of the year"],
    ["Harbour", "Country", "Ships", "Cargo"],
    ["Lisbon", "Portugal", "314", "2718"],
    ["Genoa", "Italy", "159", "1828"],
    ["Genoa", "Liguria", "26", "45"],
]


def rule(page: Any, rows: Sequence[float], missing: Sequence[tuple[str, int, int]] = ()) -> None:
    """The edges of all cells, each drawn by itself; `missing` are ("h" or "v", number of the line, of its part)."""
    for line, y in enumerate(rows):
        for part, (start, end) in enumerate(pairwise(COLUMNS)):
            if ("h", line, part) not in missing:
                page.draw_line((start, y), (end, y), width=0.7)
    for line, x in enumerate(COLUMNS):
        for part, (start, end) in enumerate(pairwise(rows)):
            if ("v", line, part) not in missing:
                page.draw_line((x, start), (x, end), width=0.7)


def wrapped(page: Any) -> None:
    """A ruled grid."""
    rows = [130.0, 150.0, 190.0, 230.0, 250.0, 290.0]
    rule(page, rows)
    for y, texts in zip(rows, WRAPPED, strict=False):
        for x, text in zip(COLUMNS, texts, strict=False):
            page.insert_textbox((x + 4, y + 3, x + 104, y + 60), text, fontsize=10)


def framed(page: Any) -> None:
    """Rules between the columns and around every six rows."""
    rule(page, [130.0, 150.0, 222.0, 294.0])
    for n, texts in enumerate(FRAMED):
        for x, text in zip(COLUMNS, texts, strict=False):
            page.insert_text((x + 4, 144.0 if n == 0 else 150.0 + 12 * n), text, fontsize=10)


def merged(page: Any) -> None:
    """A heading over two columns, cells over two rows; what is merged has no rule inside."""
    rows = [130.0, 150.0, 170.0, 190.0, 210.0, 230.0]
    rule(page, rows, missing=[("v", 3, 0), ("h", 1, 0), ("h", 1, 1), ("h", 4, 0)])
    for row, texts in enumerate(MERGED):
        for column, text in enumerate(texts):
            repeats = (row and MERGED[row - 1][column] == text) or (column and texts[column - 1] == text)
            if not repeats:
                page.insert_text((COLUMNS[column] + 4, rows[row] + 14), text, fontsize=10)


TABLES: dict[str, tuple[Callable[[Any], None], list[list[str]]]] = {
    "wrapped": (wrapped, WRAPPED),
    "framed": (framed, FRAMED),
    "merged": (merged, MERGED),
}


def drawn(path: Path, draw: Callable[[Any], None], *, rotation: int = 0) -> Path:
    """A PDF of one page with a paragraph and a table."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_textbox((72, 72, 520, 110), INTRO, fontsize=11)
        draw(page)
        page.set_rotation(rotation)
        document.save(path)
    return path


def pictured(path: Path, draw: Callable[[Any], None], *, skew: float = 0.0) -> Path:
    """The same as a picture at 200 dpi, turned clockwise by `skew` degrees."""
    with pymupdf.open(drawn(path, draw)) as document:
        seen = document[0].get_pixmap(dpi=200)
    picture = Image.frombytes("RGB", (seen.width, seen.height), seen.samples)
    picture.rotate(-skew, Image.Resampling.BICUBIC, fillcolor="white").save(path, resolution=200)
    return path


def grid_of(result: Any) -> list[list[str]]:
    """The only table of a result, spans repeated."""
    (table,) = json.loads(result.artefacts["document.json"])["tables"]
    return [[cell["text"] for cell in row] for row in table["data"]["grid"]]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("rotation", [0, 90])
def test_a_ruled_table_has_the_cells_that_are_drawn(worker: Worker, tmp_path: Path, name: str, rotation: int) -> None:
    """Rows that wrap are one, rows without a rule between them are many, merged cells are one; on a turned page too."""
    draw, expected = TABLES[name]
    assert grid_of(worker.convert(drawn(tmp_path / "a.pdf", draw, rotation=rotation))) == expected


@pytest.mark.parametrize("name", ["wrapped", "merged"])
@pytest.mark.parametrize("skew", [0.0, 2.0])
def test_a_ruled_table_on_a_scan_has_them_too(worker: Worker, tmp_path: Path, name: str, skew: float) -> None:
    """The rules are found in the picture, made straight like its lines."""
    draw, expected = TABLES[name]
    assert grid_of(worker.convert(pictured(tmp_path / "a.pdf", draw, skew=skew))) == expected


def noise(page: Any, count: int) -> None:
    """Lines in every direction over the lower half of the page."""
    strokes = "\n".join(f"{n % 595} {n % 400} m {(n * 7) % 595} {(n * 13) % 400} l S" for n in range(count))
    xref = page.parent.get_new_xref()
    page.parent.update_object(xref, "<<>>")
    page.parent.update_stream(xref, strokes.encode())
    page.clean_contents()
    page.parent.xref_set_key(page.xref, "Contents", f"[{page.get_contents()[0]} 0 R {xref} 0 R]")


def odd(page: Any) -> None:
    """A ruled grid among lines of no length, lines beyond the page and lines in white."""
    wrapped(page)
    for x in COLUMNS:
        page.draw_line((x, 160), (x, 160))
    page.draw_line((-500, 170), (-100, 170))
    page.draw_line((72, 2000), (500, 2000))
    page.draw_rect((72, 170, 500, 171), color=None, fill=(1, 1, 1), width=0)


def underlined(page: Any) -> None:
    """The same with a rule under the first line of a cell, as under a link."""
    wrapped(page)
    page.draw_line((184, 166), (184 + pymupdf.get_text_length("closed for repairs in", fontsize=10), 166))


@pytest.mark.parametrize("draw", [odd, underlined], ids=["odd lines", "an underlined word"])
def test_lines_that_part_nothing_change_nothing(worker: Worker, tmp_path: Path, draw: Callable[[Any], None]) -> None:
    """Only what runs between texts is a boundary."""
    assert grid_of(worker.convert(drawn(tmp_path / "a.pdf", draw))) == WRAPPED


def test_a_page_of_ten_thousand_lines_keeps_its_table(worker: Worker, tmp_path: Path) -> None:
    """A drawing below a table costs little, and takes nothing from it."""

    def draw(page: Any) -> None:
        wrapped(page)
        noise(page, 10_000)

    assert grid_of(worker.convert(drawn(tmp_path / "a.pdf", draw))) == WRAPPED


TIGHT = [
    ["Harbour", "Ships", "Cargo", "Grain", "Days"],
    ["Lisbon", "31415", "27182", "16180", "14142"],
    ["Genoa", "15926", "81828", "33988", "13562"],
    ["Antwerp", "26535", "45904", "74989", "37309"],
    ["Bergen", "35897", "93238", "48482", "50488"],
]


def tight(page: Any) -> None:
    """A small table whose figures fill their cells: no gap shows its columns, and the layout network sees a figure."""
    columns, rows = [72, 120, 152, 184, 216, 248], [130 + 16 * n for n in range(6)]
    for y in rows:
        page.draw_line((columns[0], y), (columns[-1], y), width=0.7)
    for x in columns:
        page.draw_line((x, rows[0]), (x, rows[-1]), width=0.7)
    for y, texts in zip(rows, TIGHT, strict=False):
        for x, text in zip(columns, texts, strict=False):
            page.insert_text((x + 1.5, y + 12), text, fontsize=10.4)


@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_a_grid_of_rules_on_a_scan_is_a_table_and_parts_its_lines(worker: Worker, tmp_path: Path, skew: float) -> None:
    """Lines that the detector drew across a rule are cut there; what the network called the table does not count."""
    found = grid_of(worker.convert(pictured(tmp_path / "a.pdf", tight, skew=skew)))
    assert found[1:] == TIGHT[1:]
    assert [text.strip("[]|") for text in found[0]] == TIGHT[0]
