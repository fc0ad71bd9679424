"""From settings to what the commands of recovery work on; opened in order, given back in reverse.

Shell. A daemon may run beside all of them: the ledger's writes are transactions, and the instance lock is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass

from daemon import alerts, host
from daemon import audit as audits
from daemon.audit import Audited, Finding
from daemon.build import build
from daemon.checkpoints import Checkpoints
from daemon.checkpoints_s3 import open_checkpoints
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.forgotten import SearchRules
from daemon.ledger import Ledger
from daemon.ledgers import open_known, recovery_of, sweep_lock
from daemon.listing_open import open_listings
from daemon.metrics_textfile import written
from daemon.notices import publish
from daemon.queue import Queue
from daemon.recovery import Recovery
from daemon.store import Store, open_store
from daemon.sweep import KINDS, Did, Sweep, SweepEdges, SweepRules
from daemon.wiring import open_queue

_NEEDED = ("queue.url", "queue.dead_letter_url", "store.url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The edges of recovery."""

    queue: Queue
    ledger: Ledger
    recovery: Recovery
    store: Store
    checkpoints: Checkpoints


@contextmanager
def opened(settings: Settings, *, command: str) -> Iterator[Opened]:
    """Queue, ledger and store of a daemon that has run here. Raises `OperatorError`; creates no ledger."""
    settings.require(*_NEEDED, command=command)
    with ExitStack() as stack:
        ledger = stack.enter_context(opened_ledger(settings))
        alerts.configure(settings.sentry)
        stack.callback(alerts.flush)
        queue = open_queue(settings)
        stack.callback(queue.close)
        yield Opened(
            queue=queue,
            ledger=ledger,
            recovery=recovery_of(ledger),
            store=open_store(settings.store),
            checkpoints=open_checkpoints(settings.store, state_dir=settings.state_dir),
        )


@contextmanager
def opened_ledger(settings: Settings) -> Iterator[Ledger]:
    """The ledger of a daemon that has run here, to be written too. Raises `OperatorError`; creates none."""
    with closing(open_known(settings)) as ledger:
        yield ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """What a person's hand reaches: enough to send a document back."""

    queue: Queue
    ledger: Ledger
    recovery: Recovery
    checkpoints: Checkpoints


@contextmanager
def opened_hand(settings: Settings, *, command: str) -> Iterator[Hand]:
    """The ledger of a daemon that has run here, and the queue to send to. Raises `OperatorError`."""
    settings.require("queue.url", command=command)
    with opened_ledger(settings) as ledger, closing(open_queue(settings)) as queue:
        yield Hand(
            queue=queue,
            ledger=ledger,
            recovery=recovery_of(ledger),
            checkpoints=open_checkpoints(settings.store, state_dir=settings.state_dir),
        )


def sweep(settings: Settings, *, dry_run: bool) -> tuple[Counter[str], list[Did]]:
    """One sweep, alone on its ledger; counts and what was done. Raises `AlreadyRunningError`, and like `Sweep.run`."""
    rules = SweepRules(
        max_reclaims=settings.retry.max_reclaims,
        reclaim_delay_s=settings.retry.reclaim_delay_s,
        build=build(),
        search=SearchRules(
            forgotten_after_s=settings.sweep.forgotten_after_s,
            most_listed=settings.sweep.most_listed,
            most_enqueued=settings.sweep.most_enqueued,
        ),
        dry_run=dry_run,
    )
    folder = "" if dry_run else settings.metrics.textfile_dir
    with (
        opened(settings, command="bulkhead sweep") as edges,
        sweep_lock(settings, edges.ledger),
        # Within the lock: one that leaves because another sweeps must not say that sweeps fail.
        written(folder, "sweep", clock=SystemClock()) as figures,
    ):
        sweeping = Sweep(
            SweepEdges(
                queue=edges.queue,
                ledger=edges.ledger,
                recovery=edges.recovery,
                store=edges.store,
                checkpoints=edges.checkpoints,
                clock=SystemClock(),
                alive=host.lives,
                listings=open_listings(settings),
            ),
            rules,
        )
        with nullcontext() if dry_run else _monitored(settings):
            counts = sweeping.run()
        if not dry_run and (published := publish(settings, edges.ledger)):
            counts["published"] = published
        figures.done |= {what: counts.get(what, 0) for what in KINDS}
        figures.parked |= Counter(str(parked.cause) for parked in edges.recovery.parked())
        return counts, sweeping.did


def _monitored(settings: Settings) -> AbstractContextManager[None]:
    """A sweep that does not come is an alert itself."""
    return alerts.monitored(settings.sentry, host=host.holder().host, clock=SystemClock())


def audit(settings: Settings, *, tell: Callable[[Finding], None]) -> Audited:
    """What ledger, store and queues do not agree about. Raises like `audit.audit`, and `OperatorError`."""
    clock = SystemClock()
    with (
        written(settings.metrics.textfile_dir, "audit", clock=clock) as figures,
        opened(settings, command="bulkhead audit") as edges,
    ):
        audited = audits.audit(
            audits.AuditEdges(
                recovery=edges.recovery,
                store=edges.store,
                checkpoints=edges.checkpoints,
                queue=edges.queue,
                clock=clock,
                holder=host.holder(),
                max_attempts=settings.retry.max_attempts,
            ),
            tell=tell,
        )
        figures.documents = audited.documents
        figures.findings |= {str(check): number for check, number in audited.findings.items()}
        return audited
