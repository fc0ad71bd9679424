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


def test_after_the_page_of_a_scan(worker: Worker, samples: Path, tmp_path: Path) -> None:
    """The next page's networks need as much again, in pieces of other sizes."""
    twice = pymupdf.open()
    with pymupdf.open(samples / "scan.pdf") as scan:
        twice.insert_pdf(scan)
        twice.insert_pdf(scan)
    twice.save(tmp_path / "twice.pdf")
    result = worker.convert(tmp_path / "twice.pdf", litter="done")
    assert [state for _, state, _, _ in result.pages] == ["ocr", "ocr"]
    assert result.given_back_kib > MOST_KIB


def test_before_assembly(worker: Worker, samples: Path) -> None:
    """A long document takes the place of its pages."""
    assert worker.convert(samples / "letter.pdf", litter="done").given_back_kib > MOST_KIB


def test_before_a_page_of_many_pieces_and_no_other(worker: Worker, samples: Path, tmp_path: Path) -> None:
    """The layout network needs memory by the pieces of text; an ordinary page is not worth the time."""
    crowded = pymupdf.open()
    page = crowded.new_page()
    for number in range(320):
        page.insert_text((20 + 70 * (number % 8), 40 + 18 * (number // 8)), f"word {number}", fontsize=6)
    crowded.save(tmp_path / "crowded.pdf")
    assert worker.convert(tmp_path / "crowded.pdf", litter="parse").given_back_kib > MOST_KIB
    assert worker.convert(samples / "letter.pdf", litter="parse").given_back_kib < LEAST_KIB
