"""The pages of memory that a conversion writes: learned once, and copied before a document is there.

Edge: the kernel's page tables. A forked child shares all memory until it writes; then each page is copied at its first
write, thousands of times in the first document and so in every one. A scout, forked like any child, converts the
canary's page of letters (what only scans write is not worth a copy in every child) and notes which of the shared pages
it wrote; later children copy these while they wait for their job. Nothing depends on it but time: what cannot be
learned or copied is copied later, one page at a time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_PAGE: Final = mmap.PAGESIZE
#: From pagemap's documentation: the page is there, and no other process maps it.
_PRESENT_AND_EXCLUSIVE: Final = 1 << 63 | 1 << 56
_ENTRY: Final = struct.Struct("<Q")
#: From <asm-generic/mman-common.h>, Linux 5.14: make these pages writable now, copying what is shared.
_MADV_POPULATE_WRITE: Final = 23
#: Copying a few pages too many costs less than one more call.
_GAP_BYTES: Final = 4 * _PAGE
#: Enough for 32,000 ranges; a real engine was seen to have 1,200.
_NOTES_BYTES: Final = 2**19


class Range(NamedTuple):
    """Part of this process's memory, in bytes; both are multiples of the page size."""

    start: int
    size: int


class Rehearsal:
    """What one scout wrote. Made before the scout is forked; both processes share its notes."""

    def __init__(self) -> None:
        self._notes = mmap.mmap(-1, _NOTES_BYTES)
        self._mappings = _writable()

    def note(self) -> None:
        """In the scout, at its end: note what was written since the fork. Raises OSError without a page table."""
        ranges = merged(written(self._mappings))
        fitting = ranges[: _NOTES_BYTES // (2 * _ENTRY.size) - 1]
        numbers = [len(fitting), *(number for each in fitting for number in each)]
        self._notes[: len(numbers) * _ENTRY.size] = struct.pack(f"<{len(numbers)}Q", *numbers)

    def take(self) -> tuple[Range, ...]:
        """After the scout's end, in the process that forked it: what it noted, if anything; once."""
        (count,) = _ENTRY.unpack_from(self._notes)
        numbers = struct.unpack_from(f"<{2 * count}Q", self._notes, _ENTRY.size)
        self._notes.close()
        return tuple(map(Range, numbers[::2], numbers[1::2]))


def copy_ahead(ranges: Sequence[Range]) -> int:
    """Make this process's own copies of what it shares there; returns the bytes, 0 where the kernel is too old."""
    libc = ctypes.CDLL(None)
    copied = 0
    for each in ranges:
        if libc.madvise(ctypes.c_void_p(each.start), ctypes.c_size_t(each.size), _MADV_POPULATE_WRITE) == 0:
            copied += each.size
    return copied


def merged(ranges: Sequence[Range]) -> list[Range]:
    """Join ascending ranges that lie close to each other."""
    joined: list[Range] = []
    for each in ranges:
        last = joined[-1] if joined else None
        if last is not None and 0 <= each.start - (last.start + last.size) <= _GAP_BYTES:
            joined[-1] = Range(last.start, each.start + each.size - last.start)
        else:
            joined.append(each)
    return joined


def written(mappings: Sequence[Range]) -> list[Range]:
    """The parts of `mappings` that are this process's own by now, ascending. Raises OSError."""
    return [each for mapping in mappings for each in _own(mapping)]


def _own(mapping: Range) -> Iterator[Range]:
    with Path("/proc/self/pagemap").open("rb", buffering=0) as table:
        entries = os.pread(table.fileno(), mapping.size // _PAGE * _ENTRY.size, mapping.start // _PAGE * _ENTRY.size)
    begun: int | None = None
    number = 0
    for number, (entry,) in enumerate(_ENTRY.iter_unpack(entries)):
        own = entry & _PRESENT_AND_EXCLUSIVE == _PRESENT_AND_EXCLUSIVE
        if own and begun is None:
            begun = number
        elif not own and begun is not None:
            yield Range(mapping.start + begun * _PAGE, (number - begun) * _PAGE)
            begun = None
    if begun is not None:
        yield Range(mapping.start + begun * _PAGE, (number + 1 - begun) * _PAGE)


def _writable() -> tuple[Range, ...]:
    """This process's private writable mappings."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        span, modes, *_ = line.split(maxsplit=2)
        if modes.startswith("rw") and modes.endswith("p"):
            start, _, end = span.partition("-")
            found.append(Range(int(start, 16), int(end, 16) - int(start, 16)))
    return tuple(found)
