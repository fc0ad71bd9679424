"""The finished pages that one child hands to the next, as one file: written by the parent, read by a child.

Core. An entry is a header (page u32, size u64, SHA-256 of page and blob; big-endian) and the blob; entries follow each
other. The parent only ever copies blobs into it. Reading believes nothing: an entry counts once its bytes have the
digest of its header, and what is damaged is absent, so its page is converted again. Of two entries of a page the
later counts.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

#: Largest blob of one page. Of the pages that were measured the largest is 60 KB.
MAX_BLOB_BYTES = 64 * 2**20
_HEADER = struct.Struct(">IQ32s")


def header(page: int, blob: bytes) -> bytes:
    """Return what stands before `blob`, the finished `page` (from 1), in a pack."""
    return _HEADER.pack(page, len(blob), _digest(page, blob))


def _digest(page: int, blob: bytes) -> bytes:
    """The page is part of it: a sound blob under another page's number would be another page's text."""
    return hashlib.sha256(page.to_bytes(4, "big") + blob).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Where a blob lies and what it must be."""

    offset: int
    size_bytes: int
    digest: bytes


class Pack(Mapping[int, bytes]):
    """The pages of a pack, by number; a blob is read when it is asked for, and never kept.

    Iteration and `len` tell what the headers announce; only `[]`, `get` and `in` look at a blob, and a damaged one
    is a KeyError there.
    """

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        """`read` takes a size and an offset, in bytes, and returns less only at the end; it may raise OSError."""
        self._read = read
        self._entries = dict(self._index())

    def __getitem__(self, page: int) -> bytes:
        entry = self._entries[page]
        try:
            blob = self._read(entry.size_bytes, entry.offset)
        except OSError as error:
            raise KeyError(page) from error
        if _digest(page, blob) != entry.digest:
            raise KeyError(page)
        return blob

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _index(self) -> Iterator[tuple[int, _Entry]]:
        """Walk over the headers, up to the end or to the first that cannot be one."""
        offset = 0
        while True:
            try:
                data = self._read(_HEADER.size, offset)
            except OSError:
                return
            if len(data) != _HEADER.size:
                return
            page, size_bytes, digest = _HEADER.unpack(data)
            if page == 0 or size_bytes > MAX_BLOB_BYTES:
                return
            offset += _HEADER.size
            yield page, _Entry(offset=offset, size_bytes=size_bytes, digest=digest)
            offset += size_bytes
