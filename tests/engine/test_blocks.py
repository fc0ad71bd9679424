"""The engine's look at letters: code, single items, headings within paragraphs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.parts import cluster, line, modules, stacked

pytestmark = pytest.mark.engine


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """The engine's modules by name."""
    return modules()


def refined(engine: dict[str, Any], *clusters: Any) -> list[tuple[str, str]]:
    """(label, text) of what comes out."""
    found = engine["blocks"].refine(list(clusters))
    assert len({c.id for c in found}) == len(found)
    return [(c.label.value, " ".join(cell.text for cell in c.cells)) for c in found]


SQL = ["SELECT user_name, user_type", "FROM function_usage", "WHERE id='QIBM_DB'", "ORDER BY user_name;"]


def test_lines_of_one_pitch_with_the_signs_of_code_are_code(engine: dict[str, Any]) -> None:
    """Code in a paragraph would have its underscores escaped and its lines run together."""
    assert refined(engine, cluster(engine, "text", stacked(engine, SQL)))[0][0] == "code"


@pytest.mark.parametrize(
    ("texts", "pitch"),
    [
        (SQL, None),
        (["Dear Sir, thank you for your letter", "of the third of May. I have read it", "with great pleasure."], 5.0),
        (SQL[:1], 5.0),
        (["f(x) = {y}; a_b"] * 3, 5.0),
        (["that (x) = f(x)/g(x) is", "Here we recall (y)"], 5.0),
    ],
    ids=["in a proportional font", "a typed letter", "one line", "lines of one length", "two lines of a proof"],
)
def test_what_is_not_surely_code_is_text(engine: dict[str, Any], texts: list[str], pitch: float | None) -> None:
    """A letter from a typewriter has one pitch too, and a sentence about code its signs."""
    assert refined(engine, cluster(engine, "text", stacked(engine, texts, pitch=pitch)))[0][0] == "text"


def test_blanks_that_the_parser_lost_make_no_difference(engine: dict[str, Any]) -> None:
    """Most letters of this listing are in lines where several blanks became one: they are wider by whole letters."""
    widths = {
        "/* rows (for all) */": 23,
        "/* columns (and their masks) */": 34,
        "ALTER TABLE t_one": 17,
        "ACTIVATE;": 9,
    }
    cells = [
        line(engine, text, (50, 100 + 12 * n, 50 + 5 * letters, 110 + 12 * n), index=n)
        for n, (text, letters) in enumerate(widths.items())
    ]
    assert refined(engine, cluster(engine, "text", cells))[0][0] == "code"


def test_lines_that_are_nearly_of_one_pitch_are_text(engine: dict[str, Any]) -> None:
    """Three lines of a notice, as they were met: each within a third of a letter of the pitch of the first."""
    widths = {
        "AGENCY: Federal Aviation": 24.0,
        "Administration (FAA), Department of": 35.27,
        "Transportation (DOT).": 20.88,
    }
    cells = [
        line(engine, text, (50, 100 + 12 * n, 50 + 5 * letters, 110 + 12 * n), index=n)
        for n, (text, letters) in enumerate(widths.items())
    ]
    assert refined(engine, cluster(engine, "text", cells))[0][0] == "text"


def test_code_keeps_its_lines_and_columns(engine: dict[str, Any]) -> None:
    """Pieces of one line stand where they stand on the page."""
    cells = [
        line(engine, "if x:", (50, 100, 75, 110)),
        line(engine, "return", (70, 112, 100, 122)),
        line(engine, "x;", (120, 112, 130, 122)),
    ]
    assert engine["listings"].code_text(cells) == "if x:\n    return    x;"


def test_items_that_were_taken_for_one_are_several(engine: dict[str, Any]) -> None:
    """An item ends where the next one's sign stands below its own; a second line of an item stays in it."""
    cells = stacked(engine, ["- one", "goes on", "- two", "- three"])
    assert refined(engine, cluster(engine, "list_item", cells)) == [
        ("list_item", "- one goes on"),
        ("list_item", "- two"),
        ("list_item", "- three"),
    ]
    numbered = stacked(engine, ["1. one", "2. two"])
    assert len(refined(engine, cluster(engine, "list_item", numbered))) == 2


def test_a_dash_within_an_item_starts_none(engine: dict[str, Any]) -> None:
    """Only a sign of the same kind at the same edge does."""
    cells = stacked(engine, ["1. one", "- of two", "(a) words"])
    cells.append(line(engine, "2. not an item", (90, 160, 150, 170), index=9))
    assert len(refined(engine, cluster(engine, "list_item", cells))) == 1


@pytest.mark.parametrize(
    ("text", "font", "expected"),
    [
        ("∞ item", "AAAA+SymbolMT", "• item"),
        ("\uf0b7 item", "Calibri", "• item"),
        ("◦ item", "OpenSymbol", "◦ item"),
        ("∞ is large", "Times", "∞ is large"),
        ("o item", "Courier", "o item"),
    ],
)
def test_a_sign_that_only_its_font_makes_a_bullet_is_one(
    engine: dict[str, Any], text: str, font: str, expected: str
) -> None:
    """The text parser reads a bullet of Symbol as infinity; a real infinity stays."""
    cells = [line(engine, text, (50, 100, 90, 110), font=font)]
    assert refined(engine, cluster(engine, "list_item", cells)) == [("list_item", expected)]


