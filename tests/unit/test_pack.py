"""What lies in a pack is read back the same, or is not there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.pack import MAX_BLOB_BYTES, Pack, header

PAGES = st.dictionaries(st.integers(1, 2**32 - 1), st.binary(max_size=40), max_size=5)
#: Bytes of a header.
HEADER = 44


def packed(pages: Mapping[int, bytes]) -> bytes:
    """A pack of `pages`, in their order."""
    return b"".join(header(page, blob) + blob for page, blob in pages.items())


def opened(data: bytes) -> Pack:
    """A pack that lies in memory."""
    return Pack(lambda size_bytes, offset: data[offset : offset + size_bytes])


@given(PAGES)
def test_what_was_packed(pages: Mapping[int, bytes]) -> None:
    """Every page comes back, and no other."""
    pack = opened(packed(pages))
    assert dict(pack) == dict(pages)
    assert len(pack) == len(pages)


@given(PAGES.filter(bool), st.data())
def test_any_damage(pages: Mapping[int, bytes], data: st.DataObject) -> None:
    """Whatever byte is changed or wherever the file is cut: a page is right or absent, never wrong."""
    whole = bytearray(packed(pages))
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[at:]
    else:
        whole[at] ^= data.draw(st.integers(1, 255))
    pack = opened(bytes(whole))
    read = {page: blob for page in pack if (blob := pack.get(page)) is not None}
    assert read.items() <= dict(pages).items()


@given(st.binary(max_size=300))
def test_garbage(data: bytes) -> None:
    """Bytes without meaning are an empty pack."""
    pack = opened(data)
    assert [page for page in pack if page in pack] == []


def test_a_damaged_blob_costs_its_page_alone() -> None:
    """The headers lead past it."""
    whole = bytearray(packed({1: b"one", 2: b"two", 3: b"three"}))
    whole[2 * HEADER + 3] ^= 1
    pack = opened(bytes(whole))
    assert [pack.get(page) for page in (1, 2, 3)] == [b"one", None, b"three"]
    assert 2 not in pack
    with pytest.raises(KeyError):
        pack[2]


def test_the_later_counts() -> None:
    """A page that was converted again replaces what was there."""
    assert dict(opened(packed({1: b"damaged"}) + packed({1: b"fresh"}))) == {1: b"fresh"}


def test_nothing_is_read_before_it_is_asked_for() -> None:
    """Looking for a page costs its header, not its bytes; a size beyond the limit is not even tried."""
    data = packed({1: b"x" * 1000, 2: b"y"})
    asked: list[int] = []

    def read(size_bytes: int, offset: int) -> bytes:
        asked.append(size_bytes)
        return data[offset : offset + size_bytes]

    pack = Pack(read)
    assert list(pack) == [1, 2]
    assert set(asked) == {HEADER}
    assert pack[1] == b"x" * 1000
    assert asked[-1] == 1000
    beyond = bytearray(header(1, b"")) + b"rest"
    beyond[4:12] = (MAX_BLOB_BYTES + 1).to_bytes(8, "big")
    assert list(opened(bytes(beyond))) == []
    assert list(opened(packed({0: b"no page"}))) == []


def test_a_file_that_cannot_be_read() -> None:
    """An error of the disk is damage like any other, whether a header or a blob lies there."""

    def fail(_size_bytes: int, _offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    assert list(Pack(fail)) == []
    data = packed({1: b"blob"})
    pack = Pack(lambda size_bytes, offset: data[:HEADER] if offset == 0 else fail(size_bytes, offset))
    assert list(pack) == [1]
    assert pack.get(1) is None
