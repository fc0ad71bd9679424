"""What rules enclose on a scan: tables, columns of prose, fields of a form and pictures, told apart."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from daemon.engine import runtime
from tests.engine import parts
from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    runtime.prepare(1)
    import pymupdf


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """Modules of the engine by name."""
    return parts.modules()


def lines_at(engine: dict[str, Any], places: Sequence[parts.Place]) -> list[Any]:
    """Lines of a scan at these places, at 2 px a point."""
    return [
        engine["pages"].Line(
            box=parts.box(engine, (left, top, right, bottom)),
            picture=np.zeros((round(2 * (bottom - top)), round(2 * (right - left)), 3), np.uint8),
        )
        for left, top, right, bottom in places
    ]


def scanned(engine: dict[str, Any], rows: int, columns: int, *, width: float = 30.0) -> list[Any]:
    """Lines 10 pt high, 60 pt and 20 pt apart."""
    places = [(60.0 * c + 10, 20.0 * r + 5) for r in range(rows) for c in range(columns)]
    return lines_at(engine, [(x, y, x + width, y + 10) for x, y in places])


def lattice_of(engine: dict[str, Any], xs: Sequence[float], ys: Sequence[float]) -> Any:
    """Rules that cross each other."""
    strokes = [*((xs[0], y, xs[-1], y) for y in ys), *((x, ys[0], x, ys[-1]) for x in xs)]
    return engine["rules"].rules_of(strokes)


def boxes_of(engine: dict[str, Any], boxes: Sequence[parts.Place]) -> Any:
    """Rules around each of these boxes."""
    edges = [
        edge
        for left, top, right, bottom in boxes
        for edge in (
            (left, top, right, top),
            (left, bottom, right, bottom),
            (left, top, left, bottom),
            (right, top, right, bottom),
        )
    ]
    return engine["rules"].rules_of(edges)


def region(engine: dict[str, Any], label: str, place: parts.Place) -> Any:
    """A region that the layout network saw."""
    return engine["frames"].Cluster(id=4, label=label, bbox=parts.box(engine, place), confidence=1.0)


def settled(engine: dict[str, Any], clusters: Sequence[Any], rules: Any, lines: Sequence[Any]) -> list[tuple[str, Any]]:
    """(label, place) of what becomes of the clusters."""
    found, _ = engine["frames"].against_rules(clusters, rules, lines)
    return [(cluster.label.value, cluster.bbox.as_tuple()) for cluster in found]


def test_a_grid_of_rules_with_text_in_it_becomes_one_table(engine: dict[str, Any]) -> None:
    """A frame alone is none, nor a grid that has a table or next to nothing in it; prose is not searched at all."""
    lines, page = scanned(engine, 4, 3), (0, 0, 180, 80)
    picture, table = region(engine, "picture", page), region(engine, "table", page)
    grid = lattice_of(engine, [0, 60, 120, 180], [0, 20, 40, 60, 80])
    assert settled(engine, [picture], grid, lines) == [("table", page)]
    assert settled(engine, [table], grid, lines) == [("table", page)]
    frame = lattice_of(engine, [0, 180], [0, 80])
    assert settled(engine, [picture], frame, lines) == [("picture", page)]
    assert settled(engine, [region(engine, "text", page)], grid, lines[:5]) == [("text", page)]
    assert engine["frames"].stand_side_by_side(lines)
    assert not engine["frames"].stand_side_by_side(scanned(engine, 9, 2))


def test_a_frame_around_a_table_and_more_is_no_part_of_it(engine: dict[str, Any]) -> None:
    """A title block in the corner of a drawing is the table; a heading over all its columns is in it."""
    table = lattice_of(engine, [120, 180, 240, 300], [320, 340, 360, 380, 400])
    frame = boxes_of(engine, [(0, 0, 300, 400), (120, 0, 300, 300), (120, 300, 300, 320)])
    rules = engine["rules"].Rules(across=table.across + frame.across, down=table.down + frame.down)
    held = [(130 + 60 * c, 325 + 20 * r, 160 + 60 * c, 335 + 20 * r) for r in range(4) for c in range(3)]
    lines = lines_at(engine, [(20, 50, 50, 60), (200, 50, 260, 60), (200, 305, 260, 315), *held])
    assert settled(engine, [], rules, lines) == [("table", (120, 300, 300, 400))]


def test_boxes_with_gaps_between_them_are_no_table(engine: dict[str, Any]) -> None:
    """A flow chart's boxes stand in rows and columns too; cells stand wall to wall."""
    boxes = [(90.0 * c, 60.0 * r, 90.0 * c + 60, 60.0 * r + 30) for r in range(3) for c in range(3)]
    links = [(90.0 * c + 60, 60.0 * r + 15, 90.0 * c + 90, 60.0 * r + 15) for r in range(3) for c in range(2)]
    links += [(90.0 * c + 30, 60.0 * r + 30, 90.0 * c + 30, 60.0 * r + 60) for r in range(2) for c in range(3)]
    drawn, linked = boxes_of(engine, boxes), engine["rules"].rules_of(links)
    rules = engine["rules"].Rules(across=drawn.across + linked.across, down=drawn.down + linked.down)
    lines = lines_at(engine, [(x + 10, y + 17, x + 40, y + 27) for x, y, _, _ in boxes])
    assert settled(engine, [], rules, lines) == []


