"""The pack of one attempt is there for the next child, and costs a file only when there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.kept_pages import KeptPages
from daemon.model import PageRecord, PageReport, PageState
from daemon.pack import Pack
from tests.fakes.checkpoints import MemoryCheckpoints


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[KeptPages]:
    """Those of a document that begins."""
    kept = KeptPages(MemoryCheckpoints(), "d", scratch=tmp_path)
    kept.resume("a" * 64)
    yield kept
    kept.close()


def record(page: int, blob: bytes) -> PageRecord:
    """One finished page."""
    return PageRecord(page=page, report=PageReport(page=page, state=PageState.TEXT, engine="fake"), blob=blob)


def packed(pages: KeptPages) -> dict[int, bytes]:
    """What a child would read, which has a descriptor of its own."""
    file = pages.file
    return {} if file is None else dict(Pack(lambda size, offset: os.pread(file.fileno(), size, offset)))


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  only their number is needed


def test_first_child_gets_none(pages: KeptPages) -> None:
    """Nothing is finished, so there is nothing to read."""
    assert pages.file is None


def test_a_document_of_one_child_needs_no_file(pages: KeptPages) -> None:
    """Most documents have one; a file made for nobody is work for the disk."""
    before = descriptors()
    pages.keep(record(1, b"blob"), 1)
    assert descriptors() == before


def test_next_child_gets_what_is_finished(pages: KeptPages) -> None:
    """Whatever was kept before or after an earlier child asked."""
    pages.keep(record(1, b"one"), 3)
    assert packed(pages) == {1: b"one"}
    pages.keep(record(2, b"two"), 3)
    assert packed(pages) == {1: b"one", 2: b"two"}


def test_a_large_pack_is_a_file(pages: KeptPages) -> None:
    """The parent's memory does not grow with a document's pages."""
    before = descriptors()
    for page in range(1, 4):
        pages.keep(record(page, bytes(2**19)), 3)
    assert descriptors() == before + 1
    assert packed(pages) == dict.fromkeys(range(1, 4), bytes(2**19))
