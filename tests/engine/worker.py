"""A process that loads the engine once and converts each document in a fork of itself, as production does.

Reads one JSON job per line, writes one JSON result per line; the first line says which threads it has. A job
may break a part of the engine in its fork: `{"break": ["layout:2"]}` makes the layout of page 2 raise. It may leave
free memory behind: `{"litter": "done:1"}` does when page 1 is done, and the result says how much of it was
given back to the kernel before the next event.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from daemon.config_engine import EngineSettings
from daemon.engine import runtime
from daemon.engine.pipeline import DoclingEngine, load
from daemon.errors import DocumentError
from daemon.model import MediaType, PageMode, PageRecord, Plan, Stage


class Recorder:
    """Progress, kept."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.pages = 0
        self.records: list[PageRecord] = []

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """Keep it."""
        self.stages.append((stage.value, page))

    def opened(self, pages: int) -> None:
        """Keep it."""
        self.pages = pages

    def page_done(self, record: PageRecord) -> None:
        """Keep it."""
        self.records.append(record)
        self.stages.append(("done", record.page))


class Litterer(Recorder):
    """Leaves memory that is free and still the process's at the first event of a name, and looks at it at the next."""

    #: Pieces too small for the kernel to be asked for each.
    PIECES, PIECE_BYTES = 100_000, 1_000

    def __init__(self, event: str) -> None:
        super().__init__()
        self._event = event
        self._resident_kib: int | None = None
        self.given_back_kib: int | None = None

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See Recorder."""
        super().stage(stage, page)
        self._heard(f"{stage.value}:{page}")

    def page_done(self, record: PageRecord) -> None:
        """See Recorder."""
        super().page_done(record)
        self._heard(f"done:{record.page}")

    def _heard(self, event: str) -> None:
        if self._resident_kib is None:
            if event == self._event:
                self._litter()
                self._resident_kib = resident_kib()
        elif self.given_back_kib is None:
            self.given_back_kib = self._resident_kib - resident_kib()

    def _litter(self) -> None:
        heap = ctypes.CDLL(None)
        heap.malloc.restype, heap.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        pieces = [heap.malloc(ctypes.c_size_t(self.PIECE_BYTES)) for _ in range(self.PIECES)]
        for piece in pieces:
            ctypes.memset(piece, 1, self.PIECE_BYTES)
        # The last one is kept: without anything in use above it, the C library gives it all back by itself.
        for piece in pieces[:-1]:
            heap.free(piece)


def resident_kib() -> int:
    """Memory that this process has in RAM now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024


def plan_of(job: dict[str, Any]) -> Plan:
    """The job's plan; modes by their names, pages as JSON has them."""
    said = dict(job.get("plan", {}))
    said["modes"] = {int(page): PageMode(mode) for page, mode in said.get("modes", {}).items()}
    said["skip"] = frozenset(said.get("skip", ()))
    said["default"] = PageMode(said.get("default", "full"))
    return Plan(**said)


def sabotage(engine: DoclingEngine, what: str) -> None:
    """Make a part of the engine raise, in this fork only."""
    from daemon.engine import document, modes, plain, preview  # noqa: PLC0415 - after load

    part, _, page = what.partition(":")
    error = MemoryError() if part == "memory" else RuntimeError(f"the {part} is \ud800 down")

    def raises(*_: Any, **__: Any) -> Any:
        raise error

    def unless_broken(original: Any) -> Any:
        """The original, but for the broken page; pages are told by their number or by their argument."""

        def wrapped(*arguments: Any) -> Any:
            if page in {"all", *(str(getattr(value, "number", value)) for value in arguments)}:
                raise error
            return original(*arguments)

        return wrapped

    match part:
        case "preview":
            vars(preview)["preview"] = raises
        case "mupdf":
            vars(document)["PdfSource"] = raises
        case "text":
            vars(modes)["by_mupdf"] = unless_broken(vars(modes)["by_mupdf"])
        case "pdfium":
            plain.SecondParser.read = unless_broken(plain.SecondParser.read)  # type: ignore[method-assign]
        case _:
            engine._layout._clusters = unless_broken(engine._layout._clusters)  # type: ignore[method-assign]


def convert(engine: DoclingEngine, job: dict[str, Any]) -> dict[str, Any]:
    """One job's result."""
    litterer = Litterer(job["litter"]) if job.get("litter") else None
    recorder = litterer or Recorder()
    for part in job.get("break", ()):
        sabotage(engine, part)
    data = Path(job["path"]).read_bytes()
    media_type = MediaType(job["media_type"])
    result: dict[str, Any] = {}
    try:
        elapsed = []
        for _ in range(job.get("times", 1)):
            started = time.perf_counter()
            conversion = engine.convert(
                data,
                media_type=media_type,
                plan=plan_of(job),
                finished={int(page): base64.b64decode(blob) for page, blob in job.get("finished", {}).items()},
                scratch=Path(job["path"]).parent,
                progress=recorder,
            )
            elapsed.append(time.perf_counter() - started)
    except DocumentError as error:
        result = {"cause": error.cause.value, "detail": error.detail}
    else:
        result = {"sliced": True}
        if conversion is not None:
            result = {
                "artefacts": {name: base64.b64encode(data).decode() for name, data in conversion.artefacts.items()},
                "pages": [[r.page, r.state.value, r.engine, r.reason] for r in conversion.pages],
                "warnings": list(conversion.warnings),
                "elapsed_s": elapsed,
            }
    result |= {"stages": recorder.stages, "opened": recorder.pages, "threads": len(runtime.thread_names())}
    if litterer is not None:
        result["given_back_kib"] = litterer.given_back_kib
    result["blobs"] = {str(r.page): base64.b64encode(r.blob).decode() for r in recorder.records}
    return result | {"peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def answer(value: dict[str, Any]) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until the input ends."""
    engine = load(EngineSettings(), threads=1)
    engine.warm_up()
    answer({"threads": runtime.thread_names(), "manifest": dict(engine.manifest)})
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            answer(convert(engine, json.loads(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            answer({"died": status})


if __name__ == "__main__":
    main()
