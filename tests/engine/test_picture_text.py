"""Labels at the edge of a picture, and captions in the middle of one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.parts import Place, box, cluster, line, modules

pytestmark = pytest.mark.engine

CAPTION = "Figure 1: Figures of all kinds"


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """The engine's modules by name."""
    return modules()


def picture(engine: dict[str, Any], place: Place, *children: Any) -> Any:
    """A picture at this place, after Docling has given it what lies in it."""
    made = cluster(engine, "picture", [line(engine, "unused", place)], 100)
    made.children = list(children)
    made.cells = [cell for child in children for cell in child.cells]
    return made


def block(engine: dict[str, Any], label: str, text: str, place: Place, number: int) -> Any:
    """A block of one line."""
    return cluster(engine, label, [line(engine, text, place, index=number)], number)


def refined(engine: dict[str, Any], *clusters: Any) -> list[Any]:
    """What comes out, each line once and each id once."""

    def within(ones: Any) -> list[Any]:
        return [cell.index for one in ones for cell in (one.cells if not one.children else [])] + [
            cell.index for one in ones for child in one.children for cell in child.cells
        ]

    before = sorted(within(clusters))
    found: list[Any] = engine["blocks"].refine(list(clusters))
    assert sorted(within(found)) == before
    every = [one.id for cluster in found for one in (cluster, *cluster.children)]
    assert len(set(every)) == len(every)
    return found


def texts(found: Any) -> list[str]:
    """The texts of blocks."""
    return [" ".join(cell.text for cell in one.cells) for one in found]


@pytest.mark.parametrize(
    ("label", "text", "place", "taken"),
    [
        ("text", "Base Models", (150, 92, 200, 104), True),
        ("text", "Base Models", (150, 86, 200, 104), False),
        ("text", "Base Models", (150, 104, 200, 116), True),
        ("text", "The models are shown below", (150, 92, 200, 104), False),
        ("section_header", "Base Models", (150, 92, 200, 104), False),
        ("page_header", "Base Models", (150, 92, 200, 104), False),
        ("text", "Figure 1", (150, 92, 200, 104), False),
    ],
    ids=["partly", "hardly", "within", "a sentence", "a heading", "a running title", "a caption"],
)
def test_a_short_line_at_the_edge_of_a_picture_is_its_label(
    engine: dict[str, Any], label: str, text: str, place: Place, *, taken: bool
) -> None:
    """The figures of an axis stood among the paragraphs, each a paragraph of one letter."""
    inside = block(engine, "text", "0.2", (110, 150, 130, 160), 1)
    found = refined(engine, picture(engine, (100, 98, 300, 200), inside), block(engine, label, text, place, 2))
    drawn = next(one for one in found if one.label.value == "picture")
    assert texts(drawn.children) == (["0.2", text] if taken else ["0.2"])
    assert texts(found) == (["0.2 " + text] if taken else ["0.2", text])
    assert drawn.bbox.t == min(98, place[1] if taken else 98)


def test_two_lines_at_the_edge_of_a_picture_are_a_paragraph(engine: dict[str, Any]) -> None:
    """However short they are."""
    lines = [line(engine, "one", (150, 96, 200, 104), index=1), line(engine, "two", (150, 106, 200, 114), index=2)]
    assert len(refined(engine, picture(engine, (100, 98, 300, 200)), cluster(engine, "text", lines, 1))) == 2


def test_the_picture_with_most_of_a_label_has_it(engine: dict[str, Any]) -> None:
    """Two figures stand side by side, and a label between them."""
    left, right = picture(engine, (100, 100, 200, 200)), picture(engine, (196, 100, 300, 200))
    right.id = 101
    found = refined(engine, left, right, block(engine, "text", "Z", (190, 150, 200, 160), 1))
    assert [texts(one.children) for one in found] == [["Z"], []]


def test_a_caption_within_a_picture_parts_two_figures(engine: dict[str, Any]) -> None:
    """One box around both had the upper one's caption, which then was nowhere in the Markdown."""
    inside = [
        block(engine, "text", "upper", (110, 110, 150, 120), 1),
        block(engine, "caption", CAPTION, (110, 150, 290, 160), 2),
        block(engine, "text", "lower", (110, 180, 150, 190), 3),
    ]
    found = refined(engine, picture(engine, (100, 100, 300, 200), *inside))
    assert sorted((one.label.value, *texts([one])) for one in found) == [
        ("caption", CAPTION),
        ("picture", "lower"),
        ("picture", "upper"),
    ]
    spans = {texts([one])[0]: (one.bbox.t, one.bbox.b) for one in found}
    assert spans == {"upper": (100, 150), CAPTION: (150, 160), "lower": (160, 200)}


def test_a_picture_of_a_caption_alone_stays(engine: dict[str, Any]) -> None:
    """An image has no labels in the text layer."""
    inside = block(engine, "caption", CAPTION, (110, 150, 290, 160), 1)
    found = refined(engine, picture(engine, (100, 100, 300, 200), inside))
    assert [one.label.value for one in found] == ["picture", "caption"]
    assert found[0].bbox == box(engine, (100, 100, 300, 200))


@pytest.mark.parametrize(("label", "text"), [("text", CAPTION), ("caption", "all kinds of figures")])
def test_what_only_looks_like_a_caption_stays_in_its_picture(engine: dict[str, Any], label: str, text: str) -> None:
    """A picture of a page may show anything."""
    inside = block(engine, label, text, (110, 150, 290, 160), 1)
    assert len(refined(engine, picture(engine, (100, 100, 300, 200), inside))) == 1
