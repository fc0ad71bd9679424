"""Bytes on their way from a source to a child: counted, hashed, judged by their first kilobyte, and kept in one file.

Edge. Rules: the file has no name, so that nothing is left of it however this process ends; who gets it gets it
read-only, so that a hostile child cannot change what the next child reads; what a sender says of size and type is
never believed, only used to refuse earlier.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from daemon.clock import Clock
from daemon.errors import DocumentError, WorldError
from daemon.model import Cause, MediaType
from daemon.quota import Part

#: What a type is recognised by; `%PDF-` may stand anywhere in it, as viewers accept.
SNIFFED_BYTES = 1024
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", MediaType.PNG),
    (b"\xff\xd8\xff", MediaType.JPEG),
    (b"II*\x00", MediaType.TIFF),
    (b"MM\x00*", MediaType.TIFF),
    (b"II+\x00", MediaType.TIFF),  # BigTIFF
    (b"MM\x00+", MediaType.TIFF),
)


def sniff(first_bytes: bytes) -> MediaType | None:
    """What a document is, by its first `SNIFFED_BYTES`; None when it is none that we convert."""
    for magic, media_type in _IMAGES:
        if first_bytes.startswith(magic):
            return media_type
    return MediaType.PDF if b"%PDF-" in first_bytes[:SNIFFED_BYTES] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A document's bytes on this host."""

    #: Read-only, at position 0, without a name; whoever holds it closes it.
    file: BinaryIO
    size_bytes: int
    #: Hex digits, lower case.
    sha256: str
    media_type: MediaType


class Flag(Protocol):
    """What says whether a fetch was cancelled; a `threading.Event` does."""

    def is_set(self) -> bool:
        """Whether it was; once, then for ever."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long one fetch may go on, and whether anyone still wants it."""

    #: Monotonic, by `clock`.
    deadline: float
    timeout_s: float
    clock: Clock
    cancelled: Flag
    #: What bounds bytes whose turn has not come; None: they are an attempt's.
    part: Part | None = None

    def left_s(self) -> float:
        """Seconds left, above 0. Raises `WorldError` when the deadline has passed or the fetch was cancelled."""
        if self.cancelled.is_set():
            raise WorldError(Cause.DRAINED, "cannot fetch: cancelled")
        left_s = self.deadline - self.clock.monotonic()
        if left_s <= 0:
            raise WorldError(
                Cause.SOURCE_UNAVAILABLE,
                f"cannot fetch within {self.timeout_s:.0f} s: raise fetch.timeout_s if the source is always slow",
            )
        return left_s


class Spool:
    """Takes chunks until `finish`; closes its file when left by an exception."""

    def __init__(self, scratch: Path, *, max_bytes: int, budget: Budget) -> None:
        """Open the file in `scratch`. Raises `WorldError(DISK_FULL)`."""
        self.budget = budget
        self._max_bytes = max_bytes
        self._digest = sha256()
        self._size_bytes = 0
        self._first = b""
        try:
            self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - closed by `__exit__`
        except OSError as error:
            raise _scratch_error(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError:
            # What could not be written is gone; the error that matters was raised by `write` or `finish`.
            return

    def expect(self, size_bytes: int | None) -> None:
        """Refuse early what its sender calls too large. Raises `DocumentError(TOO_LARGE)`, or like `Part.reach`."""
        if size_bytes is not None and size_bytes > self._max_bytes:
            raise self._too_large(f"its sender says {size_bytes} bytes")
        if size_bytes is not None and self.budget.part is not None:
            self.budget.part.reach(size_bytes)

    def write(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises `DocumentError(TOO_LARGE)`, `WorldError` (disk full, deadline, cancelled), or like `Part.reach`.
        """
        self.budget.left_s()
        self._size_bytes += len(chunk)
        if self._size_bytes > self._max_bytes:
            raise self._too_large("it goes on beyond that")
        if self.budget.part is not None:
            self.budget.part.reach(self._size_bytes)
        self._digest.update(chunk)
        if len(self._first) < SNIFFED_BYTES:
            self._first += chunk[: SNIFFED_BYTES - len(self._first)]
        try:
            self._file.write(chunk)
        except OSError as error:
            raise _scratch_error(error) from error

    def finish(self) -> Fetched:
        """Judge what came and hand it over. Raises `DocumentError(NOT_A_DOCUMENT)` or `WorldError(DISK_FULL)`."""
        if not self._size_bytes:
            raise DocumentError(Cause.NOT_A_DOCUMENT, "cannot convert an empty object: it has 0 bytes")
        media_type = sniff(self._first)
        if media_type is None:
            raise DocumentError(
                Cause.NOT_A_DOCUMENT,
                f"cannot convert {self._size_bytes} bytes that are no PDF, PNG, JPEG or TIFF: they start with "
                f"{self._first[:8].hex(' ')}",
            )
        try:
            self._file.flush()
            file = os.fdopen(os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_RDONLY | os.O_CLOEXEC), "rb")
        except OSError as error:
            raise _scratch_error(error) from error
        return Fetched(file=file, size_bytes=self._size_bytes, sha256=self._digest.hexdigest(), media_type=media_type)

    def _too_large(self, how: str) -> DocumentError:
        return DocumentError(
            Cause.TOO_LARGE,
            f"cannot take a document beyond {self._max_bytes} bytes: {how}; raise fetch.max_bytes if it is wanted",
        )


def _scratch_error(error: OSError) -> WorldError:
    return WorldError(Cause.DISK_FULL, f"cannot write to the scratch folder: {error.strerror}; make room in state_dir")
