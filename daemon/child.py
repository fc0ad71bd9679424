"""One life: read the job, convert, send frames, leave.

Shell. `live` is the whole life after a fork; `python -m daemon.child` is the same life after an exec, with the
engine loaded first. What the child has is what it was given: the document and the frames socket as
descriptors, its scratch folder, a pipe for stdout and stderr. It ends by `os._exit`: threads that the engine
left are not waited for. Status 0 means that a result, or a failure, was sent whole.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import JsonValue

from daemon import child_log, faults, frames, loading, sandbox, wire
from daemon.engine.api import Engine
from daemon.errors import DocumentError, EngineError, ExitStatus, ProtocolError
from daemon.failpoints import Failpoint, Point, matching, parse
from daemon.model import Cause, Conversion, PageReport, Stage
from daemon.reaper import Reaper

#: The parent hung up, or never sent a job.
_NOT_HEARD = 3
_READ_BYTES = 2**16
_PAGE_POINTS = {Stage.OCR: Point.CHILD_OCR, Stage.LAYOUT: Point.CHILD_LAYOUT}


class Voice:
    """The child's end of the frames socket; frames from any thread, one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, frame: frames.Frame) -> None:
        """Send one frame whole. Ends the process when the parent has hung up: nobody is left to convert for."""
        encoded = wire.encode(frame)
        try:
            with self._lock:
                self.connection.sendall(encoded)
        except OSError:
            os._exit(_NOT_HEARD)

    def receive_job(self) -> frames.Job | None:
        """Wait for the job; None when the parent hangs up instead. Raises ProtocolError for anything else."""
        decoder = wire.Decoder(max_total_bytes=wire.MAX_FRAME_BYTES)
        while data := self.connection.recv(_READ_BYTES):
            for frame in decoder.feed(data):
                if isinstance(frame, frames.Job):
                    return frame
                raise ProtocolError(f"the parent sent a {type(frame).__name__} before the job")
        return None


