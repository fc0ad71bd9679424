"""Figures of a page, and what a table holds."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.parts import Place, box, cluster, line, modules

pytestmark = pytest.mark.engine


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """The engine's modules by name."""
    return modules()


def cells_of(engine: dict[str, Any], grid: Any, texts: Sequence[tuple[str, Place]]) -> list[list[str]]:
    """The filled grid as rows of texts, spans repeated; no cell lies on another."""
    grid, cells = engine["tables"].filled(grid, [(text, box(engine, place)) for text, place in texts])
    rows = [[""] * (len(grid.columns) - 1) for _ in grid.rows[1:]]
    taken = set()
    for cell in cells:
        for row in range(cell.start_row_offset_idx, cell.end_row_offset_idx):
            for column in range(cell.start_col_offset_idx, cell.end_col_offset_idx):
                assert (row, column) not in taken
                taken.add((row, column))
                rows[row][column] = cell.text
    return rows


def grid_of(engine: dict[str, Any], columns: list[float], rows: int, **fields: Any) -> Any:
    """A grid of rows 10 pt high, each with one cell per column unless said otherwise."""
    cells = [(row, row + 1, column, column + 1) for row in range(rows) for column in range(len(columns) - 1)]
    words = [(word, box(engine, place)) for word, place in fields.pop("words", ())]
    given = {"cells": cells, "words": words} | fields
    return engine["pages"].Grid(rows=[10.0 * n for n in range(rows + 1)], columns=columns, **given)


def test_a_line_across_columns_is_cut_at_its_gaps(engine: dict[str, Any]) -> None:
    """The text parser makes one line of cells that stand close; MuPDF's words know where each stands."""
    words = [("Fuel", (0, 1, 18, 9)), ("use", (20, 1, 30, 9)), ("Idle", (52, 1, 70, 9))]
    grid = grid_of(engine, [0, 50, 100], 1, words=words)
    assert cells_of(engine, grid, [("Fuel use Idle", (0, 1, 70, 9))]) == [["Fuel use", "Idle"]]


def test_a_heading_over_several_columns_is_not_cut(engine: dict[str, Any]) -> None:
    """A boundary that passes between two words with a blank between them does not part them."""
    words = [("Fuel", (30, 1, 48, 9)), ("savings", (49.8, 1, 80, 9))]
    grid = grid_of(engine, [0, 49, 100], 1, words=words)
    assert cells_of(engine, grid, [("Fuel savings", (30, 1, 80, 9))]) == [["Fuel savings", ""]]


def test_a_line_that_the_parsers_read_differently_stays_whole(engine: dict[str, Any]) -> None:
    """Half of a line must not be lost because one parser knows a glyph and the other does not."""
    grid = grid_of(engine, [0, 50, 100], 1, words=[("�", (0, 1, 18, 9)), ("Idle", (52, 1, 70, 9))])
    assert cells_of(engine, grid, [("• Idle", (0, 1, 70, 9))]) == [["• Idle", ""]]


def test_a_bullet_glued_to_the_word_before_it_starts_its_own_cell(engine: dict[str, Any]) -> None:
    """MuPDF makes one word of signs that stand close, whatever they are."""
    grid = grid_of(engine, [0, 50, 100], 1, words=[("Code◦", (10, 1, 60, 9)), ("none", (62, 1, 80, 9))])
    assert cells_of(engine, grid, [("Code◦ none", (10, 1, 80, 9))]) == [["Code", "◦ none"]]


def test_no_line_is_dropped_for_want_of_a_cell(engine: dict[str, Any]) -> None:
    """Where the predictor saw no cell there is one, and a line beyond the edges goes into the nearest."""
    grid = grid_of(engine, [0, 50, 100], 2, cells=[(0, 1, 0, 2), (0, 1, 1, 2), (0, 2, 0, 1)])
    texts = [("wide", (0, 1, 20, 9)), ("own", (60, 1, 80, 9)), ("none", (60, 11, 80, 19)), ("over", (5, 24, 25, 32))]
    assert sorted(" ".join(" ".join(row) for row in cells_of(engine, grid, texts)).split()) == [
        "none",
        "over",
        "own",
        "wide",
    ]


