"""A document in one piece, in slices and resumed: the same bytes, and never more than what was asked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Result, Worker

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"

pytestmark = pytest.mark.engine


def in_slices(worker: Worker, path: Path, size: int, kept: Mapping[int, bytes] | None = None) -> tuple[Result, int]:
    """The last child's result, and how many children there were."""
    finished = dict(kept or {})
    for child in range(1, 100):
        result = worker.convert(path, plan={"most_pages": size}, finished=finished)
        assert result.cause is None, result.detail
        assert len(result.blobs) <= size
        assert not finished.keys() & result.blobs.keys()
        finished |= result.blobs
        if not result.sliced:
            return result, child
    raise AssertionError("no end")


@pytest.mark.parametrize(("size", "children"), [(1, 5), (2, 3), (7, 1)])
def test_slices_end_in_the_same_bytes(worker: Worker, samples: Path, size: int, children: int) -> None:
    """Five pages by one child, or by as many as the slices need."""
    path = samples / "five-pages.pdf"
    whole = worker.convert(path)
    result, lives = in_slices(worker, path, size)
    assert lives == children
    assert result.artefacts == whole.artefacts
    assert result.pages == whole.pages


@pytest.mark.parametrize("name", ["table.pdf", "scan.pdf", "mixed.pdf", "fax.tiff"])
def test_a_resumed_document_ends_in_the_same_bytes(worker: Worker, samples: Path, name: str) -> None:
    """Tables, scans and frames restored from their blobs are what they were; no page is opened again."""
    whole = worker.convert(samples / name)
    resumed = worker.convert(samples / name, finished=whole.blobs)
    assert resumed.artefacts == whole.artefacts
    assert resumed.pages == whole.pages
    assert resumed.blobs == {}
    assert {stage for stage, _ in resumed.stages} == {"open", "assemble", "export", "preview"}


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus beside this repository")
@pytest.mark.parametrize("name", ["a/redp5110_sampled.pdf", "a/1901.03003.pdf"])
def test_any_pages_may_be_restored(worker: Worker, name: str) -> None:
    """Lists, tables and paragraphs across pages do not show where one child ended and the next began."""
    whole = worker.convert(CORPUS / name)
    draw = random.Random(name)
    for share in (0.9, 0.6):
        kept = {page: blob for page, blob in whole.blobs.items() if draw.random() < share}
        resumed, _ = in_slices(worker, CORPUS / name, 7, kept)
        assert resumed.artefacts == whole.artefacts
        assert resumed.pages == whole.pages


def test_only_the_wanted_page_is_converted(worker: Worker, samples: Path) -> None:
    """A suspect gets a child of its own; pages that are skipped wait for theirs."""
    path = samples / "five-pages.pdf"
    assert list(worker.convert(path, plan={"only": 3}).blobs) == [3]
    skipped = worker.convert(path, plan={"skip": [2, 4]})
    assert skipped.sliced
    assert list(skipped.blobs) == [1, 3, 5]
    last = worker.convert(path, plan={"only": 4}, finished=skipped.blobs | worker.convert(path, plan={"only": 2}).blobs)
    assert last.artefacts == worker.convert(path).artefacts


def test_a_blob_that_cannot_be_read_is_a_page_to_convert(worker: Worker, samples: Path) -> None:
    """Cut short, changed, another page's or another engine's: converted again, and never a shorter document."""
    path = samples / "five-pages.pdf"
    whole = worker.convert(path)
    cut, changed, moved, foreign = (whole.blobs[page] for page in (1, 2, 3, 4))
    engine = foreign.split(b" ")[2]
    finished = {
        1: cut[:-1],
        2: changed[:-9] + bytes([changed[-9] ^ 1]) + changed[-8:],
        3: whole.blobs[5],
        4: foreign.replace(engine, b"0" * len(engine), 1),
        5: whole.blobs[5],
    }
    resumed = worker.convert(path, finished=finished)
    assert list(resumed.blobs) == [1, 2, 3, 4]
    assert resumed.artefacts == whole.artefacts
    assert moved != whole.blobs[5]
