"""The engine in a process of its own, shared by the tests of this folder."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("worker.py")
ROOT = WORKER.parents[2]
MEDIA_TYPES = {
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".tiff": "image/tiff",
    ".tif": "image/tiff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a fork reported."""

    cause: str | None
    detail: str
    artefacts: dict[str, bytes]
    #: (page, state, engine, reason)
    pages: list[tuple[int, str, str, str]]
    warnings: list[str]
    #: ("done", page) where a page was handed over.
    stages: list[tuple[str, int | None]]
    #: Pages are left.
    sliced: bool
    #: Pages of the document, as announced.
    opened: int
    #: What was handed over, by page.
    blobs: dict[int, bytes]
    threads: int
    peak_rss_kib: int
    #: Of the memory that was left free on purpose; 0 when none was.
    given_back_kib: int = 0
    elapsed_s: list[float] = field(default_factory=list)

    @property
    def markdown(self) -> str:
        """The Markdown, blanks and line ends as single spaces."""
        return " ".join(self.artefacts["document.md"].decode().split())


class Worker:
    """A running `worker.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.hello: dict[str, Any] = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the engine's process ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def convert(
        self,
        path: Path,
        *,
        plan: Mapping[str, object] | None = None,
        finished: Mapping[int, bytes] | None = None,
        broken: Sequence[str] = (),
        times: int = 1,
        litter: str | None = None,
    ) -> Result:
        """Convert one document in a fork; `plan` holds the fields of a Plan, modes by name; see `worker.py`."""
        job: dict[str, Any] = {"path": str(path), "media_type": MEDIA_TYPES[path.suffix], "times": times}
        job["plan"] = plan or {}
        job["finished"] = {page: base64.b64encode(blob).decode() for page, blob in (finished or {}).items()}
        job["break"] = list(broken)
        job["litter"] = litter
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "died" not in answer, f"the fork died with status {answer['died']}"
        return Result(
            cause=answer.get("cause"),
            detail=answer.get("detail", ""),
            artefacts={name: base64.b64decode(data) for name, data in answer.get("artefacts", {}).items()},
            pages=[(page, state, engine, reason) for page, state, engine, reason in answer.get("pages", ())],
            warnings=answer.get("warnings", []),
            stages=[(stage, page) for stage, page in answer["stages"]],
            sliced=answer.get("sliced", False),
            opened=answer["opened"],
            blobs={int(page): base64.b64decode(blob) for page, blob in answer["blobs"].items()},
            threads=answer["threads"],
            peak_rss_kib=answer["peak_rss_kib"],
            given_back_kib=answer.get("given_back_kib") or 0,
            elapsed_s=answer.get("elapsed_s", []),
        )


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """The engine, loaded and warm."""
    command = [sys.executable, str(WORKER)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
