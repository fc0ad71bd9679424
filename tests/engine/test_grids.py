"""Grids checked against rules and texts, and rules found among what is drawn: the pure parts."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daemon.engine import runtime

pytestmark = pytest.mark.engine


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """Modules of the engine by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime.prepare(1)
    names = ("rules", "strokes", "ruled", "splitting", "lanes", "pages", "tables", "regions")
    return {name: importlib.import_module(f"daemon.engine.{name}") for name in names}


def test_too_many_shapes_are_not_looked_at(engine: dict[str, Any]) -> None:
    """They are counted before one is copied, and so are the corners of a single shape."""

    class Untouched(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

    shapes = Untouched([None] * (engine["strokes"].MOST_SHAPES + 1))
    assert engine["strokes"].drawn(SimpleNamespace(get_page_shapes=lambda: shapes), 800) is None
    coil = SimpleNamespace(get_i=lambda: [0, engine["strokes"].MOST_CORNERS + 1])
    assert engine["strokes"].drawn(SimpleNamespace(get_page_shapes=lambda: [coil]), 800) is None


def pieces(engine: dict[str, Any], rows: Sequence[Sequence[str]], *, pitch: float = 12.0, width: float = 60.0) -> Any:
    """Texts 10 pt high in columns that are `width` wide."""
    box = engine["regions"].BoundingBox
    origin = box.model_fields["coord_origin"].default
    return [
        engine["lanes"].Piece(
            text=text,
            box=box(l=width * c + 5, t=pitch * r, r=width * c + 35, b=pitch * r + 10, coord_origin=origin),
        )
        for r, row in enumerate(rows)
        for c, text in enumerate(row)
        if text
    ]


def plain_grid(engine: dict[str, Any], rows: Sequence[float], columns: Sequence[float]) -> Any:
    """One cell for each place."""
    cells = [(r, r + 1, c, c + 1) for r in range(len(rows) - 1) for c in range(len(columns) - 1)]
    return engine["pages"].Grid(rows=list(rows), columns=list(columns), cells=cells)


def test_without_rules_the_prediction_stays(engine: dict[str, Any]) -> None:
    """The very grid, its cells as they were; a frame around the table and a rule below its head say nothing inside."""
    held = pieces(engine, [["a", "b"], ["1", "2"], ["3", "4"]])
    around = engine["regions"].union([piece.box for piece in held])
    grid = plain_grid(engine, [0, 11, 23, 34], [0, 50, 100])
    frame = engine["rules"].rules_of([(0, -2, 100, -2), (0, 36, 100, 36), (0, -2, 0, 36), (100, -2, 100, 36)])
    assert engine["ruled"].checked(grid, engine["rules"].Rules(), held, around) is grid
    assert engine["ruled"].checked(grid, frame, held, around) is grid
    head = engine["rules"].rules_of([(0, -2, 100, -2), (0, 11, 100, 11), (0, 36, 100, 36)])
    found = engine["ruled"].checked(grid, head, held, around)
    assert (found.rows, found.columns[1:-1], len(found.cells)) == ([-2, 11, 23, 36], [50], 6)


def test_a_rule_through_texts_parts_nothing(engine: dict[str, Any]) -> None:
    """A stamp, a chart or a cancelled line."""
    held = pieces(engine, [["a", "b"], ["1", "2"], ["3", "4"]])
    grid = plain_grid(engine, [0, 11, 23, 34], [0, 50, 100])
    around = engine["regions"].union([piece.box for piece in held])
    through = engine["rules"].rules_of([(20, -2, 20, 36), (0, 17, 100, 17)])
    assert engine["ruled"].checked(grid, through, held, around) is grid


def test_a_long_rule_is_a_boundary_that_nobody_predicted(engine: dict[str, Any]) -> None:
    """A table of horizontal rules alone has its head apart; what was predicted between the others stays."""
    held = pieces(engine, [["a", "b"], ["1", "2"], ["3", "4"]])
    around = engine["regions"].union([piece.box for piece in held])
    grid = plain_grid(engine, [0, 23, 34], [0, 50, 100])
    head = engine["rules"].rules_of([(0, -2, 100, -2), (0, 11, 100, 11), (0, 36, 100, 36)])
    assert engine["ruled"].checked(grid, head, held, around).rows == [-2, 11, 23, 36]


def test_a_rule_that_belongs_to_a_line_parts_nothing(engine: dict[str, Any]) -> None:
    """A link's underline and the leader of an entry are as long as a boundary, and stand at the foot of letters."""
    held = pieces(engine, [["a title", ""], ["more of it", ""], ["last", "7"]])
    held[0].box = held[0].box.model_copy(update={"r": 75.0})
    around = engine["regions"].union([piece.box for piece in held])
    grid = plain_grid(engine, [0, 40], [0, 50, 100])
    for start, end in ((5, 75), (78, 200)):
        rules = engine["rules"].rules_of([(start, 10, end, 10)])
        assert engine["ruled"].checked(grid, rules, held, around) is grid


def ruled_columns(engine: dict[str, Any], *, top: float, bottom: float) -> Any:
    """Rules across at the ends and between the first rows, and four down, the inner ones from `top`."""
    across = [(0, y, 180, y) for y in (-1, 11, 23, bottom)]
    return engine["rules"].rules_of(
        [*across, *((x, -1, x, bottom) for x in (0, 180)), *((x, top, x, bottom) for x in (60, 120))]
    )


def test_rows_of_words_in_one_frame_stay_as_predicted(engine: dict[str, Any]) -> None:
    """No cell that wraps has all its neighbours wrap on the same lines; one alone does."""
    words = [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"], ["j", "k", "l"]]
    grid = plain_grid(engine, [0, 11, 23, 35, 47], [0, 50, 110, 160])
    found = {}
    for name, rows in {"rows": words, "wraps": [*words[:3], ["j", "", ""]]}.items():
        held = pieces(engine, rows)
        around = engine["regions"].union([piece.box for piece in held])
        found[name] = engine["ruled"].checked(grid, ruled_columns(engine, top=-1, bottom=47), held, around).rows
    assert found == {"rows": [-1, 11, 23, 35, 47], "wraps": [-1, 11, 23, 47]}


def test_texts_of_two_columns_are_never_one_cell(engine: dict[str, Any]) -> None:
    """A head without rules between its names stands above ruled columns; one without texts is merged."""
    grid = plain_grid(engine, [0, 11, 23, 35], [0, 50, 110, 160])
    found = []
    for head in (["a", "b", "c"], ["", "b", ""]):
        held = pieces(engine, [head, ["d", "e", "f"], ["g", "h", "i"]])
        around = engine["regions"].union([piece.box for piece in held])
        rules = ruled_columns(engine, top=11, bottom=35)
        found.append([cell for cell in engine["ruled"].checked(grid, rules, held, around).cells if cell[0] == 0])
    assert found == [[(0, 1, 0, 1), (0, 1, 1, 2), (0, 1, 2, 3)], [(0, 1, 0, 3)]]


def test_the_frame_of_a_table_belongs_to_it_however_far(engine: dict[str, Any]) -> None:
    """Cells are wider than their texts; what stands beside the frame is another table's."""
    box = engine["regions"].BoundingBox
    text = box(l=100, t=100, r=200, b=200, coord_origin=box.model_fields["coord_origin"].default)
    frame = [(50, 95, 260, 95), (50, 205, 260, 205), (50, 95, 50, 205), (260, 95, 260, 205), (150, 95, 150, 205)]
    beside = [(300, 95, 300, 205), (320, 95, 320, 205), (50, 400, 260, 400)]
    near = engine["rules"].rules_of([*frame, *beside]).around(text, 10)
    assert [rule.at for rule in near.across] == [95, 205]
    assert [rule.at for rule in near.down] == [50, 150, 260]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([["Guam", "0", "1,000"], ["Hawaii", "12", "55"]], 2, id="figures in most columns"),
        pytest.param([["Guam", "12", "7"], ["(island)", "", ""]], 1, id="a wrapped name"),
        pytest.param([["First", "Last", "Date of"], ["name", "name", "birth"]], 1, id="wrapped words everywhere"),
        pytest.param([["Guam", "1", "2"], ["(island)", "", ""], ["Hawaii", "3", "4"]], 2, id="one of two wraps"),
        pytest.param([["1", "2"], ["3", "4"]], 1, id="too few columns to tell"),
        pytest.param([["", "2014-", "2016-", "x"], ["", "2015", "2017", "y"]], 1, id="figures that go on"),
    ],
)
def test_rows_taken_for_one_are_told_apart_by_their_figures(
    engine: dict[str, Any], rows: list[list[str]], expected: int
) -> None:
    """Figures do not wrap; a cell that does has more lines than its neighbours. No text is cut by the new boundary."""
    held = pieces(engine, rows)
    columns = [60.0 * n for n in range(len(rows[0]) + 1)]
    found = engine["splitting"].split(plain_grid(engine, [-2, 40], columns), held)
    assert len(found.rows) - 1 == expected
    assert len(found.cells) == expected * len(rows[0])
    assert not any(piece.box.t < y < piece.box.b for piece in held for y in found.rows)


