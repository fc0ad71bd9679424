"""Running one document slice in a process that may die, and telling what became of it.

Shell. `Children.run` blocks its caller, and may be called from many threads at once; each watches its own child.
The parent opens no document and imports no engine: processes are started by exec, and what they send is
checked bytes. After `run`, no process, descriptor or scratch file of that child is left, whatever happened.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from daemon import classify, frames, sandbox, sandbox_parts
from daemon.bounds import Bounds, Deadlines
from daemon.cgroup import Group, Groups
from daemon.clock import Clock
from daemon.config import Settings
from daemon.errors import EngineError
from daemon.killswitch import KillSwitch
from daemon.launch import Ends, EngineSpec, Handle, Launcher, dispose
from daemon.launch_spawn import SpawnLauncher
from daemon.launch_zygote import NotSingleThreadedError, ZygoteLauncher
from daemon.model import Cause, Conversion, MediaType, Outcome, PageRecord, Plan
from daemon.scratch import remove_tree
from daemon.supervise import Watch

__all__ = ["ChildJob", "ChildResult", "Children", "Deadlines", "KillSwitch"]

log = structlog.get_logger()

#: Ends that are as they should be.
_EXPECTED = frozenset({Cause.CONVERTED, Cause.SLICED})
#: Processes and threads that a child's cgroup grants: more than any engine has, and some for each thread of inference.
_TASKS, _TASKS_PER_THREAD = 256, 16
#: The production engine, by name: it is never imported here.
DEFAULT_FACTORY = "daemon.engine.pipeline:load"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildJob:
    """What one child is to do."""

    document_id: str
    attempt: int
    #: Which child of the attempt, from 1.
    child: int
    plan: Plan
    media_type: MediaType
    #: Its limit; None for that of `Children`.
    memory_bytes: int | None = None
    #: See `failpoints.parse`; empty for none.
    failpoints: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """What became of it; `conversion` is there exactly when the outcome is CONVERTED."""

    outcome: Outcome
    conversion: Conversion | None
    #: How long the child took to say hello, or the host stood still: not the document's time.
    waited_s: float = 0.0


class Children:
    """Starts children and watches each to its end."""

    def __init__(
        self,
        *,
        settings: Settings,
        memory_bytes: int,
        scratch_root: Path,
        clock: Clock,
        engine_factory: str = DEFAULT_FACTORY,
        engine_path: str = "",
        groups: Groups | None = None,
    ) -> None:
        """`memory_bytes` is one child's limit; `scratch_root` must exist. The engine is code, so only code names it.

        `groups` hold the children from outside, where a cgroup was delegated to us; this closes them.
        """
        self._settings = settings
        self._memory_bytes = memory_bytes
        self._scratch_root = scratch_root
        self._clock = clock
        spec = EngineSpec(
            factory=engine_factory,
            path=engine_path,
            settings=settings.engine,
            threads=settings.threads,
            sandbox=sandbox_parts.Mode(settings.child.sandbox),
            scratch_root=scratch_root.absolute(),
        )
        start_timeout_s = settings.child.start_timeout_s
        self._groups = groups
        self._zygotes = ZygoteLauncher(
            spec,
            clock=clock,
            start_timeout_s=start_timeout_s,
            on_started=groups.enter_zygote if groups is not None else lambda _pid: None,
        )
        self._spawns = SpawnLauncher(spec, clock=clock, start_timeout_s=start_timeout_s)
        # Threads are not forked, and a child would wait for them for ever: sessions that have some are loaded by exec.
        forks = settings.child.start == "zygote" and settings.threads == 1
        self._launcher: Launcher = self._zygotes if forks else self._spawns
        self._lock = threading.Lock()

    @property
    def zygote_pid(self) -> int | None:
        """Pid of the living zygote, if there is one."""
        return self._zygotes.pid

    def begin(self) -> None:
        """Begin to load the engine, and return at once. Hides this process from its children, once and for all.

        Raises EngineError, and ConfigurationError when the kernel cannot keep children as the settings ask.
        """
        sandbox.hide()
        sandbox_parts.demand(sandbox_parts.Mode(self._settings.child.sandbox))
        self._launcher.begin()

    def start(self) -> dict[str, object]:
        """Prove that the engine loads, begun before or now; returns its manifest. Raises like `begin`.

        EngineError says what is missing. A zygote that may not fork is replaced by spawn, loudly.
        """
        self.begin()
        try:
            return self._launcher.start()
        except NotSingleThreadedError as error:
            self._fall_back(error)
            return self._launcher.start()

    def stop(self) -> None:
        """End the zygote and everything below it; children under watch end as ZYGOTE_DIED, so pull switches first."""
        self._zygotes.stop()
        if self._groups is not None:
            self._groups.close()

    def run(
        self,
        job: ChildJob,
        document: BinaryIO,
        *,
        finished: BinaryIO | None,
        deadlines: Deadlines,
        switch: KillSwitch,
        on_page: Callable[[PageRecord, int], None],
    ) -> ChildResult:
        """Live one child's life to its end; returns what became of it, never raises for what a document does.

        `document` is an open file, read from its start and never written; `finished` alike, a pack (`pack.py`) of the
        pages that earlier children finished. `on_page` is called in this thread with each finished page and the number
        of pages in all; what it raises ends the child and is raised here. Raises EngineError when no child can be
        started.
        """
        asked = self._clock.monotonic()
        memory_bytes = self._limit_bytes(job)
        with ExitStack() as stack:
            scratch = Path(tempfile.mkdtemp(prefix="child-", dir=self._scratch_root))
            stack.callback(remove_tree, scratch)
            ends = Ends(document, finished)
            stack.callback(ends.close)
            group = self._group(memory_bytes)
            stack.callback(group.remove)
            handle, start = self._launch(ends, memory_bytes)
            watch = Watch(
                handle,
                ends,
                _wire_job(job, scratch, self._settings.child.max_output_bytes),
                bounds=self._bounds(deadlines, asked, memory_bytes),
                group=group,
                clock=self._clock,
                switch=switch,
                on_page=on_page,
            )
            outcome = _watched(watch, handle)
            self._tell(job, outcome, watch, start=start, pid=handle.pid)
        conversion = watch.conversion if outcome.cause is Cause.CONVERTED else None
        return ChildResult(outcome=outcome, conversion=conversion, waited_s=watch.lost_s())

    def _limit_bytes(self, job: ChildJob) -> int:
        return self._memory_bytes if job.memory_bytes is None else job.memory_bytes

    def _group(self, memory_bytes: int) -> Group:
        if self._groups is None:
            return Group()
        tasks = _TASKS + _TASKS_PER_THREAD * self._settings.threads
        return self._groups.for_child(memory_bytes=memory_bytes, tasks=tasks)

    def _bounds(self, deadlines: Deadlines, asked: float, memory_bytes: int) -> Bounds:
        child = self._settings.child
        return Bounds(
            deadlines=deadlines,
            asked=asked,
            start_deadline=self._clock.monotonic() + child.start_timeout_s,
            stall_s=child.stall_s,
            memory_bytes=memory_bytes,
            max_scratch_bytes=child.max_scratch_bytes,
            max_pages=self._settings.engine.max_pages,
            max_output_bytes=child.max_output_bytes,
            max_stderr_bytes=child.max_stderr_bytes,
            linger_s=child.linger_s,
        )

    def _launch(self, ends: Ends, memory_bytes: int) -> tuple[Handle, str]:
        """Ask for one child; returns it and how it was started."""
        limits = sandbox.Limits(memory_bytes=memory_bytes, max_file_bytes=self._settings.child.max_scratch_bytes)
        launcher = self._launcher
        try:
            handle = launcher.launch(ends, limits)
        except NotSingleThreadedError as error:
            self._fall_back(error)
            launcher = self._launcher
            handle = launcher.launch(ends, limits)
        ends.close_child_side()
        return handle, "zygote" if launcher is self._zygotes else "spawn"

    def _tell(self, job: ChildJob, outcome: Outcome, watch: Watch, *, start: str, pid: int | None) -> None:
        """Write the one line that holds everything about one child."""
        write = log.info if outcome.cause in _EXPECTED else log.warning
        write(
            "child.exited",
            document_id=job.document_id,
            attempt=job.attempt,
            child=job.child,
            pid=pid,
            start=start,
            mode=outcome.mode,
            cause=outcome.cause,
            detail=outcome.detail,
            signal=outcome.signal,
            stage=outcome.stage,
            page=outcome.page,
            pages_done=outcome.pages_done,
            elapsed_s=round(outcome.elapsed_s, 3),
            peak_rss_bytes=outcome.peak_rss_bytes,
            memory_limit_bytes=self._limit_bytes(job),
            cgroup_peak_bytes=watch.group.peak_bytes(),
            oom_kills=watch.group.oom_kills(),
            scratch_bytes=watch.sampler.scratch_bytes,
            orphans=watch.orphans,
            output_dropped_bytes=watch.output.dropped_bytes,
            traceback=outcome.traceback,
            stderr_tail=outcome.stderr_tail,
        )

    def _fall_back(self, error: EngineError) -> None:
        """Use spawn from now on."""
        with self._lock:
            if self._launcher is self._zygotes:
                self._launcher = self._spawns
                log.error("zygote.not_single_threaded", error=str(error))


def _watched(watch: Watch, handle: Handle) -> Outcome:
    """Watch a child to its end; its descriptors are given back."""
    try:
        return classify.classify(watch.watch())
    except BaseException:
        dispose(handle)  # a page that could not be kept, or a bug while watching, must not leave a child
        raise
    finally:
        handle.close()


def _wire_job(job: ChildJob, scratch: Path, max_output_bytes: int) -> frames.Job:
    return frames.Job(
        document_id=job.document_id,
        attempt=job.attempt,
        child=job.child,
        plan=frames.WorkPlan.of(job.plan),
        media_type=job.media_type,
        scratch=str(scratch),
        max_output_bytes=max_output_bytes,
        failpoints=job.failpoints,
    )
