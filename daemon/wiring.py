"""From settings to a running daemon: opens the edges in order, and gives them back in reverse.

Shell. The only place where the real edges are made. What is refused is refused here, before any message is
received: a second instance, a missing queue or bucket, an engine that is not the declared one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from daemon import failpoints, faults, held_back, host
from daemon.admission import Pool
from daemon.attempt import DocumentEnded
from daemon.checkpoints_s3 import open_checkpoints
from daemon.children import Children, KillSwitch
from daemon.clock import Clock, SystemClock
from daemon.config import Settings
from daemon.decide import Rules
from daemon.delivery import Delivery
from daemon.edges import Edges, Limits
from daemon.errors import ConfigurationError, WorldError
from daemon.fetch import Fetcher
from daemon.heartbeat import Heartbeat
from daemon.ledger import Ledger
from daemon.ledgers import ledger_file, open_ledger
from daemon.memory import Memory, studying
from daemon.model import Message
from daemon.parent import Parent
from daemon.proof import convert_canary
from daemon.pulse import Pulse
from daemon.queue import Queue
from daemon.quota import Quota
from daemon.sizing import Sizing
from daemon.sqs import SqsQueue
from daemon.store import Store
from daemon.suspended import notes
from daemon.trust import Court, Proof, Trust
from daemon.turns import Turns
from daemon.warming import Parts, Warming, warming

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A daemon with warm children that has not received anything yet."""

    parent: Parent
    ledger: Ledger
    children: Children
    sizing: Sizing
    engine: Mapping[str, object]


def ledger_path(settings: Settings) -> Path:
    """Where the ledger of this host lies."""
    return ledger_file(settings)


def open_queue(settings: Settings) -> SqsQueue:
    """The SQS queue that the settings name; they must name one."""
    return SqsQueue(settings.queue, clock=SystemClock(), host=host.holder().host)


def pool_of(sizing: Sizing) -> Pool:
    """Workers and memory, as they are handed out."""
    return Pool(
        workers=sizing.workers,
        share_bytes=sizing.memory_bytes_per_child,
        total_bytes=sizing.pool_bytes,
        most_bytes=sizing.most_bytes_per_child,
    )


def quota_of(settings: Settings, *, workers: int) -> Quota:
    """What may be fetched ahead; each worker's own fetch, and all that its child may write, still fits the disk."""
    return Quota(
        settings.fetch.ahead_bytes,
        folder=settings.state_dir,
        keep_free_bytes=workers * (settings.fetch.max_bytes + settings.child.max_scratch_bytes),
    )