def test_a_letter_that_starts_every_item_is_a_bullet(engine: dict[str, Any]) -> None:
    """Dingbats are read as letters; one such letter may be a word, three are none."""
    cells = stacked(engine, ["o one", "o two", "o three"])
    clusters = [cluster(engine, "list_item", [cell], number) for number, cell in enumerate(cells)]
    assert [text for _, text in refined(engine, *clusters)] == ["• one", "• two", "• three"]


def paragraph(
    engine: dict[str, Any], head: str, *, width: float = 100, font: str = "Times-Bold", begins: str = "No"
) -> Any:
    """A paragraph of two full lines below a line in another font."""
    body = [
        line(engine, f"{begins} one else has the experience that", (50, 100, 250, 110), index=1),
        line(engine, "we have.", (50, 112, 90, 122), index=2),
    ]
    return cluster(engine, "text", [line(engine, head, (50, 88, 50 + width, 98), font=font), *body])


def test_a_bold_line_of_its_own_above_a_paragraph_is_its_heading(engine: dict[str, Any]) -> None:
    """The layout network sees one block where the lines stand close."""
    found = refined(engine, paragraph(engine, "Who we are"))
    assert found == [("section_header", "Who we are"), ("text", "No one else has the experience that we have.")]


@pytest.mark.parametrize(
    "arguments",
    [
        {"head": "Who we are", "font": "Times"},
        {"head": "Note", "width": 195},
        {"head": "Who we are."},
        {"head": "and who we are"},
        {"head": "Almost", "begins": "no"},
    ],
    ids=["the same font", "as wide as the paragraph", "a sentence", "the end of one", "the start of one"],
)
def test_what_only_looks_like_a_heading_stays_in_its_paragraph(
    engine: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A paragraph may begin in bold."""
    assert len(refined(engine, paragraph(engine, **arguments))) == 1


def test_a_heading_between_two_paragraphs_is_found(engine: dict[str, Any]) -> None:
    """What was taken for one block are three."""
    upper = paragraph(engine, "Who we are")
    cells = [*upper.cells, line(engine, "What we do", (50, 140, 110, 150), font="Times-Bold", index=3)]
    cells += [line(engine, "Everything that you can think of and", (50, 152, 250, 162), index=4)]
    found = refined(engine, cluster(engine, "text", cells))
    assert [label for label, _ in found] == ["section_header", "text", "section_header", "text"]


def test_an_equation_is_no_footer_and_a_caption_no_heading(engine: dict[str, Any]) -> None:
    """What Docling takes for a footer is left out of the Markdown."""
    equation = cluster(engine, "page_footer", [line(engine, "X 2 + Y2 = Z", (270, 770, 320, 780))])
    footer = cluster(engine, "page_footer", [line(engine, "page 7", (270, 790, 320, 800))], 1)
    caption = cluster(engine, "section_header", [line(engine, "[표 1] 비교", (50, 300, 200, 310))], 2)
    heading = cluster(engine, "section_header", [line(engine, "Tables turned", (50, 400, 200, 410))], 3)
    labels = [label for label, _ in refined(engine, equation, footer, caption, heading)]
    assert labels == ["text", "page_footer", "caption", "section_header"]


def test_a_line_in_a_table_is_in_no_other_block(engine: dict[str, Any]) -> None:
    """It would be printed in the table and again below it."""
    table = cluster(engine, "table", [line(engine, "a", (50, 100, 250, 200))])
    table.cells = []
    inside, outside = (
        line(engine, "cell", (60, 150, 90, 160), index=1),
        line(engine, "note", (60, 210, 90, 220), index=2),
    )
    found = refined(engine, table, cluster(engine, "text", [inside, outside], 1), cluster(engine, "text", [inside], 2))
    assert found == [("table", "cell"), ("text", "note")]


def test_a_large_initial_and_accents_are_put_together(engine: dict[str, Any]) -> None:
    """A line that begins with a letter two lines high is that high itself."""
    initial = line(engine, "O ver the past Baˇsi´c", (50, 100, 250, 130))  # noqa: RUF001 - as printed
    below = line(engine, "three decades", (70, 132, 250, 142), index=1)
    assert refined(engine, cluster(engine, "text", [initial, below])) == [("text", "Over the past Bašić three decades")]
    plain = line(engine, "O ver the past", (50, 100, 250, 110))
    assert refined(engine, cluster(engine, "text", [plain, below]))[0][1].startswith("O ver")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["text", "text", "section_header"], ["text", "text", "text"]),
        (["section_header", "text", "section_header"], ["section_header"] * 3),
        (["text", "section_header"], ["text", "section_header"]),
    ],
)
@pytest.mark.parametrize("font", ["Helvetica-Bold", "Helvetica"])
def test_bold_lines_that_are_set_alike_are_alike(
    engine: dict[str, Any], labels: list[str], expected: list[str], font: str
) -> None:
    """Of three titles the layout network took one for a heading; in the font of running text that says nothing."""
    clusters = [
        cluster(engine, label, [line(engine, "A title", (50, 100 + 40 * n, 150, 112 + 40 * n), font=font)], n)
        for n, label in enumerate(labels)
    ]
    found = [label for label, _ in refined(engine, *clusters)]
    assert found == (expected if "Bold" in font else labels)
