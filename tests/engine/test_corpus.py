"""Real documents, where the corpus is at hand: what unprotected workers and sideways scans suffered from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Worker

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"

pytestmark = [
    pytest.mark.engine,
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus beside this repository"),
]

UPRIGHT = "Docling bundles PDF document conversion to JSON and Markdown in an easy self contained package"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("d/15445.fuzz.pdf", "no_pages"),
        ("d/376305073a.fuzz.pdf", "no_pages"),
        ("d/2206.01062_pg3.pdf", "encrypted"),
        ("d/AES256ExposedMeta.pdf", "encrypted"),
        ("d/invalid.pdf", "malformed"),
        ("d/empty.pdf", "no_pages"),
        ("e/16384x16384.png", "too_large"),
        ("e/lottapixel.jpg", "too_large"),
    ],
)
def test_hostile_documents_are_refused_for_their_cause(worker: Worker, name: str, cause: str) -> None:
    """None of them is a success, and none costs more than a look."""
    assert worker.convert(CORPUS / name).cause == cause


@pytest.mark.parametrize(
    "name",
    [
        "d/bitmap-mmr.pdf",
        "d/bitmap-symbol-symhuff-texthuff.pdf",
        "d/embed_font_and_measure_text.pdf",
        "d/r6-owner-password.pdf",
    ],
)
def test_documents_that_killed_a_parser_convert(worker: Worker, name: str) -> None:
    """Three of them trapped the text parser, which never decodes their images now; one it refuses, and MuPDF reads."""
    result = worker.convert(CORPUS / name)
    assert result.cause is None, result.detail
    assert result.markdown


@pytest.mark.parametrize(("name", "pages"), [("b/nemotron_multipage.pdf", 4), ("b/ocr_test_rotated_90.pdf", 1)])
def test_scans_are_read_upright(worker: Worker, name: str, pages: int) -> None:
    """Whether /Rotate or the scanner turned them."""
    assert worker.convert(CORPUS / name).markdown == " ".join([UPRIGHT] * pages)


def test_text_that_runs_sideways_is_read_upright(worker: Worker) -> None:
    """A page set on its side is turned, and its regions follow."""
    result = worker.convert(CORPUS / "b/edgar-rotated90.pdf")
    assert "turned by 270 degrees" in result.pages[0][3]
    assert "was King of the English from 959 until his death in 975" in result.markdown


def test_a_blank_scan_is_blank_and_no_failure(worker: Worker) -> None:
    """Paper has texture; it is not ink."""
    result = worker.convert(CORPUS / "b/blank_book_pg1.pdf")
    assert [state for _, state, _, _ in result.pages] == ["blank"]


def test_all_frames_of_a_tiff_are_read(worker: Worker) -> None:
    """A lone small word on each of three large sheets."""
    assert worker.convert(CORPUS / "e/g4-multi.tiff").markdown == "Page1 Page2 Page3"


def test_a_tiff_that_runs_in_a_circle_ends(worker: Worker) -> None:
    """Two frames, and a warning."""
    result = worker.convert(CORPUS / "e/multipage_multiple_frame_loop.tiff")
    assert len(result.pages) == 2
    assert "runs in a circle" in result.warnings[0]
