"""Children that really run and really die, started both ways, with everything counted before and after."""

from __future__ import annotations

import json
import os
import select
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from daemon import pack, sandbox
from daemon.children import ChildJob, Children, ChildResult, Deadlines, KillSwitch
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.config_engine import ChildSettings
from daemon.model import MediaType, PageMode, PageRecord, Plan

HERE = str(Path(__file__).parent)
MEMORY_BYTES = 512 * 2**20


@dataclass(frozen=True, kw_only=True)
class Census:
    """What exists because of us."""

    descriptors: int
    processes: frozenset[int]
    zygote_descriptors: int
    #: One stands by, and is another after each life.
    zygote_children: int
    scratch: tuple[str, ...]


class Ward:
    """A parent with small limits, and a count of everything that it has."""

    def __init__(self, start: str, scratch: Path, factory: str = "fake_engine:load", **child: object) -> None:
        self.start = start
        #: A deadline that a child reaches only by hanging: the time that it needs to start is not counted.
        self.hang_s = 1.0
        self.scratch = scratch
        self.clock = SystemClock()
        limits = {"start": start, "linger_s": 0.5, "max_output_bytes": 16 * 2**20, "max_stderr_bytes": 10_000}
        limits |= {"max_scratch_bytes": 16 * 2**20} | child
        self.settings = Settings(child=ChildSettings.model_validate(limits))
        self.factory = factory
        self.children = self.with_clock(self.clock)

    def with_clock(self, clock: SystemClock) -> Children:
        """The same children, by another clock."""
        return Children(
            settings=self.settings,
            memory_bytes=MEMORY_BYTES,
            scratch_root=self.scratch,
            clock=clock,
            engine_factory=self.factory,
            engine_path=HERE,
        )

    def run(
        self,
        text: str,
        *,
        failpoints: str = "",
        deadline_s: float = 60.0,
        plan: Plan | None = None,
        finished: Mapping[int, bytes] | None = None,
        damage: Callable[[BinaryIO], object] = lambda _pack: None,
        switch: KillSwitch | None = None,
        on_page: Callable[[PageRecord, int], None] = lambda _record, _pages: None,
        memory_bytes: int | None = None,
    ) -> ChildResult:
        """Convert `text`, one page per line; `finished` pages are packed, and the pack is damaged by `damage`."""
        with tempfile.TemporaryFile() as document, tempfile.TemporaryFile() as packed:
            document.write(text.encode())
            document.flush()
            for page, blob in (finished or {}).items():
                packed.write(pack.header(page, blob) + blob)
            damage(packed)
            packed.flush()
            kept = os.pread(packed.fileno(), 10**6, 0)
            result = self.children.run(
                replace(job_of(plan or Plan(), failpoints), memory_bytes=memory_bytes),
                document,
                finished=None if finished is None else packed,
                deadlines=Deadlines(
                    started=self.clock.monotonic(), base_s=deadline_s, per_page_s=0.0, longest_s=deadline_s
                ),
                switch=switch or KillSwitch(),
                on_page=on_page,
            )
            assert os.pread(document.fileno(), 10**6, 0) == text.encode(), "no child may change its document"
            assert os.pread(packed.fileno(), 10**6, 0) == kept, "no child may change the finished pages"
        return result

    def said(self, text: str, **options: Any) -> str:
        """Convert `text` and return its pages' texts, in the order in which they were finished."""
        texts: list[str] = []
        result = self.run(text, on_page=lambda record, _: texts.append(json.loads(record.blob)["text"]), **options)
        assert result.conversion is not None, result.outcome
        return "\n".join(texts)

    def census(self) -> Census:
        """Count."""
        zygote = self.children.zygote_pid
        own = sandbox.own_children()
        task = Path(f"/proc/{zygote}/task/{zygote}/children")
        return Census(
            descriptors=len(sandbox.open_descriptors()),
            processes=own,
            zygote_descriptors=len(list(Path(f"/proc/{zygote}/fd").iterdir())) if zygote else 0,
            zygote_children=len(task.read_text().split()) if zygote else 0,
            scratch=tuple(sorted(path.name for path in self.scratch.iterdir())),
        )


def job_of(plan: Plan, failpoints: str) -> ChildJob:
    """The first child of a document's first attempt."""
    return ChildJob(document_id="d1", attempt=1, child=1, plan=plan, media_type=MediaType.PDF, failpoints=failpoints)


#: A plan in which no picture is read.
WITHOUT_OCR = Plan(default=PageMode.WITHOUT_OCR)


def standby(children: Children, *, patience_s: int = 30) -> int:
    """Pid of the child that waits for the next job: the only one that stays."""
    zygote = children.zygote_pid
    task = Path(f"/proc/{zygote}/task/{zygote}/children")
    seen, times = "", 0
    for _ in range(100 * patience_s):
        now = task.read_text().strip()
        times = times + 1 if now == seen and now.isdigit() else 0
        if times == 30:
            return int(now)
        seen = now
        threading.Event().wait(0.01)
    raise AssertionError(f"no child stands by: {seen!r}")


def is_gone(pid: int) -> bool:
    """Whether the process ends (a net of five seconds: the kernel needs a moment after SIGKILL)."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 5)[0])
    finally:
        os.close(pidfd)


@pytest.fixture(scope="module", params=["zygote", "spawn"])
def ward(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """One parent per way to start and per file of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
        patch.setenv("OPENBLAS_CORETYPE", "Haswell")
        made = Ward(request.param, tmp_path_factory.mktemp("scratch"))
        patch.setenv("SENTRY_DSN", "canary")
        assert made.children.start() == {"engine": "fake"}
        if request.param == "zygote":
            standby(made.children)
        yield made
        made.children.stop()
        assert not any(made.scratch.iterdir())


@pytest.fixture
def nothing_left(ward: Ward) -> Iterator[None]:
    """Whatever the test does to a child: afterwards there is what there was before."""
    before = ward.census()
    yield
    for _ in range(500):  # the zygote closes its end right after its report, a moment after we have read that
        if ward.census() == before:
            break
        threading.Event().wait(0.01)
    assert ward.census() == before
