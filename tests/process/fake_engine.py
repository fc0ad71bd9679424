"""A fake engine: no models, no libraries, and every way to die that only code inside the child can have.

What it does is written in the document itself: one command per line, each a page. `fake 5` is a document of five
harmless pages. A page's blob is JSON: its number, its text and the mode that it was converted in.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from daemon.config_engine import EngineSettings
from daemon.engine.api import Progress
from daemon.errors import DocumentError, EngineError
from daemon.model import OCR_MODES, Cause, Conversion, MediaType, PageRecord, PageReport, PageState, Plan, Stage

#: Of one child, with much to spare.
MOST_DESCRIPTORS = 256


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
        plan: Plan,
        finished: Mapping[int, bytes],
        scratch: Path,
        progress: Progress,
    ) -> Conversion | None:
        """Obey, page by page."""
        lines = lines_of(data)
        (scratch / "work").write_bytes(data)
        if lines[0] == "leave":
            progress.opened(len(lines))
            return None
        if lines[0] != "unopened":
            progress.opened(len(lines))
        blobs: dict[int, bytes] = {}
        fresh = 0
        for number, line in enumerate(lines, start=1):
            kept = finished.get(number)
            if kept is not None:
                blobs[number] = kept
            elif (plan.wants(number) and fresh < plan.most_pages) or line == "unasked":
                fresh += 1
                blobs[number] = convert_page(number, line, plan, scratch, progress)
        return self.assembled(lines, blobs) if len(blobs) == len(lines) else None

    def assembled(self, lines: list[str], blobs: Mapping[int, bytes]) -> Conversion:
        """Make the document from its pages' blobs and from nothing else."""
        pages = [json.loads(blobs[number]) for number in range(1, len(lines) + 1)]
        size = int(lines[0].removeprefix("size ")) if lines[0].startswith("size ") else 0
        markdown = "\n".join(page["text"].upper() for page in pages).encode() + b"x" * size
        return Conversion(
            artefacts={"document.md": markdown, "document.json": b"{}"},
            pages=tuple(report_of(page["page"], Plan(default=page["mode"])) for page in pages),
            engine=self.manifest,
        )


def lines_of(data: bytes) -> list[str]:
    """One command a page."""
    lines = data.decode().splitlines()
    return [f"page {number}" for number in range(1, int(lines[0][5:]) + 1)] if lines[0].startswith("fake ") else lines


def report_of(number: int, plan: Plan) -> PageReport:
    """The account of one page."""
    state = PageState.OCR if plan.mode_of(number) in OCR_MODES else PageState.TEXT
    return PageReport(page=number, state=state, engine="fake")


def convert_page(number: int, line: str, plan: Plan, scratch: Path, progress: Progress) -> bytes:
    """Announce, obey, hand over."""
    progress.stage(Stage.PARSE, number)
    progress.stage(Stage.LAYOUT, number)
    if plan.mode_of(number) in OCR_MODES:
        progress.stage(Stage.OCR, number)
    page = {"page": number, "text": obey(line, scratch) or line, "mode": plan.mode_of(number)}
    if line.startswith("blob "):
        page["padding"] = "x" * int(line.removeprefix("blob "))
    record = PageRecord(page=number, report=report_of(number, plan), blob=json.dumps(page).encode())
    for _ in range(2 if line == "twice" else 1):
        progress.page_done(record)
    return record.blob


def obey(line: str, scratch: Path) -> str | None:
    """Carry out one command; anything that is none is text. Returns the page's text, where the command has one."""
    word, _, rest = line.partition(" ")
    if word == "lock-scratch":
        (scratch / "locked" / "inner").mkdir(parents=True)
        (scratch / "locked").chmod(0)
        (scratch / "elsewhere").symlink_to("/tmp")  # noqa: S108  must not be followed
        scratch.chmod(0)
    elif word == "try":
        said: str = part("attempts").tried_in_child(json.loads(rest), scratch)
        return said
    elif word in COMMANDS:
        told = COMMANDS[word](rest)
        return told if isinstance(told, str) else None
    return None


def part(name: str) -> Any:
    """A module beside this one, when it is needed: elsewhere this file is used alone."""
    return importlib.import_module(f"tests.process.{name}")


def send_half_a_frame(then: Callable[[], object]) -> None:
    """Announce a result, send four bytes of it, and end."""
    frames_socket().send(b"\xb1\x07\x00\x00\x10\x00half")
    then()


def send_half_a_blob() -> None:
    """Send a whole chunk of page 2, announce a second one, and die in the middle of it."""
    begun = struct.pack(">BBI", 0xB1, 9, 4096) + struct.pack(">I", 2) + b"and"
    frames_socket().send(frame(9, struct.pack(">I", 2) + b"half a page") + begun)
    os.abort()


