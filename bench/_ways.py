"""The ways to run a batch that `bench.throughput` compares, each from documents to a `Run`.

Rules: what a way needs is loaded before its time begins; storing and settling are in our own time, to the last end of
all, dead letters too. What a killer ends is not started again by us: a loop and a pool deliver what they had done by
then, Celery replaces the process by itself, the daemon gives the document up. Loops, pool and Celery's worker stay
loaded, idle between their turns; a daemon starts anew. All are warmed with the same documents.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress

from bench._batches import Batch, Set, failpoints
from bench._celery import Worker, worker
from bench._isolated import Start, deliver
from bench._loop import Loop, LoopEnded
from bench._measure import Doc, Run
from bench._pool import pool, task

#: A spawned child takes seconds to begin; a few documents are enough to see it.
SPAWNED = 8
LOOP, TWO_LOOPS, ZYGOTE, TWO_ZYGOTE = "inprocess", "inprocess_x2", "zygote_x1", "zygote_x2"
SPAWN, POOL, CELERY = "spawn_x2", "forkserver_pool_x2", "celery_prefork_x2"
WITH_KILLERS, LOOP_KILLED, POOL_KILLED, CELERY_KILLED, SPAWN_KILLED = (
    f"{name}_with_killers" for name in (TWO_ZYGOTE, LOOP, POOL, CELERY, SPAWN)
)
#: Every way, in the order of the first round.
WAYS = (
    *(LOOP, TWO_ZYGOTE, TWO_LOOPS, WITH_KILLERS, POOL, ZYGOTE, CELERY, SPAWN),
    *(LOOP_KILLED, POOL_KILLED, CELERY_KILLED, SPAWN_KILLED),
)
#: Those that are the daemon, whose parent runs in the bench's own process.
DAEMONS = (ZYGOTE, TWO_ZYGOTE, WITH_KILLERS, SPAWN, SPAWN_KILLED)
#: Those whose batch has killers.
KILLED = (WITH_KILLERS, LOOP_KILLED, POOL_KILLED, CELERY_KILLED, SPAWN_KILLED)

Way = Callable[[Batch], Run]


def of_set(name: Set) -> list[str]:
    """The ways that this set is measured by: a killer is spawned seven times, so only where documents are small."""
    left_out = {Set.ONE_PAGERS: set(), Set.LONG: {TWO_LOOPS, SPAWN_KILLED}}.get(name, {SPAWN_KILLED})
    return [way for way in WAYS if way not in left_out]


def spawned(batch: Batch) -> list[Doc]:
    """A few of the good ones, spread over the first pass: no document twice while there are others."""
    once = batch.good[: max(SPAWNED, len(batch.distinct))]
    count = min(SPAWNED, len(once))
    return [once[number * len(once) // count] for number in range(count)]


@contextmanager
def ways(warm: Sequence[Doc]) -> Iterator[Mapping[str, Way]]:
    """Every way by its name, loaded and warmed with `warm`; all is ended on leaving."""
    with ExitStack() as stack:
        loops = [stack.enter_context(Loop()) for _ in range(2)]
        executor = stack.enter_context(pool(2))
        celery = stack.enter_context(worker(2))
        for each in loops:
            by_loops([each], warm)
        by_pool(executor, warm)
        celery.warm(warm, 2)
        # A second message about one document would not convert it.
        once = list({doc.path: doc for doc in warm}.values())
        yield {
            LOOP: lambda batch: by_loops(loops[:1], batch.good),
            TWO_LOOPS: lambda batch: by_loops(loops, batch.good),
            ZYGOTE: lambda batch: by_daemon(batch.good, "zygote", 1, warm=once),
            TWO_ZYGOTE: lambda batch: by_daemon(batch.good, "zygote", 2, warm=once),
            WITH_KILLERS: lambda batch: by_daemon(batch.mixed, "zygote", 2, failpoints(batch.killers), warm=once),
            SPAWN: lambda batch: by_daemon(spawned(batch), "spawn", 2),
            POOL: lambda batch: by_pool(executor, batch.good),
            CELERY: lambda batch: celery.deliver(batch.good),
            LOOP_KILLED: lambda batch: _by_fresh_loop(batch.mixed, warm),
            POOL_KILLED: lambda batch: _by_fresh_pool(batch.mixed, warm),
            CELERY_KILLED: lambda batch: _by_celery_killed(celery, batch.mixed, warm),
            SPAWN_KILLED: lambda batch: by_daemon(
                [*spawned(batch), batch.killers[0]], "spawn", 2, failpoints(batch.killers)
            ),
        }


def by_daemon(
    documents: Sequence[Doc], start: Start, workers: int, points: str = "", *, warm: Sequence[Doc] = ()
) -> Run:
    """The whole daemon, with a queue, a ledger and a store of its own."""
    found = deliver(documents, start=start, workers=workers, failpoints=points, warm=warm)
    if found.workers != workers:
        raise SystemExit(f"cannot compare {workers} workers: this host has room for {found.workers}; use a larger one")
    assert points or found.dead_letters == 0, "good documents are delivered"
    return Run(
        given=len(documents),
        delivered=found.documents,
        elapsed_s=found.elapsed_s,
        parent_cpu_s=found.parent_cpu_s,
    )


def by_loops(loops: Sequence[Loop], documents: Sequence[Doc]) -> Run:
    """In-process loops, each taking the next document when it is free; one that dies leaves the rest to the others."""
    waiting: queue.SimpleQueue[Doc] = queue.SimpleQueue()
    for doc in documents:
        waiting.put(doc)

    def work(loop: Loop) -> int:
        done = 0
        while True:
            try:
                loop.convert(waiting.get_nowait())
            except (queue.Empty, LoopEnded):
                return done
            done += 1

    started = time.perf_counter()
    with ThreadPoolExecutor(len(loops)) as threads:
        delivered = sum(threads.map(work, loops))
    return Run(given=len(documents), delivered=delivered, elapsed_s=time.perf_counter() - started)


def _by_fresh_loop(documents: Sequence[Doc], warm: Sequence[Doc]) -> Run:
    with Loop() as loop:
        by_loops([loop], warm)
        return by_loops([loop], documents)


def by_pool(executor: ProcessPoolExecutor, documents: Sequence[Doc]) -> Run:
    """A pool that is given everything at once; when it breaks, every document that is not done is lost with it."""
    started = last = time.perf_counter()
    delivered = 0
    futures: list[Future[dict[str, bytes]]] = []
    with suppress(BrokenProcessPool):
        futures.extend(executor.submit(task, str(doc.path), doc.media_type) for doc in documents)
    for future in as_completed(futures):
        failure = future.exception()
        assert failure is None or isinstance(failure, BrokenProcessPool), f"good documents convert: {failure}"
        if failure is None:
            delivered, last = delivered + 1, time.perf_counter()
    return Run(given=len(documents), delivered=delivered, elapsed_s=last - started)


def _by_fresh_pool(documents: Sequence[Doc], warm: Sequence[Doc]) -> Run:
    with pool(2) as executor:
        by_pool(executor, warm)
        return by_pool(executor, documents)


def _by_celery_killed(celery: Worker, documents: Sequence[Doc], warm: Sequence[Doc]) -> Run:
    """The processes that replace dead ones load within the time, as they do in production; then they are warmed."""
    run = celery.deliver(documents)
    celery.warm(warm, 2)
    return run
