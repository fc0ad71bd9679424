"""What a forked process has written is learned, and copied ahead by the next one."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.children import Children
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.rehearsal import Range, Rehearsal, copy_ahead, merged
from tests.process.conftest import standby

pytestmark = pytest.mark.process

PAGES = 400


@pytest.fixture
def memory() -> bytearray:
    """Many pages, all written: a child shares them."""
    return bytearray(b"x" * (PAGES * mmap.PAGESIZE))


def in_child(work: Callable[[], object]) -> object:
    """What `work` returns in a forked process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return json.loads(said)


def page_of(memory: bytearray, number: int) -> Range:
    """The page that holds this part of `memory`."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + number * mmap.PAGESIZE
    return Range(address // mmap.PAGESIZE * mmap.PAGESIZE, mmap.PAGESIZE)


def rehearse(memory: bytearray, pages: range) -> tuple[Range, ...]:
    """What a scout that writes these pages notes."""
    rehearsal = Rehearsal()

    def scout() -> None:
        for number in pages:
            memory[number * mmap.PAGESIZE] = 0
        rehearsal.note()

    in_child(scout)
    return rehearsal.take()


def holds(ranges: tuple[Range, ...], page: Range) -> bool:
    """Whether a range covers the page."""
    return any(each.start <= page.start < each.start + each.size for each in ranges)


def test_what_was_written_is_noted(memory: bytearray) -> None:
    """The written pages are in the notes; pages that were only shared are not."""
    ranges = rehearse(memory, range(100, 200, 20))
    assert all(holds(ranges, page_of(memory, number)) for number in range(100, 200, 20))
    assert not any(holds(ranges, page_of(memory, number)) for number in (10, 50, 250, 390))


def test_copied_ahead_is_not_copied_again(memory: bytearray) -> None:
    """A child that has copied ahead writes there without a page fault; one that has not takes one for each page."""
    ranges = rehearse(memory, range(0, PAGES, 8))

    def faults_of_writing(ahead: tuple[Range, ...]) -> int:
        copied = copy_ahead(ahead)
        assert not ahead or copied > 0
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for number in range(0, PAGES, 8):
            memory[number * mmap.PAGESIZE] = 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with_it, without = in_child(lambda: faults_of_writing(ranges)), in_child(lambda: faults_of_writing(()))
    assert isinstance(with_it, int)
    assert isinstance(without, int)
    assert without >= PAGES // 8
    assert with_it < without // 2


def test_a_scout_that_dies_teaches_nothing(memory: bytearray) -> None:
    """No notes are no ranges."""
    del memory
    assert Rehearsal().take() == ()


def test_memory_that_is_gone_is_left_alone() -> None:
    """A range that is mapped no longer, or never was, is skipped."""
    assert copy_ahead([Range(mmap.PAGESIZE, mmap.PAGESIZE)]) == 0


def test_close_ranges_are_joined() -> None:
    """One call for what lies close together, and the order stays."""
    page = mmap.PAGESIZE
    assert merged([Range(0, page), Range(3 * page, page), Range(40 * page, page)]) == [
        Range(0, 4 * page),
        Range(40 * page, page),
    ]


@pytest.mark.engine
def test_the_real_engine_rehearses(tmp_path: Path) -> None:
    """The child that stands by has its own copies of what a conversion writes before it has a document."""
    children = Children(settings=Settings(), memory_bytes=2**31, scratch_root=tmp_path, clock=SystemClock())
    try:
        children.start()
        waiting = standby(children, patience_s=120)
        lines = Path(f"/proc/{waiting}/smaps_rollup").read_text().splitlines()
        (private_kb,) = [int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")]
        assert private_kb > 10_000
    finally:
        children.stop()
