"""One life: read the job, convert, send frames, leave.

Shell. `live` is the whole life after a fork; `python -m daemon.child` is the same life after an exec, with the
engine loaded first. What the child has is what it was given: the document, the finished pages and the frames
socket as descriptors, its scratch folder, a pipe for stdout and stderr. It ends by `os._exit`: threads that the engine
left are not waited for. Status 0 means that a result, a share of the pages or a failure was sent whole.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import JsonValue

from daemon import child_log, frames, loading, sandbox
from daemon.child_frames import NOT_HEARD, ReportedProgress, Voice
from daemon.engine.api import Engine
from daemon.errors import DocumentError, EngineError, ExitStatus
from daemon.failpoints import Point
from daemon.model import Cause, Conversion, Stage
from daemon.pack import Pack
from daemon.reaper import Reaper


def live(
    engine: Engine,
    *,
    connection: socket.socket,
    document: int,
    finished: int,
    fault_log: int,
    limits: sandbox.Limits,
    confinement: sandbox.Confinement,
    manifest: dict[str, JsonValue] | None = None,
) -> int:
    """Live one life and return the exit status. `document`, `finished` and `fault_log` are descriptors."""
    faulthandler.enable(file=fault_log, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=fault_log, all_threads=True)
    voice = Voice(connection)
    voice.send(frames.Hello(pid=os.getpid(), engine=manifest))
    job = voice.receive_job()
    if job is None:
        return NOT_HEARD
    sandbox.second_lock(limits, confinement=confinement, scratch=Path(job.scratch))
    os.chdir(job.scratch)
    tempfile.tempdir = os.environ["TMPDIR"] = job.scratch
    child_log.send_through(voice.send)
    failure = _convert(engine, voice, job, document, finished)
    if failure is not None:
        voice.send(failure)
    return 0


def _convert(engine: Engine, voice: Voice, job: frames.Job, document: int, finished: int) -> frames.Failure | None:
    """Convert and send what came of it; or return what went wrong, to be sent when its memory is free again."""
    progress = ReportedProgress(voice, job)
    try:
        progress.reach(Point.CHILD_START)
        progress.stage(Stage.OPEN)
        pack = Pack(lambda size_bytes, offset: os.pread(finished, size_bytes, offset))
        conversion = engine.convert(
            _read(document),
            media_type=job.media_type,
            plan=job.plan.plan(),
            finished=pack,
            scratch=Path(job.scratch),
            progress=progress,
        )
        if conversion is None:
            voice.send(frames.Sliced(left=_left(progress, pack)))
        else:
            progress.stage(Stage.RESULT)
            progress.reach(Point.CHILD_RESULT)
            _send(voice, conversion, progress)
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


def _left(progress: ReportedProgress, finished: Mapping[int, bytes]) -> int:
    """Count the pages that are left to others: at least one, since the engine has no conversion."""
    assert progress.pages is not None, "an engine says how many pages there are before it leaves some"
    return max(1, progress.pages - len(progress.done | set(finished)))


def _read(document: int) -> bytes:
    """Return all bytes of the descriptor, from the start, wherever its offset is."""
    parts: list[bytes] = []
    offset = 0
    while part := os.pread(document, 2**24, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _send(voice: Voice, conversion: Conversion, progress: ReportedProgress) -> None:
    """Send the artefacts and their account. Raises DocumentError when they are larger than the parent takes."""
    size_bytes = sum(len(content) for content in conversion.artefacts.values())
    progress.count(size_bytes, f"the result of {size_bytes} bytes")
    for name, content in conversion.artefacts.items():
        for start in range(0, len(content), frames.CHUNK_BYTES):
            voice.send(frames.Chunk(name=name, data=content[start : start + frames.CHUNK_BYTES]), more=True)
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
    for name in ("frames", "document", "finished", "fault-log", "supervision", "memory-bytes", "max-file-bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args(argv)
    sandbox.adopt_orphans()
    sandbox.first_lock(parent_pid=arguments.parent, confinement=loading.confinement(arguments))
    supervision = socket.socket(fileno=arguments.supervision)
    first_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        sandbox.die_with(first_pid)
        supervision.close()
        return _load_and_live(arguments)
    reaper = Reaper()
    pidfd = reaper.adopt(pid).pidfd
    reaper.assign(reaper.live[pidfd], supervision)
    sandbox.close_all_but({0, 1, 2, pidfd, supervision.fileno()})
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    waiting.poll()
    reaper.conclude(reaper.live[pidfd])
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
        finished=arguments.finished,
        fault_log=arguments.fault_log,
        limits=sandbox.Limits(memory_bytes=arguments.memory_bytes, max_file_bytes=arguments.max_file_bytes),
        confinement=loading.confinement(arguments),
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
