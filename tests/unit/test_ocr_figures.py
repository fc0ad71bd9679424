"""The arithmetic of `bench.ocr`: words in no order, costs by page and round, one document against stock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import _ocr_figures as figures
from bench._ocr_figures import Run

#: One page, read by production at half a second.
RUN = Run(
    choice="ours",
    document="scan.pdf",
    pages=1,
    cpu_s=0.5,
    wall_s=1.0,
    whole_cpu_s=1.5,
    texts=("the gate",),
    markdown="The gate\n",
)


def rows(*runs: Run, known: dict[str, tuple[str, ...]] | None = None) -> dict[str, dict[str, object]]:
    """The rows by choice."""
    found = figures.rows(runs, known=known or {}, careful="careful", production="ours")
    return {str(row["choice"]): row for row in found}


def test_cjk_characters_are_words_of_their_own() -> None:
    """A line of Chinese has no blanks: one wrong character may not cost the whole line."""
    assert figures.bag(["第1章 begin", "漢字kana"]) == ["第", "1", "章", "begin", "漢", "字", "kana"]


def test_order_is_left_out() -> None:
    """Where lines stand is the layout's work; what they say is OCR's."""
    assert figures.alike(["to wind", "a clock"], ["a clock to wind"]) == 1.0
    assert figures.alike(["a b c d"], ["a b c x"]) == pytest.approx(0.75)
    assert figures.alike([], []) is None


def test_costs_are_of_a_page_and_the_median_of_rounds() -> None:
    """A document of many pages weighs as many pages, and one slow round does not move the figure."""
    four = replace(RUN, document="four.pdf", pages=4, cpu_s=2.0)
    slow = [replace(run, cpu_s=run.cpu_s * 10) for run in (RUN, four)]
    careful = [replace(run, choice="careful") for run in (RUN, four)]
    row = rows(RUN, four, *careful, *slow, RUN, four)["ours"]
    assert row["cpu_s_per_page"] == 0.5
    assert (row["documents"], row["pages"]) == (2, 5)


def test_a_choice_is_compared_on_the_documents_that_it_converted() -> None:
    """What only mixed pages meet is not held against the time that scans took."""
    mixed = replace(RUN, document="mixed.pdf", cpu_s=0.1)
    careful = [replace(run, choice="careful", cpu_s=1.0) for run in (RUN, mixed)]
    found = rows(RUN, mixed, *careful, replace(mixed, choice="more", cpu_s=0.3))
    assert found["more"]["cpu_ratio"] == 3.0
    assert found["careful"]["cpu_ratio"] == pytest.approx(2.0 / 0.6, abs=0.01)
    assert found["ours"]["cpu_ratio"] == 1.0


def test_what_nobody_knows_has_no_words() -> None:
    """A scan without a reference counts for agreement only."""
    careful = replace(RUN, choice="careful", texts=("the", "iron", "gate"))
    other = replace(RUN, document="known.pdf", texts=("a wall",))
    found = rows(RUN, other, careful, replace(other, choice="careful"), known={"known.pdf": ("a gate",)})
    assert found["ours"]["words"] == 0.5
    assert found["ours"]["agreement"] == pytest.approx((0.8 + 1.0) / 2)
    assert rows(RUN, careful)["ours"]["words"] is None


def test_one_document_against_stock_is_the_whole_conversion() -> None:
    """The factor is of everything that a document takes, and both texts are scored."""
    stock = replace(RUN, choice="stock", cpu_s=10.0, whole_cpu_s=15.0, markdown="The gale\n")
    found = figures.factor([RUN, stock], production="ours", stock="stock", reference="The gate")
    assert found is not None
    assert (found["times_faster"], found["words"], found["stock_words"]) == (10.0, 1.0, 0.5)
    assert found["ocr_times_faster"] == 20.0
    assert figures.factor([RUN], production="ours", stock="stock", reference=None) is None