def test_texts_on_no_baseline_are_no_table(engine: dict[str, Any]) -> None:
    """A map with a grid over it has names in its squares."""
    grid = lattice_of(engine, [0, 60, 120, 180], [0, 40, 80, 120, 160])
    tops = [(60.0 * c + 10, 40.0 * r + (9.5 if c == 1 else 5)) for r in range(4) for c in range(3)]
    scattered = [(x, y, x + 30, y + 10) for x, y in tops]
    assert settled(engine, [], grid, lines_at(engine, scattered)) == []


def test_fields_whose_walls_do_not_line_up_are_no_table(engine: dict[str, Any]) -> None:
    """Each row of a form has its own widths; as a table it would be all merged cells."""
    walls = [[0, 90, 200, 300], [0, 60, 160, 300], [0, 120, 240, 300], [0, 40, 140, 300]]
    boxes = [(x, 20.0 * r, end, 20.0 * r + 20) for r, row in enumerate(walls) for x, end in pairwise(row)]
    lines = lines_at(engine, [(x + 5, y + 5, x + 30, y + 15) for x, y, _, _ in boxes])
    rules = boxes_of(engine, boxes)
    assert settled(engine, [], rules, lines) == []
    assert settled(engine, [region(engine, "table", (0, 0, 300, 80))], rules, lines) == []
    even = lattice_of(engine, [0, 60, 120, 180], [0, 20, 40, 60, 80])
    table = region(engine, "table", (0, 0, 180, 80))
    assert settled(engine, [table], even, scanned(engine, 4, 3)) == [("table", (0, 0, 180, 80))]


@pytest.mark.parametrize("walls", [[0, 120, 240, 360], []], ids=["ruled", "not ruled"])
def test_columns_of_prose_are_no_table(engine: dict[str, Any], walls: list[float]) -> None:
    """With rules between them or without; where one column is short, the prose is in the cells of a table."""
    page = (0, 0, 360, 200)
    prose = [(120.0 * c + 5, 20.0 * r + 5, 120.0 * c + 115, 20.0 * r + 15) for r in range(8) for c in range(3)]
    rules = lattice_of(engine, walls, [0, 180]) if walls else engine["rules"].Rules()
    table = region(engine, "table", page)
    assert settled(engine, [table], rules, lines_at(engine, prose)) == []
    labelled = [place for place in prose if place[0] > 100] + [(5, 5, 40, 15), (5, 85, 40, 95)]
    assert settled(engine, [table], rules, lines_at(engine, labelled)) == [("table", page)]


