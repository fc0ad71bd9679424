"""`bulkhead run`: the daemon, from its settings to its last word.

Shell. Refuses to start rather than to start wrong: queue, dead-letter queue, bucket, ledger and engine are tried before
anything is received. SIGTERM and SIGINT drain; a second SIGINT does not wait.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import structlog

from daemon import __version__, alerts
from daemon.config import Settings
from daemon.parent import Parent
from daemon.store import open_store
from daemon.wiring import Parts, assembled, open_queue

log = structlog.get_logger()


def run(settings: Settings, *, parts: Parts | None = None) -> None:
    """Be the daemon until told to stop. Raises `OperatorError` for a refused start."""
    settings.require("queue.url", "queue.dead_letter_url", "store.url", command="bulkhead run")
    log.info("daemon.started", version=__version__, queue=settings.queue.url, store=settings.store.url)
    with ExitStack() as stack:
        alerts.configure(settings.sentry)
        stack.callback(alerts.flush)
        queue = open_queue(settings)
        stack.callback(queue.close)
        for finding in queue.findings(settings):
            log.error("queue.finding", detail=finding)
        store = open_store(settings.store)
        store.check()
        running = stack.enter_context(assembled(settings, queue=queue, store=store, parts=parts))
        stack.enter_context(_signals(running.parent))
        running.parent.run()
    log.info("daemon.stopped")


@contextmanager
def _signals(parent: Parent) -> Iterator[None]:
    """SIGTERM and the first SIGINT drain; the second SIGINT ends everything at once."""
    interrupts = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        del frame
        interrupts += number == signal.SIGINT
        parent.request_stop(at_once=interrupts > 1)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
