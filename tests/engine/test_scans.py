"""Pictures of pages: skewed ones are straight, columns stay apart, and a table is one."""

from __future__ import annotations

import importlib
import math
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from daemon.engine import runtime
from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    runtime.prepare(1)
    import pymupdf

LEFT = (
    "Every morning the keeper climbs the narrow stairs, cleans the great lens with a soft cloth and writes the weather."
)
RIGHT = "Ships that pass in the night see only a short flash, and their captains note the hour and the distance of it."
ROWS = [["Harbour", "Ships", "Cargo"], ["Lisbon", "314", "2718"], ["Genoa", "159", "1828"], ["Antwerp", "265", "4590"]]


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """Modules of the engine by name."""
    names = ("skew", "budget", "gutters", "pages", "order", "stages")
    return {name: importlib.import_module(f"daemon.engine.{name}") for name in names}


def pictured(path: Path, page_html: list[tuple[pymupdf.Rect, str]], *, skew: float) -> Path:
    """A PDF that is a picture of a page with HTML on it, turned clockwise by `skew` degrees; about 144 dpi."""
    with pymupdf.open() as document:
        page = document.new_page()
        for place, html in page_html:
            page.insert_htmlbox(place, html)
        seen = page.get_pixmap(dpi=144)
    picture = Image.frombytes("RGB", (seen.width, seen.height), seen.samples)
    picture.rotate(-skew, Image.Resampling.BICUBIC, fillcolor="white").save(path, resolution=144)
    return path


def test_skewed_columns_are_read_one_after_the_other(worker: Worker, tmp_path: Path) -> None:
    """A scan that lay askew by three degrees, its gutter as wide as two letters, gives each column whole."""
    style = '<p style="font-size:11pt;text-align:justify">{}</p>'
    columns = [
        (pymupdf.Rect(72, 90, 292, 500), style.format(f"{LEFT} " * 4)),
        (pymupdf.Rect(304, 90, 524, 500), style.format(f"{RIGHT} " * 4)),
    ]
    result = worker.convert(pictured(tmp_path / "skewed.pdf", columns, skew=3.0))
    assert result.markdown == " ".join([LEFT] * 4 + [RIGHT] * 4)
    assert "straightened by 3.0 degrees" in result.pages[0][3]


def slope(degrees: float, *, length: float = 200.0, height: float = 10.0) -> np.ndarray:
    """The quad of a line that slopes clockwise."""
    along = np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))], np.float32)
    down = np.array([-along[1], along[0]])
    start = np.array([50.0, 80.0], np.float32)
    corners = [start, start + length * along, start + length * along + height * down, start + height * down]
    return np.stack(corners).astype(np.float32)


@pytest.mark.parametrize(
    ("slopes", "expected"),
    [
        pytest.param([2.0, 2.1, 1.9, 45.0], 2.0, id="most lines agree"),
        pytest.param([-3.0, -3.0, -3.1], -3.0, id="against the clock"),
        pytest.param([0.1, 0.0, -0.1], 0.0, id="as straight as it gets"),
        pytest.param([2.0, -4.0, 8.0, 2.5], 0.0, id="no agreement"),
        pytest.param([30.0, 30.0], 0.0, id="a slant that is meant"),
        pytest.param([], 0.0, id="no lines"),
    ],
)
def test_skew_is_what_most_lines_agree_on(engine: dict[str, Any], slopes: list[float], expected: float) -> None:
    """A stamp or a drawing across the page turns nothing."""
    assert engine["skew"].skew_of([slope(each) for each in slopes]) == pytest.approx(expected, abs=0.01)


def test_short_words_say_nothing_about_skew(engine: dict[str, Any]) -> None:
    """The corners of a short box are a pixel off, and that is degrees."""
    assert engine["skew"].skew_of([slope(4.0, length=30.0)] * 9) == 0.0


def test_picture_and_lines_turn_back_alike(engine: dict[str, Any]) -> None:
    """The place of a straightened line is where its ink lies in the straightened picture."""
    import cv2  # noqa: PLC0415 - after `prepare`

    quad = slope(4.0)
    picture = np.full((200, 300, 3), 255, np.uint8)
    cv2.fillPoly(picture, [quad.astype(np.int32)], (0, 0, 0))
    straight, factor = engine["budget"].straight_within_edge(picture, 300, skew=4.0)
    ink = np.argwhere(straight[:, :, 0] < 128)
    (top, left), (bottom, right) = ink.min(axis=0), ink.max(axis=0)
    corners = engine["skew"].straight_quad(quad, 4.0, picture.shape)
    assert factor == 1.0
    assert np.allclose(corners, [[left, top], [right, top], [right, bottom], [left, bottom]], atol=2.0)


def line(engine: dict[str, Any], *words: tuple[int, int], width: int = 200) -> Any:
    """A line 10 pt high at 2 px a point, with ink from and to these points."""
    picture = np.full((20, 2 * width, 3), 255, np.uint8)
    for start, end in words:
        picture[4:16, 2 * start : 2 * end] = 0
    return engine["pages"].Line(box=box(engine, 0, 100, width, 110), picture=picture)