def test_rules_part_lines_in_tables_and_between_columns_of_prose(engine: dict[str, Any]) -> None:
    """A grid around columns of prose is no table; its lines are cut all the same."""
    against, page = engine["frames"].against_rules, (0, 0, 360, 180)
    prose = [(120.0 * c + 5, 20.0 * r + 2, 120.0 * c + 115, 20.0 * r + 12) for r in range(9) for c in range(3)]
    rules = lattice_of(engine, [0, 120, 240, 360], [0, 80, 180])
    found, parted = against([], rules, lines_at(engine, prose))
    assert (found, [box.as_tuple() for box in parted]) == ([], [page])
    cells = lattice_of(engine, [0, 60, 120, 180], [0, 20, 40, 60, 80])
    _, parted = against([], cells, scanned(engine, 4, 3))
    assert [box.as_tuple() for box in parted] == [(0, 0, 180, 80)]


def test_labels_beside_prose_are_a_table(engine: dict[str, Any]) -> None:
    """Without a rule, too: the lines of a column of prose begin at one edge."""
    page = (0, 0, 400, 200)
    prose = [(x, 20.0 * r + 5, x + 160, 20.0 * r + 15) for r in range(8) for x in (60.0, 235.0)]
    labels = [(5, 40.0 * r + 5, 35, 40.0 * r + 15) for r in range(4)]
    table, none = region(engine, "table", page), engine["rules"].Rules()
    assert settled(engine, [table], none, lines_at(engine, [*prose, *labels])) == [("table", page)]
    assert settled(engine, [table], none, lines_at(engine, prose)) == []


def test_a_picture_of_fields_is_a_form(engine: dict[str, Any]) -> None:
    """The question is in the frame, left of it or above it, and goes with the answer. An underline is no frame."""
    rules = boxes_of(engine, [(0, 0, 100, 40), (200, 60, 300, 80), (0, 120, 100, 140), (0, 160, 100, 180)])
    low = engine["rules"].Rules(across=rules.across, down=tuple(r for r in rules.down if r.end - r.start > 24))
    held = [(5, 5, 50, 15), (5, 22, 60, 32), (140, 65, 190, 75), (205, 64, 250, 76), (5, 104, 60, 116)]
    lines = lines_at(engine, [*held, (5, 124, 50, 136), (5, 164, 50, 176)])
    picture = region(engine, "picture", (0, 0, 300, 200))
    expected = [("text", (5, 5, 60, 32)), ("text", (140, 64, 250, 76)), ("text", (5, 104, 60, 136))]
    assert sorted(settled(engine, [picture], low, lines)) == sorted(expected)
    assert engine["frames"].against_rules([picture], low, lines)[1] == [picture.bbox]
    links = engine["rules"].rules_of([(5, y, 95, y) for y in (13, 33, 53, 73)])
    underlined = lines_at(engine, [(5, y, 95, y + 12) for y in (3.0, 23.0, 43.0, 63.0)])
    assert settled(engine, [picture], links, underlined) == [("picture", (0, 0, 300, 200))]


def test_a_line_of_a_table_is_cut_where_a_rule_runs_down_through_it(engine: dict[str, Any]) -> None:
    """Not outside a table, not where the rule ends above it, and not at its very edge."""
    (line,) = scanned(engine, 1, 1)
    cut, table = engine["gutters"].cut_at_rules, [line.box]
    through = engine["rules"].rules_of([(25, 0, 25, 40), (11, 0, 11, 40), (30, -30, 30, 6)])
    assert sorted((part.box.l, part.box.r) for part in cut([line], through, table)) == [(10, 25), (25, 40)]
    assert cut([line], through, []) == [line]


NEWS = [
    "The grain ships that had waited outside the breakwater since the storm came into the port before the night.",
    "Farmers of the valley asked the council for a new bridge over the river, as the old one carries no carts.",
    "A concert of the town band takes place in the market square at noon, and children enter free of charge.",
]


