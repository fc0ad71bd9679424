"""Free memory goes back to the kernel where the next work needs as much again: a child peaks lower for it.

Real memory of a real child: a heap of small pieces is left free just before the engine should give it back.
"""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

#: What is left free is 100 MB; nearly all of it is whole pages.
MOST_KIB = 80_000
#: What comes and goes by itself.
LEAST_KIB = 10_000


def repeated(source: Path, times: int, target: Path) -> Path:
    """A document of so many pages, each the first page of `source`."""
    with pymupdf.open() as made, pymupdf.open(source) as one:
        for _ in range(times):
            made.insert_pdf(one, to_page=0)
        made.save(target)
    return target


def test_after_the_page_of_a_scan(worker: Worker, samples: Path, tmp_path: Path) -> None:
    """The next page's networks need as much again, in pieces of other sizes; after the last one there is none."""
    twice = repeated(samples / "scan.pdf", 2, tmp_path / "twice.pdf")
    result = worker.convert(twice, litter="done:1")
    assert [state for _, state, _, _ in result.pages] == ["ocr", "ocr"]
    assert result.given_back_kib > MOST_KIB
    assert worker.convert(twice, litter="done:2").given_back_kib < LEAST_KIB


def test_before_a_long_document_is_assembled(worker: Worker, samples: Path, tmp_path: Path) -> None:
    """It takes the place of its pages; a short one needs less than its pages did."""
    for pages, given_back in ((8, False), (9, True)):
        document = repeated(samples / "letter.pdf", pages, tmp_path / f"{pages}.pdf")
        result = worker.convert(document, litter=f"done:{pages}")
        assert (result.given_back_kib > MOST_KIB) is given_back
        assert (result.given_back_kib < LEAST_KIB) is not given_back


def test_before_a_page_of_many_pieces_and_no_other(worker: Worker, samples: Path, tmp_path: Path) -> None:
    """The layout network needs memory by the pieces of text; before the first page nothing was used that is free."""
    with pymupdf.open() as crowded:
        page = crowded.new_page()
        for number in range(320):
            page.insert_text((20 + 70 * (number % 8), 40 + 18 * (number // 8)), f"word {number}", fontsize=6)
        crowded.save(tmp_path / "crowded.pdf")
    twice = repeated(tmp_path / "crowded.pdf", 2, tmp_path / "twice.pdf")
    assert worker.convert(twice, litter="parse:2").given_back_kib > MOST_KIB
    assert worker.convert(twice, litter="parse:1").given_back_kib < LEAST_KIB
    letters = repeated(samples / "letter.pdf", 2, tmp_path / "letters.pdf")
    assert worker.convert(letters, litter="parse:2").given_back_kib < LEAST_KIB