class ReportedProgress:
    """Turns the engine's calls into frames, and dies where a failpoint says so."""

    def __init__(self, voice: Voice, job: frames.Job) -> None:
        self._voice = voice
        self._job = job
        self._failpoints: tuple[Failpoint, ...] = parse(job.failpoints)
        self._lock = threading.Lock()
        self._begun: set[int] = set()
        self.last: tuple[Stage, int | None] = (Stage.START, None)

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See `engine.api.Progress`."""
        with self._lock:
            first = page is not None and page not in self._begun
            if page is not None:
                self._begun.add(page)
            self.last = (stage, page)
        self._voice.send(frames.StageStarted(stage=stage, page=page))
        if first:
            self.reach(Point.CHILD_PAGE, page)
        if stage in _PAGE_POINTS:
            self.reach(_PAGE_POINTS[stage], page)

    def page_done(self, report: PageReport, pages: int) -> None:
        """See `engine.api.Progress`."""
        self._voice.send(frames.PageDone(account=frames.PageAccount.of(report), pages=pages))

    def reach(self, point: Point, page: int | None = None) -> None:
        """Fire whatever failpoints match here."""
        job = self._job
        for failpoint in matching(
            self._failpoints,
            point,
            page=page,
            doc=job.document_id,
            ocr=job.ocr,
            attempt=job.attempt,
            child=job.child,
        ):
            faults.fire(failpoint, frames=self._voice.connection)


def live(
    engine: Engine,
    *,
    connection: socket.socket,
    document: int,
    fault_log: int,
    limits: sandbox.Limits,
    manifest: dict[str, JsonValue] | None = None,
) -> int:
    """Live one life and return the exit status. `document` and `fault_log` are descriptors."""
    faulthandler.enable(file=fault_log, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=fault_log, all_threads=True)
    sandbox.second_lock(limits)
    voice = Voice(connection)
    voice.send(frames.Hello(pid=os.getpid(), engine=manifest))
    job = voice.receive_job()
    if job is None:
        return _NOT_HEARD
    os.chdir(job.scratch)
    tempfile.tempdir = os.environ["TMPDIR"] = job.scratch
    child_log.send_through(voice.send)
    failure = _convert(engine, voice, job, document)
    if failure is not None:
        voice.send(failure)
    return 0


def _convert(engine: Engine, voice: Voice, job: frames.Job, document: int) -> frames.Failure | None:
    """Convert and send the result; or return what went wrong, to be sent when its memory is free again."""
    progress = ReportedProgress(voice, job)
    try:
        progress.reach(Point.CHILD_START)
        progress.stage(Stage.OPEN)
        conversion = engine.convert(
            _read(document),
            media_type=job.media_type,
            ocr=job.ocr,
            scratch=Path(job.scratch),
            progress=progress,
        )
        progress.stage(Stage.RESULT)
        progress.reach(Point.CHILD_RESULT)
        _send(voice, conversion, job.max_output_bytes)
    except DocumentError as error:
        cause, sentence = error.cause, error.detail
    except MemoryError:
        cause, sentence = Cause.MEMORY, "the engine could not allocate memory"
    except Exception as error:  # noqa: BLE001  whatever the engine raises costs this document, and is reported
        cause, sentence = Cause.ENGINE_ERROR, f"{type(error).__name__}: {frames.clean(str(error))}"
    else:
        return None
    if cause not in frames.CLAIMABLE_CAUSES:
        cause, sentence = Cause.ENGINE_ERROR, f"{cause}: {sentence}"
    stage, page = progress.last
    return frames.Failure(cause=cause, detail=frames.detail(sentence), stage=stage, page=page)


def _read(document: int) -> bytes:
    """Return all bytes of the descriptor, from the start, wherever its offset is."""
    parts: list[bytes] = []
    offset = 0
    while part := os.pread(document, 2**24, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _send(voice: Voice, conversion: Conversion, max_output_bytes: int) -> None:
    """Send the artefacts and their account. Raises DocumentError when they are larger than the parent takes."""
    size_bytes = sum(len(content) for content in conversion.artefacts.values())
    # A tenth is left for what was sent before and for the headers.
    if size_bytes > max_output_bytes * 0.9:
        raise DocumentError(Cause.TOO_LARGE, f"the result of {size_bytes} bytes is beyond {max_output_bytes} allowed")
    for name, content in conversion.artefacts.items():
        for start in range(0, len(content), frames.CHUNK_BYTES):
            voice.send(frames.Chunk(name=name, data=content[start : start + frames.CHUNK_BYTES]))
    voice.send(
        frames.Result.model_validate_json(
            json.dumps(
                {
                    "pages": [frames.PageAccount.of(report).model_dump(mode="json") for report in conversion.pages],
                    "engine": conversion.engine,
                    "artefacts": {
                        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                        for name, content in conversion.artefacts.items()
                    },
                    "warnings": [frames.clean(text) for text in conversion.warnings[:100]],
                }
            )
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Live one life in a fresh interpreter; returns the exit status.

    Two processes: the first stays small, reaps the second and whatever that leaves, and reports its end on the
    supervision socket; the second loads the engine and lives.
    """
    parser = argparse.ArgumentParser(prog="daemon.child")
    loading.add_arguments(parser)
    for name in ("frames", "document", "fault-log", "supervision", "memory-bytes", "max-file-bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args(argv)
    sandbox.first_lock(parent_pid=arguments.parent)
    sandbox.adopt_orphans()
    supervision = socket.socket(fileno=arguments.supervision)
    first_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        sandbox.die_with(first_pid)
        supervision.close()
        return _load_and_live(arguments)
    reaper = Reaper()
    live_child = reaper.adopt(pid, supervision)
    sandbox.close_all_but({0, 1, 2, live_child.pidfd, supervision.fileno()})
    waiting = select.poll()
    waiting.register(live_child.pidfd, select.POLLIN)
    waiting.poll()
    reaper.conclude(live_child)
    return 0


def _load_and_live(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection = socket.socket(fileno=arguments.frames)
    try:
        engine = loading.load(arguments)
    except EngineError as error:
        Voice(connection).send(frames.Failure(cause=Cause.ENGINE_ERROR, detail=frames.detail(str(error))))
        return int(ExitStatus.ENGINE)
    return live(
        engine,
        connection=connection,
        document=arguments.document,
        fault_log=arguments.fault_log,
        limits=sandbox.Limits(memory_bytes=arguments.memory_bytes, max_file_bytes=arguments.max_file_bytes),
        manifest=loading.plain(engine.manifest),
    )


def leave(status: int) -> None:
    """End the process at once with what was printed, and without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