def test_a_table_of_contents_has_a_column_of_page_numbers(engine: dict[str, Any]) -> None:
    """Leaders fill the gap in which a boundary would be seen."""
    entries = ["Preface . . . . . . . xi", "Chapter 1. Roles . . . 7", "Notes", "1.1 More . . . . . . 12"]
    texts = [(entry, (0.0, 10.0 * n + 1, 95.0, 10.0 * n + 9)) for n, entry in enumerate(entries)]
    found = cells_of(engine, grid_of(engine, [0, 100], 4), texts)
    assert found[0] == ["Preface . . . . . . .", "xi"]
    assert [row[1] for row in found] == ["xi", "7", "", "12"]
    plain = [("one ... 2", (0.0, 1.0, 95.0, 9.0)), ("two", (0.0, 11.0, 95.0, 19.0)), ("three", (0.0, 21.0, 95.0, 29.0))]
    assert cells_of(engine, grid_of(engine, [0, 100], 3), plain) == [["one ... 2"], ["two"], ["three"]]


class Sheet:
    """A page of 600 x 800 pt with what is drawn on it."""

    def __init__(self, engine: dict[str, Any], texts: Sequence[Any], images: Sequence[Any], shapes: Any) -> None:
        self.size, self.texts, self.images, self.shapes = (
            engine["pages"].Size(width=600, height=800),
            texts,
            images,
            shapes,
        )

    def get_size(self) -> Any:
        """See SourcePage."""
        return self.size

    def get_visible_text_cells(self) -> Any:
        """See SourcePage."""
        return self.texts

    def get_bitmap_rects(self) -> Any:
        """See SourcePage."""
        return self.images

    def get_connected_shape_bounding_boxes(self) -> Any:
        """See SourcePage."""
        return self.shapes


def figured(engine: dict[str, Any], clusters: list[Any], **drawn: list[Place]) -> list[tuple[str, Place]]:
    """(label, box) of the regions of a page with these images and shapes."""
    texts = [cell for c in clusters for cell in c.cells]
    places = {name: [box(engine, place) for place in drawn.get(name, [])] for name in ("images", "shapes")}
    found = engine["figures"].with_figures(clusters, Sheet(engine, texts, **places))
    assert len({c.id for c in found}) == len(found)
    return [(c.label.value, c.bbox.as_tuple()) for c in found]


BODY: Place = (50, 100, 550, 110)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ((50, 200, 350, 400), 1),
        ((50, 200, 80, 230), 0),
        ((0, 150, 600, 800), 0),
        ((40, 105, 560, 145), 0),
        ((40, 90, 560, 300), 0),
    ],
    ids=["a figure", "an icon", "most of the page", "behind half a line", "around a paragraph"],
)
def test_an_image_on_a_page_of_text_is_a_picture(engine: dict[str, Any], image: Place, expected: int) -> None:
    """The layout network sees no image: its caption had no picture, and its labels stood among the paragraphs."""
    body = cluster(engine, "text", [line(engine, "words", BODY)])
    found = figured(engine, [body], images=[image])
    assert found == [("text", BODY), *[("picture", image)] * expected]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ((50, 300.5, 350, 400), 1),
        ((350, 200, 550, 300), 1),
        ((50, 303, 350, 400), 2),
        ((50, 300, 300, 400), 2),
        ((60, 300.5, 350, 400), 2),
        ((60, 300.5, 360, 400), 2),
        ((360, 200, 560, 300), 2),
    ],
    ids=["below", "beside", "apart", "shorter", "shorter at the left", "out of line", "apart beside"],
)
def test_strips_of_one_image_are_one_picture(engine: dict[str, Any], second: Place, expected: int) -> None:
    """A figure that is saved in strips was several pictures, and a letter at a seam was read twice or not at all."""
    body = cluster(engine, "text", [line(engine, "words", BODY)])
    found = figured(engine, [body], images=[(50, 200, 350, 300), second])
    assert [label for label, _ in found] == ["text", *["picture"] * expected]


def test_an_image_that_has_a_region_gets_no_second_one(engine: dict[str, Any]) -> None:
    """Each figure once."""
    region = cluster(engine, "picture", [line(engine, "label", (60, 210, 100, 220))])
    region.bbox = box(engine, (60, 210, 340, 390))
    assert len(figured(engine, [region], images=[(50, 200, 350, 400)])) == 1


def test_a_picture_in_which_nothing_is_drawn_is_text(engine: dict[str, Any]) -> None:
    """A title page's title is often taken for one, and Docling leaves out a picture's text."""
    body = [
        cluster(engine, "text", [line(engine, "words", (50, 300 + 20 * n, 550, 310 + 20 * n))], n) for n in range(3)
    ]
    title = cluster(engine, "picture", [line(engine, "A title", (50, 100, 300, 130))], 7)
    small = cluster(engine, "picture", [line(engine, "a note", (50, 150, 100, 160))], 8)
    drawn = cluster(engine, "picture", [line(engine, "axis", (50, 500, 100, 510))], 9)
    found = figured(engine, [*body, title, small, drawn], shapes=[(0, 0, 600, 799), (40, 490, 300, 700)])
    assert [label for label, _ in found][3:] == ["section_header", "text", "picture"]