def test_words_beside_a_rule_are_two_pieces(engine: dict[str, Any]) -> None:
    """However near they stand; elsewhere words with a blank between them are one."""
    box = engine["regions"].BoundingBox
    origin = box.model_fields["coord_origin"].default
    words = [
        ("Long", box(l=0, t=0, r=20, b=10, coord_origin=origin)),
        ("Gun", box(l=22, t=0, r=40, b=10, coord_origin=origin)),
        ("5", box(l=42, t=0, r=46, b=10, coord_origin=origin)),
    ]
    rules = engine["rules"].rules_of([(41, -5, 41, 15)])
    assert [piece.text for piece in engine["lanes"].pieces_of(words, rules)] == ["Long Gun", "5"]


def test_the_edge_of_a_shaded_cell_is_no_rule_and_lines_that_cross_are_whole(engine: dict[str, Any]) -> None:
    """A picture shows both; only what is darker than both its sides was drawn as a line."""
    picture = np.full((400, 600, 3), 255, np.uint8)
    picture[50:150, 50:300] = 120
    picture[200:203, 52:550] = 0
    picture[160:380, 100:102] = 0
    found = engine["strokes"].pictured(picture, 2.0)
    assert [(round(r.at), round(r.start), round(r.end)) for r in found.across] == [(101, 26, 275)]
    assert [(round(r.at), round(r.start), round(r.end)) for r in found.down] == [(50, 80, 190)]


def test_what_is_drawn_in_pieces_is_one_rule(engine: dict[str, Any]) -> None:
    """Cells draw their own edges; slanted lines, dots and bars are none."""
    strokes = [(0, 10, 50, 10), (50, 10.5, 100, 10.5), (0, 0, 90, 90), (5, 5, 5, 5), (0, 20, 60, 40)]
    found = engine["rules"].rules_of(strokes)
    assert [(r.at, r.start, r.end) for r in found.across] == [(10.25, 0, 100)]
    assert found.down == ()