def newspaper(page: Any) -> None:
    """Three columns between rules, two articles in each."""
    for y in (60, 200, 340):
        page.draw_line((50, y), (530, y), width=0.8)
    for x in (50, 210, 370, 530):
        page.draw_line((x, 60), (x, 340), width=0.8)
    for row, top in enumerate((64, 204)):
        for column, text in enumerate(NEWS):
            page.insert_textbox(
                (58 + 160 * column, top, 202 + 160 * column, top + 136), f"{row + 1}. {text}", fontsize=11
            )


def form(page: Any) -> None:
    """Frames of different widths with a question and an answer in each, and a paragraph below."""
    rows = [[("Family name", "Andersen"), ("Given name", "Nils Peter")]]
    rows += [[("Street", "Strandgaten 18"), ("Post code", "5013"), ("Town", "Bergen")]]
    rows += [[("Boat", "Havlys"), ("Length", "9.8 m"), ("Built", "1987"), ("Licence", "SF-114-B")]]
    for number, row in enumerate(rows):
        x, widths = 60.0, [(480 - 40 * number) / len(row)] * (len(row) - 1)
        for (question, answer), width in zip(row, [*widths, 480 - sum(widths)], strict=True):
            y = 80.0 + 36 * number
            page.draw_rect((x, y, x + width, y + 36), width=0.8)
            page.insert_text((x + 3, y + 10), question, fontsize=7)
            page.insert_text((x + 8, y + 28), answer, fontsize=11)
            x += width
    page.insert_textbox((60, 220, 540, 300), " ".join(NEWS), fontsize=10)


def bordered(page: Any) -> None:
    """A border around a page with a paragraph on it."""
    page.draw_rect((30, 30, 565, 812), width=1.5)
    page.draw_rect((36, 36, 559, 806), width=0.7)
    page.insert_text((150, 80), "Certificate of attendance", fontsize=20)
    page.insert_textbox((80, 110, 515, 240), " ".join(NEWS), fontsize=11)
    for place, text in enumerate(("Name", "Date", "Signature")):
        page.draw_line((80 + 150 * place, 400), (200 + 150 * place, 400))
        page.insert_text((110 + 150 * place, 414), text, fontsize=9)


def pictured(path: Path, draw: Callable[[Any], None]) -> Path:
    """A PDF that is a picture of a page, at 150 dpi."""
    with pymupdf.open() as document:
        draw(document.new_page())
        seen = document[0].get_pixmap(dpi=150)
    Image.frombytes("RGB", (seen.width, seen.height), seen.samples).save(path, resolution=150)
    return path


def test_columns_of_a_newspaper_are_read_one_after_the_other(worker: Worker, tmp_path: Path) -> None:
    """Every article is whole, whatever the network called the page."""
    result = worker.convert(pictured(tmp_path / "a.pdf", newspaper))
    assert json.loads(result.artefacts["document.json"])["tables"] == []
    assert all(f"{row}. {text}" in result.markdown for row in (1, 2) for text in NEWS)


def test_the_fields_of_a_form_are_read_with_their_questions(worker: Worker, tmp_path: Path) -> None:
    """It is no picture, whose text would be left out, and no table of merged cells."""
    result = worker.convert(pictured(tmp_path / "a.pdf", form))
    assert json.loads(result.artefacts["document.json"])["tables"] == []
    fields = [
        "Family name Andersen",
        "Given name Nils Peter",
        "Street Strandgaten 18",
        "Post code 5013",
        "Licence SF-114-B",
    ]
    assert [field for field in fields if field not in result.markdown] == []


def test_a_paragraph_on_a_scan_is_no_label_of_a_picture(worker: Worker, tmp_path: Path) -> None:
    """The network calls a page with a border a picture."""
    assert " ".join(NEWS) in worker.convert(pictured(tmp_path / "a.pdf", bordered)).markdown