def test_labels_of_a_figure_stay_in_it_and_prose_in_an_image_does_not(engine: dict[str, Any]) -> None:
    """A screen's or a chart's words are no paragraphs; a scanned paragraph on a page of text is one."""
    regions, line_of = engine["regions"], engine["pages"].Line
    picture = engine["blocks"].Cluster(
        id=0, label=engine["blocks"].DocItemLabel.PICTURE, bbox=box(engine, (0, 0, 300, 100)), confidence=1.0
    )
    places = [box(engine, (10, 10 + 20 * n, 290, 25 + 20 * n)) for n in range(4)]
    labels = [line_of(box=place, picture=None, text="Views and Tables") for place in places]
    prose = [line_of(box=place, picture=None, text="words of a sentence that goes on") for place in places]
    assert regions.free_text_from_pictures([picture], labels, alone=False) == [picture]
    assert regions.free_text_from_pictures([picture], prose, alone=False) == []


@pytest.mark.parametrize(
    ("lines", "pitch", "text", "is_text"),
    [
        (3, 14, "words of a sentence that goes on", True),
        (2, 14, "words of a sentence that goes on", False),
        (3, 40, "words of a sentence that goes on", False),
        (3, 14, "Axis of time", False),
    ],
    ids=["a paragraph", "two lines", "apart", "labels"],
)
def test_a_paragraph_in_a_large_picture_of_a_scan_is_text(
    engine: dict[str, Any], lines: int, pitch: int, text: str, *, is_text: bool
) -> None:
    """A page with a border is taken for one picture; three lines of prose below each other are no labels of it."""
    regions, line_of = engine["regions"], engine["pages"].Line
    picture = engine["blocks"].Cluster(
        id=0, label=engine["blocks"].DocItemLabel.PICTURE, bbox=box(engine, (0, 100, 600, 700)), confidence=1.0
    )
    places = [(50, 200 + pitch * n, 300, 210 + pitch * n) for n in range(lines)]
    read = [line_of(box=box(engine, place), picture=None, text=text) for place in places]
    heading = line_of(box=box(engine, (50, 20, 300, 40)), picture=None, text="A heading outside")
    left = regions.free_text_from_pictures([picture], [heading, *read], alone=True)
    assert left == ([] if is_text else [picture])


@pytest.mark.parametrize(
    ("text", "expected"), [("� ������� ���", True), ("�", False), ("� item", False), ("na�ve", False), ("", False)]
)
def test_a_line_of_replacement_characters_is_no_text(engine: dict[str, Any], text: str, *, expected: bool) -> None:
    """Its font does not say which letters it has; a bullet alone may be such a sign."""
    assert engine["ocr"].undecoded(text) is expected


def test_lines_without_letters_are_taken_out_to_be_read(engine: dict[str, Any]) -> None:
    """They leave the text layer, or the reader's words would stand beside them, and the account says so."""
    cells = [line(engine, "words", (50, 100, 90, 110)), line(engine, "�����", (50, 120, 90, 130), index=1)]
    segmented = SimpleNamespace(textline_cells=cells)
    page = SimpleNamespace(get_segmented_page=lambda: segmented, notes=engine["pages"].Notes())
    assert [b.as_tuple() for b in engine["ocr"]._take_out_undecoded(page)] == [(50, 120, 90, 130)]
    assert [cell.text for cell in segmented.textline_cells] == ["words"]
    assert page.notes.remarks == ["1 line(s) in a font without letters were read from their picture"]
    assert engine["ocr"]._take_out_undecoded(page) == []
    assert len(page.notes.remarks) == 1


def test_very_many_images_are_not_joined(engine: dict[str, Any]) -> None:
    """A page of a hundred thousand dots must not take its child's time."""
    dots = [box(engine, (n % 600, n // 600, n % 600 + 1, n // 600 + 1)) for n in range(2000)]
    figure = box(engine, (50, 200, 350, 400))
    few, many = engine["figures"]._not_too_many(dots[:9]), engine["figures"]._not_too_many([*dots, figure])
    assert (len(few), many) == (9, [figure])