@contextmanager
def assembled(
    settings: Settings,
    *,
    queue: Queue,
    store: Store,
    parts: Parts | None = None,
    warm: Warming | None = None,
    pulse: Pulse | None = None,
    on_ended: Callable[[DocumentEnded], None] = lambda _: None,
    on_released: Callable[[Message, WorldError], None] = lambda _message, _error: None,
    on_poisoned: Callable[[str], None] = lambda _detail: None,
) -> Iterator[Running]:
    """Everything between `queue` and `store`, warm; ended and closed on leaving, whatever happens.

    `warm` is what the caller began to warm with the same settings and parts; without it, that is done here.
    Raises `OperatorError` when a person must change something first.
    """
    parts = parts or Parts()
    clock = parts.clock
    pulse = pulse or Pulse(clock)
    with ExitStack() as stack:
        warm = warm or stack.enter_context(warming(settings, parts))
        sizing, children = warm.sizing, warm.children
        pool = pool_of(sizing)
        holder = parts.holder()
        ledger = open_ledger(settings, clock=clock, boot_id=holder.boot_id)
        stack.callback(ledger.close)
        broken = ledger.break_leases(host=holder.host, invocation=holder.invocation, now=clock.now())
        if broken:
            log.warning("lease.broken", attempts=broken, detail="left by an earlier parent of this host that died")
        # Before the ledger closes: who still watches a child writes down how that ended.
        stack.callback(children.stop)
        engine = children.start()
        log.info("engine.declared", **_flat(engine))
        heartbeat = Heartbeat(
            queue=queue,
            ledger=ledger,
            clock=clock,
            visibility_s=settings.queue.visibility_s,
            interval_s=settings.queue.heartbeat_s,
            pulse=pulse,
        )
        edges = Edges(
            queue=queue,
            ledger=ledger,
            source=Fetcher(
                settings.fetch, store_settings=settings.store, scratch=settings.state_dir / "scratch", clock=clock
            ),
            converter=children,
            store=store,
            checkpoints=open_checkpoints(settings.store, state_dir=settings.state_dir),
            engine=engine,
            scratch=settings.state_dir / "scratch",
            heartbeat=heartbeat,
            clock=clock,
            failpoint=failpoint(settings),
            child_failpoints=settings.failpoints if settings.allow_failpoints else "",
            pulse=pulse,
            turns=Turns(pool, note=held_back.notes(settings.state_dir, clock=clock, pid=os.getpid())),
            memory=Memory(pool),
            quota=quota_of(settings, workers=sizing.workers),
            trust=_trust(settings, children, clock=clock, on_poisoned=on_poisoned),
        )
        stack.enter_context(studying(edges.memory, ledger))
        yield Running(
            parent=Parent(
                edges,
                delivery=Delivery(edges, limits=_limits(settings), holder=holder, on_ended=on_ended),
                workers=sizing.workers,
                ahead=settings.ahead,
                drain_s=settings.drain_s,
                release_delay_s=settings.retry.release_delay_s,
                new_switch=KillSwitch,
                on_released=on_released,
            ),
            ledger=ledger,
            children=children,
            sizing=sizing,
            engine=engine,
        )


def _trust(settings: Settings, children: Children, *, clock: Clock, on_poisoned: Callable[[str], None]) -> Trust:
    """What lets this host prove that documents are to blame, and not itself."""
    rules = settings.host

    def prove(number: int, switch: KillSwitch, painted: bool) -> Proof:  # noqa: FBT001 - the court's
        return convert_canary(
            children,
            clock=clock,
            timeout_s=rules.canary_timeout_s,
            number=number + 1,  # the first one was that of the start
            switch=switch,
            scratch=settings.state_dir / "scratch",
            failpoints=settings.failpoints if settings.allow_failpoints else "",
            painted=painted,
        )

    def renew() -> object:
        children.stop()
        return children.start()

    court = Court(
        prove=prove,
        renew=renew,
        abandon=children.stop,
        note=notes(settings.state_dir, clock=clock, pid=os.getpid()),
        on_poisoned=on_poisoned,
        first_pause_s=rules.canary_pause_s,
        longest_pause_s=rules.longest_canary_pause_s,
    )
    return Trust(window=rules.suspect_after, court=court if rules.canary else None)


def _limits(settings: Settings) -> Limits:
    return Limits(
        document_timeout_s=settings.child.document_timeout_s,
        per_page_s=settings.child.document_timeout_per_page_s,
        longest_timeout_s=settings.child.longest_document_timeout_s,
        rules=Rules(max_page_crashes=settings.retry.max_page_crashes, pages_per_child=settings.child.pages_per_child),
        deliver_partial=settings.retry.partial == "deliver",
        lease_s=settings.queue.visibility_s,
        max_attempts=settings.retry.max_attempts,
    )


def failpoint(settings: Settings) -> Callable[[str, str | None, int | None], None]:
    """What is called between two steps: nothing, unless failpoints are allowed and one matches.

    Raises `ConfigurationError` when the text cannot be read.
    """
    try:
        points = failpoints.parse(settings.failpoints) if settings.allow_failpoints else ()
    except ValueError as error:
        raise ConfigurationError(str(error)) from error

    def between_steps(name: str, document_id: str | None, attempt: int | None) -> None:
        for point in failpoints.matching(points, failpoints.Point(name), doc=document_id, attempt=attempt):
            faults.fire(point)

    return between_steps


def _flat(engine: Mapping[str, object]) -> dict[str, object]:
    """The engine's manifest as fields of one log line; names of its parts are the keys."""
    return {str(name): value for name, value in engine.items()}