def box(engine: dict[str, Any], left: float, top: float, right: float, bottom: float) -> Any:
    """A top-left box."""
    origin = engine["gutters"].BoundingBox.model_fields["coord_origin"].default
    return engine["gutters"].BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=origin)


def test_a_line_is_cut_in_the_gutter(engine: dict[str, Any]) -> None:
    """Both parts have their ink and their place; nothing is lost between them."""
    regions = [box(engine, 0, 0, 95, 300), box(engine, 105, 0, 200, 300)]
    left, right = sorted(
        engine["gutters"].cut_at_gutters([line(engine, (2, 40), (43, 94), (106, 198))], regions), key=lambda x: x.box.l
    )
    assert (left.box.l, left.box.r, right.box.l, right.box.r) == pytest.approx((0, 100, 100, 200), abs=0.6)
    assert left.picture.shape[1] + right.picture.shape[1] == 400
    assert (left.picture == 0).sum() + (right.picture == 0).sum() == 3 * 12 * 2 * (38 + 51 + 92)


@pytest.mark.parametrize(
    ("words", "regions"),
    [
        pytest.param([(2, 198)], [(0, 0, 95, 300), (105, 0, 200, 300)], id="a heading across both columns"),
        pytest.param([(2, 94), (106, 198)], [(0, 0, 200, 300)], id="one region"),
        pytest.param([(2, 94), (106, 198)], [(0, 0, 95, 90), (105, 0, 200, 90)], id="columns that end above"),
        pytest.param([(2, 99), (101, 198)], [(0, 0, 99, 300), (101, 0, 200, 300)], id="a gap between words"),
    ],
)
def test_a_line_is_not_cut(
    engine: dict[str, Any], words: list[tuple[int, int]], regions: list[tuple[int, int, int, int]]
) -> None:
    """No cut goes through ink, or where there is no gutter."""
    whole = line(engine, *words)
    assert engine["gutters"].cut_at_gutters([whole], [box(engine, *region) for region in regions]) == [whole]


def test_columns_that_only_the_lines_show(engine: dict[str, Any]) -> None:
    """Where the layout network saw a picture, the lines that keep apart say where the columns are."""
    rows = [box(engine, x, 20 * n, x + 100, 20 * n + 12) for n in range(6) for x in (0, 98)]
    crossing = [box(engine, 0, 120 + 20 * n, 198, 132 + 20 * n) for n in range(3)]
    left, right = engine["gutters"].columns([*rows, *crossing])
    assert (left.l, left.r) == (0, 100)
    assert (right.l, right.r) == (100, 198)


def test_numbers_beside_entries_are_no_column(engine: dict[str, Any]) -> None:
    """A table of contents is read row by row."""
    rows = [box(engine, x, 20 * n, x + wide, 20 * n + 12) for n in range(9) for x, wide in ((0, 150), (190, 14))]
    assert engine["gutters"].columns(rows) == []


def order_of(engine: dict[str, Any], *places: tuple[str, str, tuple[float, float, float, float]]) -> list[str]:
    """Names in reading order of elements with (name, label, box) on a letter page."""
    order, docling = engine["order"], engine["pages"]
    labels = order.DocItemLabel
    elements = [
        SimpleNamespace(
            page_no=1, id=n, text=name, label=labels(label), cluster=SimpleNamespace(id=n, bbox=box(engine, *place))
        )
        for n, (name, label, place) in enumerate(places)
    ]
    result = SimpleNamespace(
        pages=[SimpleNamespace(page_no=1, size=docling.Size(width=612.0, height=792.0))],
        assembled=SimpleNamespace(elements=elements),
    )
    model = order.ReadingOrder(engine["stages"].ReadingOrderOptions())
    shown = model._assembled_to_readingorder_elements(result)
    return [element.text for element in model.ro_model.predict_reading_order(page_elements=shown)]


def test_a_short_heading_stays_below_the_title(engine: dict[str, Any]) -> None:
    """A title in the middle, and a heading at the left that it does not reach over: the title is first."""
    left, right = ("left", "text", (70.0, 268.0, 303.0, 670.0)), ("right", "text", (308.0, 246.0, 541.0, 670.0))
    title, heading = (
        ("title", "section_header", (153.0, 150.0, 456.0, 222.0)),
        ("head", "text", (70.0, 246.0, 136.0, 262.0)),
    )
    assert order_of(engine, left, right, heading, title) == ["title", "head", "left", "right"]


def test_a_scanned_table_has_its_cells(worker: Worker, tmp_path: Path) -> None:
    """Rows and columns of a table in a picture come out as such, each text once."""
    cells = "".join(
        "<tr>" + "".join(f'<td style="border:1px solid black;padding:6px">{text}</td>' for text in row) + "</tr>"
        for row in ROWS
    )
    html = f'<p>{LEFT}</p><table style="border-collapse:collapse;width:100%">{cells}</table><p>{RIGHT}</p>'
    path = pictured(tmp_path / "table.pdf", [(pymupdf.Rect(72, 72, 524, 500), html)], skew=0.0)
    markdown = worker.convert(path).artefacts["document.md"].decode()
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in markdown.splitlines()
        if row.startswith("|") and not row.startswith("|-")
    ]
    assert rows == ROWS
