"""The yardstick: one process that has the engine loaded and converts one document after the other.

No isolation at all: this is what a plain loop costs. `python -m bench._loop` is that process; it takes one JSON line
per document on stdin and answers with one, in the environment of the daemon's own children. `Loop` is its other end.
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench._measure import Cost, Doc, kills_at
from daemon import sandbox
from daemon.config_engine import EngineSettings
from daemon.failpoints import Action, Failpoint, Point
from daemon.faults import fire
from daemon.model import MediaType, PageRecord, Plan, Stage

#: It leaves when stdin closes; a conversion in hand is let finish.
_LEAVE_S = 60.0


class _Silent:
    """Nobody listens; a killer dies here, where a child of the daemon dies at its failpoint."""

    def __init__(self, kills_at: int | None) -> None:
        self._kills_at = kills_at

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See `daemon.engine.api.Progress`."""
        del stage
        if page is not None and page == self._kills_at:
            fire(Failpoint(point=Point.CHILD_PAGE, action=Action.SEGV))

    def opened(self, pages: int) -> None:
        """See `daemon.engine.api.Progress`."""

    def page_done(self, record: PageRecord) -> None:
        """See `daemon.engine.api.Progress`."""


def load_engine() -> Any:
    """The production engine, warm as the zygote has it, in this process."""
    from daemon.engine.pipeline import load  # noqa: PLC0415 - native code; the driver of a bench imports none

    engine = load(EngineSettings(), threads=1)
    engine.warm_up()
    gc.collect()
    gc.freeze()
    return engine


def convert(engine: Any, path: Path, media_type: MediaType) -> dict[str, bytes]:
    """Convert one file; its artefacts. A document that cannot be converted ends the bench: it measures good ones."""
    conversion = engine.convert(
        path.read_bytes(),
        media_type=media_type,
        plan=Plan(),
        finished={},
        scratch=Path(tempfile.gettempdir()),
        progress=_Silent(kills_at(path.name)),
    )
    return dict(conversion.artefacts)


class LoopEnded(SystemExit):
    """The process of a loop is gone, with a sentence that says so; who does not expect it ends too."""


class Loop:
    """Such a process; end it by leaving the `with`."""

    def __init__(self, *program: str, environment: Mapping[str, str] | None = None) -> None:
        """`program` and `environment` are those of another process that speaks in the same way."""
        self._process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "bench._loop"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=sandbox.environment(os.environ) | dict(environment or {}),
            cwd=Path(__file__).parent.parent,
            text=True,
        )

    def __enter__(self) -> Self:
        """Wait until the engine is loaded."""
        self.ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Hang up and reap."""
        self.close()

    def ready(self) -> dict[str, Any]:
        """Wait until the engine is loaded; what the process says of itself then. Raises LoopEnded."""
        return self._answer()

    def convert(self, doc: Doc) -> Cost:
        """Convert and wait; what reading the file and converting took, in the process itself. Raises LoopEnded."""
        answer = self.ask({"path": str(doc.path), "media_type": doc.media_type})
        return Cost(wall_s=answer["wall_s"], cpu_s=answer["cpu_s"])

    def ask(self, asked: Mapping[str, object], *, within_s: float | None = None) -> dict[str, Any]:
        """One line there and one back. Raises LoopEnded; TimeoutError, after which there is only `kill`."""
        assert self._process.stdin is not None, "stdin is a pipe"
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer(within_s)

    def kill(self) -> None:
        """Whatever it does, it ends; `close` reaps it."""
        self._process.kill()

    def close(self) -> None:
        """Hang up and reap."""
        assert self._process.stdin is not None, "stdin is a pipe"
        assert self._process.stdout is not None, "stdout is a pipe"
        self._process.stdin.close()
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self, within_s: float | None = None) -> dict[str, Any]:
        assert self._process.stdout is not None, "stdout is a pipe"
        # Nothing is left of the answer before, so what comes is seen in the pipe itself.
        if not select.select([self._process.stdout], [], [], within_s)[0]:
            raise TimeoutError(f"no answer within {within_s} s")
        line = self._process.stdout.readline()
        if not line:
            raise LoopEnded(f"cannot measure: the in-process loop ended with status {self._process.wait()}; see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """Load, say so, convert what comes, leave when stdin closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    engine = load_engine()
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        started, cpu_before = time.perf_counter(), time.process_time()
        convert(engine, Path(asked["path"]), MediaType(asked["media_type"]))
        cost = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_before}
        print(json.dumps(cost), file=answers, flush=True)


if __name__ == "__main__":
    main()
