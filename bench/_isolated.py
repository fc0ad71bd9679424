"""Our own side of the comparison: the daemon's real children, and the whole daemon between a queue and a folder.

Nothing here imitates the daemon: `isolated` is `Children` as `wiring.assembled` makes it, and `deliver` is
`assembled` itself, with the queue of `bulkhead convert`.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench._measure import Cost, Doc
from daemon.attempt import DocumentEnded
from daemon.children import ChildJob, Children, Deadlines, KillSwitch
from daemon.clock import SystemClock
from daemon.config import FetchSettings, Settings, StoreSettings
from daemon.config_engine import ChildSettings
from daemon.convert_inputs import describe
from daemon.errors import WorldError
from daemon.model import Message, Options, Plan, ResultStatus
from daemon.queue_local import LocalQueue
from daemon.store import open_store
from daemon.warming import sizing_of
from daemon.wiring import assembled

Start = Literal["zygote", "spawn"]
#: A net for a hang; no document of a bench comes near.
_DOCUMENT_S = 300.0


@contextmanager
def isolated(start: Start) -> Iterator[Children]:
    """Children of the production engine, warm."""
    with tempfile.TemporaryDirectory(prefix="bench-scratch-") as scratch:
        settings = Settings(child=ChildSettings(start=start))
        children = Children(
            settings=settings,
            memory_bytes=sizing_of(settings).memory_bytes_per_child,
            scratch_root=Path(scratch),
            clock=SystemClock(),
        )
        try:
            children.start()
            yield children
        finally:
            children.stop()


def live(children: Children, doc: Doc) -> Cost:
    """One life of one child, from the call to its return: its result is read and its end awaited.

    CPU time is that of this thread, of the zygote and of what it reaped; the last two in steps of 10 ms. Of a spawned
    child it is unknown, and 0.
    """
    clock = SystemClock()
    job = ChildJob(document_id=doc.name, attempt=1, child=1, plan=Plan(), media_type=doc.media_type)
    with doc.path.open("rb") as document:
        started, cpu_before = time.perf_counter(), _cpu_s(children.zygote_pid)
        result = children.run(
            job,
            document,
            finished=None,
            deadlines=Deadlines(started=clock.monotonic(), base_s=_DOCUMENT_S, per_page_s=0.0, longest_s=_DOCUMENT_S),
            switch=KillSwitch(),
            on_page=lambda _record, _pages: None,
        )
        cost = Cost(wall_s=time.perf_counter() - started, cpu_s=_cpu_s(children.zygote_pid) - cpu_before)
    assert result.conversion is not None, f"{doc.name} is a good document: {result.outcome}"
    return cost


def _cpu_s(zygote: int | None) -> float:
    """CPU seconds so far of this thread, of the zygote and of its dead children; 0 without a zygote."""
    if zygote is None:
        return 0.0
    # Fields 14 to 17 of proc_pid_stat(5); the name before them may hold spaces.
    fields = Path(f"/proc/{zygote}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return time.thread_time() + sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a daemon made of a batch."""

    #: Documents with a result.
    documents: int
    #: Documents that ended in a dead letter.
    dead_letters: int
    #: From the first receive to the last end; loading the engine and warming is not in it.
    elapsed_s: float
    #: CPU time of this process in that time: the parent with all its threads, no child and no zygote.
    parent_cpu_s: float
    #: How many worked at the same time, which the host may have clamped.
    workers: int

    @property
    def per_minute(self) -> float:
        """Results per minute."""
        return self.documents * 60 / self.elapsed_s


def deliver(
    batch: Sequence[Doc], *, start: Start, workers: int, failpoints: str = "", warm: Sequence[Doc] = ()
) -> Delivered:
    """Give every document of `batch` to a daemon of its own, as one message each; those of `warm` before, unmeasured.

    No document may be in either twice.
    """
    with tempfile.TemporaryDirectory(prefix="bench-daemon-") as folder:
        return _deliver(batch, warm, _settings(Path(folder), [*batch, *warm], start, workers, failpoints))


def _settings(folder: Path, batch: Sequence[Doc], start: Start, workers: int, failpoints: str) -> Settings:
    roots = tuple(sorted({doc.path.resolve().parent for doc in batch}))
    return Settings(
        state_dir=folder / "state",
        store=StoreSettings(url=str(folder / "out")),
        fetch=FetchSettings(file_roots=roots),
        child=ChildSettings(start=start),
        workers=workers,
        allow_failpoints=bool(failpoints),
        failpoints=failpoints,
    )


def _deliver(batch: Sequence[Doc], warm: Sequence[Doc], settings: Settings) -> Delivered:
    Path(settings.store.url).mkdir()
    queue = LocalQueue(clock=SystemClock())
    ended: list[DocumentEnded] = []
    began: list[Cost] = []
    last_end: list[Cost] = []
    lock = threading.Lock()
    bodies = [describe(doc.path, Options()).body for doc in batch]  # to read and hash files is the sender's work

    def begin() -> None:
        began.append(_now())
        for body in bodies:
            queue.send(body)

    def on_ended(each: DocumentEnded) -> None:
        with lock:
            ended.append(each)
            if len(ended) == len(warm):
                begin()
            if len(ended) == len(warm) + len(batch):
                last_end.append(_now())
                running.parent.request_stop()

    def on_released(message: Message, error: WorldError) -> None:
        del message, error  # logged as an error, which is shown; a batch that goes round in circles measures nothing
        running.parent.request_stop(at_once=True)

    with assembled(
        settings, queue=queue, store=open_store(settings.store), on_ended=on_ended, on_released=on_released
    ) as running:
        for doc in warm:
            queue.send(describe(doc.path, Options()).body)
        if not warm:
            begin()
        running.parent.run()
    assert last_end, f"every document ends; {len(ended)} of {len(warm) + len(batch)} did"
    failed = sum(each.settled.status is ResultStatus.FAILED for each in ended)
    return Delivered(
        documents=len(batch) - failed,
        dead_letters=failed,
        elapsed_s=last_end[0].wall_s - began[0].wall_s,
        parent_cpu_s=last_end[0].cpu_s - began[0].cpu_s,
        workers=running.sizing.workers,
    )


def _now() -> Cost:
    """What this process has taken so far, from an unknown start."""
    return Cost(wall_s=time.perf_counter(), cpu_s=time.process_time())
