"""A fake engine: no models, no libraries, and every way to die that only code inside the child can have.

What it does is written in the document itself: one command per line, each a page.
"""

from __future__ import annotations

import mmap
import os
import socket
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from daemon.config import EngineSettings
from daemon.engine.api import Progress
from daemon.errors import DocumentError, EngineError
from daemon.model import Cause, Conversion, MediaType, PageReport, PageState, Stage


class FakeEngine:
    """Upper-cases its document's lines."""

    manifest: Mapping[str, object] = {"engine": "fake"}

    def warm_up(self) -> None:
        """Nothing is cold."""

    def convert(
        self,
        data: bytes,
        *,
        media_type: MediaType,  # noqa: ARG002  the interface's own
        ocr: bool,
        scratch: Path,
        progress: Progress,
    ) -> Conversion:
        """Obey, page by page."""
        lines = data.decode().splitlines()
        (scratch / "work").write_bytes(data)
        reports = []
        for number, line in enumerate(lines, start=1):
            progress.stage(Stage.PARSE, number)
            progress.stage(Stage.LAYOUT, number)
            if ocr:
                progress.stage(Stage.OCR, number)
            obey(line, scratch)
            report = PageReport(page=number, state=PageState.OCR if ocr else PageState.TEXT, engine="fake")
            progress.page_done(report, len(lines))
            reports.append(report)
        size = int(lines[0].removeprefix("size ")) if lines[0].startswith("size ") else 0
        markdown = data.decode().upper().encode() + b"x" * size
        return Conversion(
            artefacts={"document.md": markdown, "document.json": b"{}"}, pages=tuple(reports), engine=self.manifest
        )


def obey(line: str, scratch: Path) -> None:
    """Carry out one command; anything that is none is text."""
    word, _, rest = line.partition(" ")
    if word == "lock-scratch":
        (scratch / "locked" / "inner").mkdir(parents=True)
        (scratch / "locked").chmod(0)
        (scratch / "elsewhere").symlink_to("/tmp")  # noqa: S108  must not be followed
        scratch.chmod(0)
    elif word in COMMANDS:
        COMMANDS[word](rest)


def send_half_a_frame(then: Callable[[], object]) -> None:
    """Announce a result, send four bytes of it, and end."""
    frames_socket().send(b"\xb1\x07\x00\x00\x10\x00half")
    then()


def close_and_linger() -> None:
    """Hang up, and stay."""
    frames_socket().shutdown(socket.SHUT_RDWR)
    threading.Event().wait()


def refuse(error: Exception) -> None:
    """Raise what the case asks for."""
    raise error


def frames_socket() -> socket.socket:
    """Find the child's end of the frames socket: the only stream socket that it has."""
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                return socket.socket(fileno=os.dup(int(name)))
    raise AssertionError("no socket")


def describe_descriptors() -> list[str]:
    """What this process has open."""
    found = []
    for path in sorted(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            found.append(f"{path.name} {path.readlink()}")
    return found


def write_to_document() -> None:
    """Try to change the bytes that the next child would read."""
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):
            if int(name) > 2 and stat.S_ISREG(os.fstat(int(name)).st_mode):
                os.pwrite(int(name), b"overwritten", 0)


def map_shared() -> None:
    """Fill shared memory, which RLIMIT_DATA does not count, without end."""
    held = []
    while True:
        block = mmap.mmap(-1, 2**24)
        block.write(b"\x01" * 2**24)
        held.append(block)
        threading.Event().wait(0.01)


def leave_grandchild(pid_file: Path, *, own_session: bool) -> None:
    """Fork a process that would stay for a long time, and go on when its pid is on disk."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        if own_session:
            os.setsid()
        pid_file.write_text(str(os.getpid()), encoding="ascii")
        os.write(writable, b".")
        threading.Event().wait(9_999)
        os._exit(0)
    os.read(readable, 1)


def load(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """The factory."""
    return FakeEngine()


def load_with_thread(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory that leaves a thread behind, as a careless library does."""
    threading.Thread(target=threading.Event().wait, name="careless", daemon=True).start()
    return FakeEngine()


def load_nothing(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory that misses a package."""
    raise EngineError("cannot load OCR: package 'rapidocr' is missing")


def load_missing_module(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory whose import fails."""
    import no_such_package  # type: ignore[import-not-found]  # noqa: F401, PLC0415  the failure is the case

    return FakeEngine()


def load_and_die(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory that ends its process."""
    os.abort()


COMMANDS: Mapping[str, Callable[[str], object]] = {
    "half": lambda _: send_half_a_frame(lambda: os._exit(0)),
    "half-abort": lambda _: send_half_a_frame(os.abort),
    "job": lambda _: frames_socket().send(b"\xb1\x10\x00\x00\x00\x02{}"),
    "grandchild": lambda rest: leave_grandchild(Path(rest), own_session=False),
    "grandchild-setsid": lambda rest: leave_grandchild(Path(rest), own_session=True),
    "close-and-linger": lambda _: close_and_linger(),
    "print": lambda rest: os.write(2, b"noise " * int(rest)),
    "wait": lambda rest: threading.Event().wait(float(rest)),
    "encrypted": lambda _: refuse(DocumentError(Cause.ENCRYPTED, "it needs a password")),
    "lone-surrogate": lambda _: refuse(ValueError("\ud800 is no text")),
    "environment": lambda rest: Path(rest).write_text("\n".join(sorted(os.environ)), encoding="utf-8"),
    "descriptors": lambda rest: Path(rest).write_text("\n".join(describe_descriptors()), encoding="utf-8"),
    "write-document": lambda _: write_to_document(),
    "map-shared": lambda _: map_shared(),
}