def send_wrong_digest() -> None:
    """Account for page 2 with the digest of other bytes."""
    account = {"page": 2, "state": "text", "engine": "fake"}
    done = {"account": account, "size_bytes": 4, "sha256": "0" * 64}
    frames_socket().send(frame(9, struct.pack(">I", 2) + b"blob") + frame(3, json.dumps(done).encode()))
    threading.Event().wait()


def frame(kind: int, payload: bytes) -> bytes:
    """Bytes of a frame, made without the code that the parent trusts."""
    return struct.pack(">BBI", 0xB1, kind, len(payload)) + payload


def spin() -> None:
    """Compute for ever in native code, holding the GIL."""
    sum(range(10**15))


def chatter() -> None:
    """Log without end and without getting on."""
    while True:
        logging.getLogger("chatty").warning("still here")
        threading.Event().wait(0.05)


def close_and_linger() -> None:
    """Hang up, and stay."""
    frames_socket().shutdown(socket.SHUT_RDWR)
    threading.Event().wait()


def refuse(error: Exception) -> None:
    """Raise what the case asks for."""
    raise error


def frames_socket() -> socket.socket:
    """Find the child's end of the frames socket: the only stream socket that it has."""
    for fd in range(MOST_DESCRIPTORS):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                return socket.socket(fileno=os.dup(fd))
    raise AssertionError("no socket")


def describe_descriptors() -> str:
    """What this process has open; links of /proc may be read in the sandbox, its folders may not be listed."""
    found = []
    for fd in range(MOST_DESCRIPTORS):
        with suppress(OSError):
            found.append(f"{fd} {Path(f'/proc/self/fd/{fd}').readlink()}")
    return "\n".join(found)


def write_to_document() -> None:
    """Try to change the bytes that the next child would read."""
    for fd in range(3, MOST_DESCRIPTORS):
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.pwrite(fd, b"overwritten", 0)


def load(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """The factory."""
    return FakeEngine()


def load_trying(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory that tries, while it loads, what needs no aim; its manifest tells what came of it."""
    made = FakeEngine()
    made.manifest = {"tried": part("attempts").tried_while_loading()}
    return made


def load_with_thread(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory that leaves a thread behind, as a careless library does."""
    threading.Thread(target=threading.Event().wait, name="careless", daemon=True).start()
    return FakeEngine()


def load_slowly(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory that takes longer than some documents may."""
    threading.Event().wait(2.0)
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


def load_and_be_killed(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory whose process is killed from outside, as the kernel does it for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return FakeEngine()


def load_for_ever(settings: EngineSettings, *, threads: int) -> FakeEngine:
    """A factory on a host that is far too slow."""
    threading.Event().wait()
    return FakeEngine()


COMMANDS: Mapping[str, Callable[[str], object]] = {
    "half": lambda _: send_half_a_frame(lambda: os._exit(0)),
    "half-blob": lambda _: send_half_a_blob(),
    "wrong-digest": lambda _: send_wrong_digest(),
    "spin": lambda _: spin(),
    "chatter": lambda _: chatter(),
    "half-abort": lambda _: send_half_a_frame(os.abort),
    "job": lambda _: frames_socket().send(b"\xb1\x10\x00\x00\x00\x02{}"),
    "grandchild": lambda rest: part("greed").leave_grandchild(Path(rest), own_session=False),
    "grandchild-setsid": lambda rest: part("greed").leave_grandchild(Path(rest), own_session=True),
    "close-and-linger": lambda _: close_and_linger(),
    "print": lambda rest: os.write(2, b"noise " * int(rest)),
    "wait": lambda rest: threading.Event().wait(float(rest)),
    "encrypted": lambda _: refuse(DocumentError(Cause.ENCRYPTED, "it needs a password")),
    "lone-surrogate": lambda _: refuse(ValueError("\ud800 is no text")),
    "environment": lambda _: "\n".join(sorted(os.environ)),
    "descriptors": lambda _: describe_descriptors(),
    "write-document": lambda _: write_to_document(),
    "threads": lambda _: part("greed").start_threads(),
    "foreign-call": lambda _: part("calls").foreign_call(),
    "hold": lambda rest: part("greed").hold(int(rest)),
    "map-shared": lambda _: part("greed").map_shared(),
    "fill-memfds": lambda _: part("greed").fill_memfds(),
    "burst": lambda _: part("greed").burst(),
    "burst-memfd": lambda _: part("greed").burst(in_memfd=True),
    "burst-below": lambda _: part("greed").burst_below(),
    "fill-scratch": lambda _: part("greed").fill_scratch(keep_names=True),
    "fill-unnamed": lambda _: part("greed").fill_scratch(keep_names=False),
    "make-files": lambda _: part("greed").make_files(),
    "make-folders": lambda _: part("greed").make_folders(),
}
