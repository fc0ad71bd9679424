"""The far end of `bench.before`: one process that converts with the engine of one checkout, ours or an older one.

Rules: this one file is run for both, with either's `daemon` on PYTHONPATH and nothing of `bench`, so that both are
measured alike and an older checkout needs no bench. One JSON line per document comes on stdin (`path`, `media_type`,
the most `pages`). It is answered by one: `wall_s`, `cpu_s`, `pages` and `markdown`; or `too_long`, its pages;
or `failed`, the reason. The process lives in the environment of its own checkout's children.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import daemon
from daemon import sandbox
from daemon.config_engine import EngineSettings
from daemon.model import MediaType, PageRecord, Plan, Stage

_AGAIN = "again"


class _TooLongError(Exception):
    """The document has more pages than were asked for."""

    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        self.pages = pages


class _Opened:
    """Nobody listens; a document of too many pages is put down as soon as it has been opened."""

    def __init__(self, most_pages: int) -> None:
        self._most_pages = most_pages

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See `daemon.engine.api.Progress`."""

    def opened(self, pages: int) -> None:
        """See `daemon.engine.api.Progress`. Raises _TooLongError."""
        if pages > self._most_pages:
            raise _TooLongError(pages)

    def page_done(self, record: PageRecord) -> None:
        """See `daemon.engine.api.Progress`."""


def answer(engine: Any, asked: dict[str, Any]) -> dict[str, object]:
    """Convert one document; what reading the file and converting took, in seconds."""
    started, cpu_before = time.perf_counter(), time.process_time()
    try:
        conversion = engine.convert(
            Path(asked["path"]).read_bytes(),
            media_type=MediaType(asked["media_type"]),
            plan=Plan(),
            finished={},
            scratch=Path(tempfile.gettempdir()),
            progress=_Opened(asked["pages"]),
        )
    except _TooLongError as error:
        return {"too_long": error.pages}
    except Exception as error:  # noqa: BLE001 - whatever the engine raises costs this document, and is told
        return {"failed": f"{type(error).__name__}: {error}"}
    cost = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_before}
    return {**cost, "pages": len(conversion.pages), "markdown": conversion.artefacts["document.md"].decode()}


def in_its_environment() -> None:
    """Begin again, once, with the variables that this checkout gives its children: glibc reads its own at start."""
    if _AGAIN not in sys.argv:
        own = sandbox.environment(os.environ) | {"PYTHONPATH": os.environ["PYTHONPATH"]}
        os.execve(sys.executable, [*sys.orig_argv, _AGAIN], own)  # noqa: S606 - ourselves


def load_engine() -> Any:
    """The production engine, warm as the zygote has it."""
    from daemon.engine.pipeline import load  # noqa: PLC0415 - after the environment is right

    engine = load(EngineSettings(), threads=1)
    engine.warm_up()
    gc.collect()
    gc.freeze()
    return engine


def main() -> None:
    """Load, say whose `daemon` it is, convert what comes, leave when stdin closes."""
    in_its_environment()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    engine = load_engine()
    assert daemon.__file__ is not None, "a package with an __init__"
    print(json.dumps({"daemon": str(Path(daemon.__file__).resolve().parent)}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
