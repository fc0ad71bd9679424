"""The daemon once its engine loads: the edges opened and tried, then the parent until it is told to stop.

Shell. Refuses to start rather than to start wrong: queue, dead-letter queue, bucket, ledger and engine are tried before
anything is received, the first four while the engine loads. SIGTERM and SIGINT drain; a second SIGINT does not wait.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack

import structlog

from daemon.children import Children
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.errors import WorldError
from daemon.metrics import DaemonMetrics
from daemon.metrics_server import served
from daemon.model import Cause
from daemon.notices import publishing
from daemon.notify import Service
from daemon.parent import Parent
from daemon.proof import convert_canary
from daemon.stop_signals import on_stop_signal
from daemon.store import open_store
from daemon.warming import Parts, Warming
from daemon.wiring import assembled, open_queue

log = structlog.get_logger()


def serve(settings: Settings, warm: Warming, *, parts: Parts | None, service: Service) -> None:
    """Open everything, prove the engine, tell `service` that we are ready, and work. Raises like `run`."""
    with ExitStack() as stack:
        metrics = DaemonMetrics(clock=SystemClock())
        stack.enter_context(served(settings.metrics, metrics))
        queue = open_queue(settings)
        stack.callback(queue.close)
        for finding in queue.findings(settings):
            log.error("queue.finding", detail=finding)
        store = open_store(settings.store)
        store.check()
        ended = threading.Event()
        running = stack.enter_context(
            assembled(
                settings,
                queue=queue,
                store=store,
                parts=parts,
                warm=warm,
                pulse=service.pulse,
                on_ended=lambda _: ended.set(),
            )
        )
        if parts is None and settings.host.canary:  # an engine that code has chosen is the code's to prove
            _prove(running.children, settings)
        stack.enter_context(publishing(settings, running.ledger, wake=ended))
        stack.enter_context(on_stop_signal(drain_or_end(running.parent)))
        metrics.watch(lambda: running.parent.standing)
        service.ready(lambda: running.parent.standing)
        running.parent.run()


def _prove(children: Children, settings: Settings) -> None:
    """Convert the canary before anybody may think that this host works.

    Raises `WorldError`, and no `OperatorError`: whatever is short now (memory, disk, a host that is still booting) may
    be there at the next start, while an engine that is not the declared one has been refused before.
    """
    try:
        proof = convert_canary(
            children,
            clock=SystemClock(),
            timeout_s=settings.host.canary_timeout_s,
            scratch=settings.state_dir / "scratch",
            # A restart must receive again within 5 s; OCR is proved by the doctor, before a version is switched to.
            painted=False,
            failpoints=settings.failpoints if settings.allow_failpoints else "",
        )
    except OSError as error:
        raise WorldError(Cause.DISK_FULL, f"cannot convert the canary: {error}; free space in state_dir") from error
    if not proof.passed:
        raise WorldError(Cause.POISON_HOST, f"{proof.detail}; `bulkhead doctor` tries the same")
    log.info("canary.converted", detail=proof.detail)


def drain_or_end(parent: Parent) -> Callable[[signal.Signals], None]:
    """What a signal does: SIGTERM and the first SIGINT drain; the second SIGINT ends everything at once."""
    interrupts = 0

    def stop(number: signal.Signals) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        parent.request_stop(at_once=interrupts > 1)

    return stop
