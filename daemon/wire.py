"""Frames as bytes: encoded, and decoded strictly.

Core. A frame is a header (version byte, kind byte, u32 length, big-endian) and a payload: one JSON object
checked against its model; or, for an artefact, one byte that names it and a chunk; or, for a page's blob, the
page (u32) and a chunk. Sizes are checked
before a payload is kept. Whatever the bytes are, decoding raises nothing but ProtocolError. A child's
bytes are data: nothing here unpickles, evaluates or follows a path.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import ValidationError

from daemon.errors import ProtocolError
from daemon.frames import CHUNK_BYTES, MODELS, BlobChunk, Chunk, Frame, Kind, clean, kind_of
from daemon.model import ARTEFACTS

#: First byte of every frame: format and version in one; another version is another byte.
VERSION = 0xB1
HEADER = struct.Struct(">BBI")
_PAGE = struct.Struct(">I")
#: Largest payload. A result accounts for 5,000 pages in about 1 MiB; a chunk is 1 MiB and a few bytes.
MAX_FRAME_BYTES = 4 * 2**20
#: Stages, pages and log lines are short; only a hello, a job, a result and a chunk may be longer.
MAX_NOTE_BYTES = 32 * 2**10
#: Frames of one child: 5,000 pages with 10 stages, a blob and an account each, 512 chunks and some log lines, twice.
MAX_FRAMES = 140_000
_KINDS: Final[Mapping[int, Kind]] = {int(kind): kind for kind in Kind}
_NOTES = frozenset({Kind.STAGE, Kind.OPENED, Kind.PAGE, Kind.LOG, Kind.FAILURE, Kind.SLICED})


def encode(frame: Frame) -> bytes:
    """Return `frame` as bytes. A frame larger than its own limits is a bug here, and asserted."""
    kind = kind_of(frame)
    if isinstance(frame, Chunk):
        assert 0 < len(frame.data) <= CHUNK_BYTES, "cut artefacts into chunks"
        payload = bytes((ARTEFACTS.index(frame.name),)) + frame.data
    elif isinstance(frame, BlobChunk):
        assert 0 < len(frame.data) <= CHUNK_BYTES, "cut blobs into chunks"
        payload = _PAGE.pack(frame.page) + frame.data
    else:
        payload = frame.model_dump_json().encode()
    assert len(payload) <= _limit(kind, MAX_FRAME_BYTES), f"a {kind.name} frame of {len(payload)} bytes"
    return HEADER.pack(VERSION, kind, len(payload)) + payload


class Decoder:
    """Bytes in, frames out; one per direction and child, useless after its first ProtocolError."""

    def __init__(
        self, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_total_bytes: int, max_frames: int = MAX_FRAMES
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_total_bytes = max_total_bytes
        self._max_frames = max_frames
        self._buffer = bytearray()
        self._header: tuple[Kind, int] | None = None
        self._total_bytes = 0
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take `data` in, whatever its boundaries, and yield the frames that it completes.

        Frames before a fault are yielded first. Raises ProtocolError, here or while iterating, at an
        unknown version or kind, a payload that is too large or not as its model says, and beyond
        `max_total_bytes` or `max_frames`.
        """
        self._total_bytes += len(data)
        self._buffer += data
        return self._complete()

    def finish(self) -> None:
        """Say that no more bytes come. Raises ProtocolError when they end inside a frame."""
        if self._buffer or self._header is not None:
            raise ProtocolError(f"the bytes end {len(self._buffer)} bytes into a frame")

    def _complete(self) -> Iterator[Frame]:
        while (header := self._header or self._read_header()) is not None:
            self._header = header
            kind, length = header
            if len(self._buffer) < length:
                break
            payload = bytes(memoryview(self._buffer)[:length])
            del self._buffer[:length]
            self._header = None
            yield _decode(kind, payload)
        if self._total_bytes > self._max_total_bytes:
            raise ProtocolError(f"more than {self._max_total_bytes} bytes of frames")

    def _read_header(self) -> tuple[Kind, int] | None:
        if self._buffer and self._buffer[0] != VERSION:
            raise ProtocolError(f"a frame starts with byte {self._buffer[0]:#04x}, expected {VERSION:#04x}")
        if len(self._buffer) < HEADER.size:
            return None
        _, kind_byte, length = HEADER.unpack_from(self._buffer)
        kind = _KINDS.get(kind_byte)
        if kind is None:
            raise ProtocolError(f"no kind of frame has number {kind_byte}")
        limit = _limit(kind, self._max_frame_bytes)
        if length > limit:
            raise ProtocolError(f"frame {kind.name} announces {length} bytes, {limit} are allowed")
        self._frames += 1
        if self._frames > self._max_frames:
            raise ProtocolError(f"more than {self._max_frames} frames")
        del self._buffer[: HEADER.size]
        return kind, length


def _limit(kind: Kind, max_frame_bytes: int) -> int:
    return min(max_frame_bytes, MAX_NOTE_BYTES) if kind in _NOTES else max_frame_bytes


def _decode(kind: Kind, payload: bytes) -> Frame:
    if kind is Kind.ARTEFACT:
        if not 1 < len(payload) <= CHUNK_BYTES + 1 or payload[0] >= len(ARTEFACTS):
            raise ProtocolError(f"frame ARTEFACT of {len(payload)} bytes is empty, too long or names nothing")
        return Chunk(name=ARTEFACTS[payload[0]], data=payload[1:])
    if kind is Kind.BLOB:
        if not _PAGE.size < len(payload) <= CHUNK_BYTES + _PAGE.size or not any(payload[: _PAGE.size]):
            raise ProtocolError(f"frame BLOB of {len(payload)} bytes is empty, too long or names no page")
        return BlobChunk(page=_PAGE.unpack_from(payload)[0], data=payload[_PAGE.size :])
    try:
        frame = MODELS[kind].model_validate_json(payload)
    except (ValidationError, RecursionError) as error:
        raise ProtocolError(f"frame {kind.name} is not as agreed: {_first_fault(error)}") from None
    return frame  # type: ignore[return-value]  # MODELS holds exactly the members of Frame


def _first_fault(error: ValidationError | RecursionError) -> str:
    """Say where and why, without the bytes themselves: they may be the document's text."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return clean(f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}", 200)
