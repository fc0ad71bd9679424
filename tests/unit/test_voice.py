"""What a child says arrives whole and in order, and wakes its parent no more often than it must."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from daemon import frames, wire
from daemon.child_frames import Voice
from daemon.model import PageState

ACCOUNT = frames.PageAccount(page=1, state=PageState.TEXT, engine="fake")
BLOB = frames.BlobChunk(page=1, data=b"blob")
DONE = frames.PageDone(account=ACCOUNT, size_bytes=4, sha256="0" * 64)


@pytest.fixture
def ends() -> Iterator[tuple[Voice, socket.socket]]:
    """A voice, and where it is heard."""
    ours, its = socket.socketpair()
    with ours, its:
        its.setblocking(False)
        yield Voice(ours), its


def heard(its: socket.socket) -> list[frames.Frame]:
    """What one read brings."""
    return list(wire.Decoder(max_total_bytes=2**22).feed(its.recv(2**22)))


def test_a_page_and_its_account_arrive_together(ends: tuple[Voice, socket.socket]) -> None:
    """Each arrival wakes the parent, and a page without its account is nothing to it."""
    voice, its = ends
    voice.send(BLOB, more=True)
    with pytest.raises(BlockingIOError):
        its.recv(1)
    voice.send(DONE)
    assert heard(its) == [BLOB, DONE]


def test_a_line_said_meanwhile_keeps_its_place(ends: tuple[Voice, socket.socket]) -> None:
    """The engine's threads log when they like."""
    voice, its = ends
    line = frames.LogLine(level="info", event="meanwhile")
    voice.send(BLOB, more=True)
    voice.send(line)
    voice.send(DONE)
    assert heard(its) == [BLOB, line, DONE]


def test_what_is_large_does_not_wait(ends: tuple[Voice, socket.socket]) -> None:
    """A child holds no second copy of a whole page."""
    voice, its = ends
    large = frames.BlobChunk(page=1, data=bytes(2**16))
    voice.send(large, more=True)
    assert heard(its) == [large]
