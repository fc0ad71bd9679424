"""The arithmetic of the fidelity bench: what it reads out of Markdown, and what it makes of a difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import fidelity
from bench._fidelity_facts import Fact, holds, share
from bench._fidelity_pages import compare, document_html
from bench._fidelity_scores import EXCEPTIONS, Scores, failures, order, score
from bench._fidelity_teds import likeness, pair, teds, tree
from bench._fidelity_text import headings, items, tables, words

TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n"


def test_words_are_compared_without_marks() -> None:
    """Bold runs, escapes, entities, place holders, fences and dot leaders are the writer's, not the page's."""
    markdown = "# Head\n\n**Bold** : a\\_b &lt;c&gt;\n\n<!-- image -->\n\n```\ncode\n```\n\nOne . . . . . . . . . 7\n"
    assert words(markdown) == ["Head", "Bold", ":", "a_b", "<", "c", ">", "code", "One", "7"]
    assert words("Bold:") == words("Bold :")


def test_an_ellipsis_is_kept() -> None:
    """Only a long run of dots is a leader."""
    assert words("wait...") == ["wait", ".", ".", "."]


def test_headings_items_and_tables_are_found_by_their_marks() -> None:
    """Depth, markers and the rules of tables are left out."""
    assert headings("# One\n\n### Two: b\n\n#tag\n") == ["One", "Two : b"]
    assert items("- a\n    - b\n3. c\n\ntext\n-dash\n") == ["a", "b", "c"]
    assert tables(f"before\n{TABLE}\nafter\n{TABLE}") == [[["a", "b"], ["1", "2"], ["3", "4"]]] * 2


def test_a_cell_that_holds_a_bar_stays_one_cell() -> None:
    """The serialiser writes it as an entity."""
    assert tables("| a &#124; b | c |\n|---|---|\n") == [[["a | b", "c"]]]


def test_teds_of_equal_tables_is_one_and_of_others_what_the_paper_says() -> None:
    """2 x 2: 1 table + 2 parts + 2 rows + 4 cells are 9 nodes. A lost row is 3 of them, a changed cell at most 1."""
    whole = [["a", "b"], ["c", "d"]]
    assert tree(whole).size() == 9
    assert teds(whole, whole) == 1.0
    assert teds(whole, [["a", "b"]]) == pytest.approx(1 - 3 / 9)
    assert teds(whole, [["a", "b"], ["c", "x"]]) == pytest.approx(1 - 1 / 9)
    assert teds([["abcd"]], [["abcx"]]) == pytest.approx(1 - 0.25 / 5)


def test_cells_that_ran_into_one_another_cost_what_they_lost() -> None:
    """One column instead of two: two cells of nine nodes are gone, and two texts half changed."""
    assert teds([["a", "b"], ["c", "d"]], [["ab"], ["cd"]]) == pytest.approx(1 - (2 + 2 * 0.5) / 9)


def test_tables_are_matched_in_order_and_a_lone_one_counts_nought() -> None:
    """A table that only one side has must not be hidden by the others."""
    one, two = [["a"], ["b"]], [["x"], ["y"]]
    assert pair([one, two], [two]) == [(1, 0)]
    assert pair([one, two], [two, one]) in ([(0, 1)], [(1, 0)])
    assert likeness([one, two], [two]) == 0.5
    assert likeness([one], [one, two]) == 0.5
    assert likeness([], []) is None


def test_order_leaves_wording_aside() -> None:
    """Words of one side alone, and words that repeat, say nothing about order."""
    assert order(["a", "b", "c", "d"], ["a", "x", "b", "c", "d", "x"]) == 1.0
    assert order(["a", "b", "c", "d"], ["c", "d", "a", "b"]) == 0.5
    assert order(["a"], ["a"]) is None


def test_a_lost_paragraph_lowers_words_and_nothing_else() -> None:
    """Each score is about one thing."""
    reference = f"# Head\n\nsome words here\n\n- item\n\n{TABLE}"
    scores = score(reference, reference.replace("some words here", ""))
    assert scores.pop("words") == pytest.approx(1 - 3 / (11 + 8))
    assert set(scores.values()) == {1.0}


MARKDOWN = f"The quick brown fox\n\n{TABLE}\n\njumps over\n\npage 7\n"


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ({"type": "present", "text": "quick **brown**"}, True),
        ({"type": "present", "text": "quick browm fox"}, False),
        ({"type": "present", "text": "quick browm fox", "max_diffs": 2}, True),
        ({"type": "present", "text": f"{MARKDOWN} and much more that is not there"}, False),
        ({"type": "absent", "text": "quick"}, False),
        ({"type": "absent", "text": "quick", "last_n": 10}, True),
        ({"type": "absent", "text": "slow"}, True),
        ({"type": "order", "before": "quick", "after": "jumps"}, True),
        ({"type": "order", "before": "jumps", "after": "quick"}, False),
        ({"type": "table", "cell": "4", "left": "3", "up": "2", "top_heading": "b"}, True),
        ({"type": "table", "cell": "4", "left": "2"}, False),
        ({"type": "table", "cell": "4", "top_heading": "a"}, False),
        ({"type": "table", "cell": "1", "right": "2", "down": "3"}, True),
        ({"type": "table", "cell": "4", "left_heading": "3"}, True),
        ({"type": "table", "cell": "3", "left_heading": "4"}, False),
        ({"type": "table", "cell": "2", "top_heading": "4"}, False),
        ({"type": "table", "cell": "3", "left": "4"}, False),
        ({"type": "baseline", "max_length": 10}, False),
    ],
)
def test_facts(fact: Fact, expected: bool) -> None:  # noqa: FBT001 - the case
    """Every kind can hold and can fail."""
    assert holds(fact, MARKDOWN) is expected


def test_the_share_of_facts() -> None:
    """None is not nought: nothing was stated."""
    assert share([{"type": "present", "text": "fox"}, {"type": "absent", "text": "fox"}], MARKDOWN) == 0.5
    assert share([], MARKDOWN) is None


def test_what_is_below_its_floor_is_named() -> None:
    """Tables are held to their average, everything else document by document."""
    fine: Scores = {"words": 0.99, "headings": 1.0, "tables": 0.9}
    assert list(failures({"a.pdf": fine, "b.pdf": {"words": None, "headings": None, "tables": None}})) == []
    found = list(failures({"a.pdf": fine | {"words": 0.96}, "b.pdf": fine | {"tables": 0.7}}))
    assert [failure.split(":")[0] for failure in found] == ["a.pdf", "all documents"]


def test_every_exception_says_why() -> None:
    """A floor that was lowered without a reason is a target given up in silence."""
    assert all(0 <= least < 0.97 and len(reason) > 20 for least, reason in EXCEPTIONS.values())


def test_the_reference_is_cut_at_our_pages() -> None:
    """What we lost is shown on the page where its neighbours stand."""
    first, second = compare("one two\n\nthree lost four", ["one two", "three four five"])
    assert [word for word, same in first.ours if same] == ["one", "two"]
    assert first.share() == 0.0
    assert [word for word, same in second.reference if not same and word.strip()] == ["lost"]
    assert [word for word, same in second.ours if not same] == ["five"]


def test_the_page_for_a_person_shows_the_worst_page_first_and_escapes_the_document() -> None:
    """A document is other people's text: it may hold markup."""
    asked: list[int] = []

    def picture(page: int) -> bytes:
        asked.append(page)
        return b"png"

    pages = ["same words", "<script>", "half right"]
    page = document_html("a<b", "words 0.5", "same words\n\nhalf wrong", pages, picture, most=5)
    assert asked == [2, 3]
    assert "<script>" not in page
    assert "<ins>&lt;script&gt;</ins>" in page
    assert "<del>wrong</del>" in page
    assert "a&lt;b" in page


def test_cases_are_documents_with_a_reference_or_facts(tmp_path: Path) -> None:
    """A document in a folder of its own in the list of facts is the same document."""
    for folder, name in (("a", "one.pdf"), ("b", "two.pdf"), ("b", "three.pdf"), ("gt", "one.pdf.md")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("text")
    facts = [
        {"pdf": "deep/two.pdf", "type": "present", "text": "a"},
        {"pdf": "three.pdf", "type": "math", "math": "x"},
        {"pdf": "gone.pdf", "type": "present", "text": "a"},
    ]
    (tmp_path / "gt" / "olmocr_facts.jsonl").write_text("\n".join(json.dumps(fact) for fact in facts))
    found = fidelity.cases(tmp_path)
    assert [(case.path.name, case.reference, len(case.facts)) for case in found] == [
        ("one.pdf", "text", 0),
        ("two.pdf", None, 1),
    ]
    scores = fidelity.scores_of(found[0], "text")
    assert list(scores) == ["words", "headings", "lists", "tables", "order", "facts"]
    assert fidelity.scores_of(found[1], "text")["words"] is None
    assert [case.path.name for case in fidelity.cases(tmp_path, ["two.pdf"])] == ["two.pdf"]
