"""Which blocks are headings, and which single items are none: told from how they are set."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.parts import Place, cluster, line, modules

pytestmark = pytest.mark.engine

BOLD, ROMAN = "Batang-Bold", "Batang-Light"
PROSE = "Whoever reads this has running text before their eyes, and much of it"


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """The engine's modules by name."""
    return modules()


def page(engine: dict[str, Any], *blocks: tuple[str, str, Place, str]) -> list[tuple[str, str]]:
    """(label, text) of what comes out of blocks of one line: label, text, place, font; running text is beside them."""
    given = [("text", PROSE, (50.0, 300.0, 350.0, 310.0), ROMAN), *blocks]
    clusters = [
        cluster(engine, label, [line(engine, text, place, font=font, index=n)], n)
        for n, (label, text, place, font) in enumerate(given)
    ]
    found = engine["blocks"].refine(clusters)
    assert sorted(cell.index for c in found for cell in c.cells) == list(range(len(given)))
    return [(c.label.value, " ".join(cell.text for cell in c.cells)) for c in found if c.cells[0].index > 0]


def test_a_number_beside_its_title_is_one_heading_with_it(engine: dict[str, Any]) -> None:
    """A number in a box of its own was a heading by itself; the lines stay in the order of the file."""
    title = ("section_header", "Introduction", (75.0, 100.0, 150.0, 115.0), BOLD)
    number = ("section_header", "2.1", (50.0, 99.0, 60.0, 114.0), BOLD)
    assert page(engine, number, title) == [("section_header", "2.1 Introduction")]
    assert page(engine, title, number) == [("section_header", "Introduction 2.1")]


@pytest.mark.parametrize(
    ("text", "place", "font"),
    [
        ("2", (5.0, 99.0, 15.0, 114.0), BOLD),
        ("2", (50.0, 120.0, 60.0, 135.0), BOLD),
        ("2", (160.0, 100.0, 170.0, 115.0), BOLD),
        ("2", (50.0, 99.0, 60.0, 114.0), ROMAN),
        ("We", (50.0, 99.0, 60.0, 114.0), BOLD),
    ],
    ids=["far away", "below", "behind", "in another font", "a word"],
)
def test_what_is_no_number_of_a_title_stays_apart(engine: dict[str, Any], text: str, place: Place, font: str) -> None:
    """Two columns may have a heading each on one line."""
    title = ("section_header", "Introduction", (75.0, 100.0, 150.0, 115.0), BOLD)
    assert len(page(engine, title, ("section_header", text, place, font))) == 2


@pytest.mark.parametrize(
    ("text", "font", "expected"),
    [
        ("is what will be decided.", ROMAN, "text"),
        ("판단된다.", ROMAN, "text"),
        ("is what will be decided.", BOLD, "section_header"),
        ("2. What will be decided.", ROMAN, "section_header"),
        ("What will be decided", ROMAN, "section_header"),
    ],
)
def test_the_last_line_of_a_paragraph_is_no_heading(
    engine: dict[str, Any], text: str, font: str, expected: str
) -> None:
    """At the top of a column it stands alone, with a wider gap below; it is set as all running text."""
    assert page(engine, ("section_header", text, (360.0, 50.0, 450.0, 60.0), font)) == [(expected, text)]


@pytest.mark.parametrize(
    ("text", "font", "height", "expected"),
    [
        ("Issues and views", BOLD, 20.0, "section_header"),
        ("Issues and views", "Other-Bold", 20.0, "text"),
        ("Issues and views", ROMAN, 20.0, "text"),
        ("Issues and views", BOLD, 13.0, "text"),
        ("Issues and views.", BOLD, 20.0, "text"),
        ("Issues and views of everybody who has any of them", BOLD, 20.0, "text"),
    ],
    ids=["a title", "in no heading's font", "not bold", "not large", "a sentence", "long"],
)
def test_a_large_line_in_the_font_of_the_headings_is_one(
    engine: dict[str, Any], text: str, font: str, height: float, expected: str
) -> None:
    """A title in a coloured box was text to the layout network."""
    heads = [
        ("section_header", f"Set in {name}", (75.0, y, 150.0, y + 15), name)
        for y, name in ((100.0, BOLD), (150.0, ROMAN))
    ]
    assert page(engine, *heads, ("text", text, (400.0, 20.0, 550.0, 20.0 + height), font))[2] == (expected, text)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["This paper is sent to members"], "text"),
        (["One paragraph stands apart", "and another one does"], "text"),
        (["One paragraph", "• one item"], "list_item"),
        (["1) an item", "that is all"], "list_item"),
        (["[7] a source", "its publisher"], "list_item"),
        (["(ii) a case", "another"], "list_item"),
        (["SM590000 a bullet whose glyph has a name only", "another"], "list_item"),
        (["one", "two", "three"], "list_item"),
    ],
)
def test_one_or_two_items_without_a_mark_are_paragraphs(
    engine: dict[str, Any], texts: list[str], expected: str
) -> None:
    """A paragraph that stands apart, in a box or indented, is not a list; three things below each other may be one."""
    items = [("list_item", text, (60.0, 400.0 + 20 * n, 200.0, 410.0 + 20 * n), ROMAN) for n, text in enumerate(texts)]
    assert [label for label, _ in page(engine, *items)] == [expected] * len(texts)
