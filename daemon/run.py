"""`bulkhead run`: the first step of the daemon's start, and its last word.

Shell. Loading the engine takes most of a start, so only what that needs is imported here; everything else, the AWS
SDK first of all, is imported while it loads (`serve.py`). A restart must receive again within 5 s.
"""

from __future__ import annotations

from contextlib import ExitStack

import structlog

from daemon import __version__, alerts
from daemon.config import Settings
from daemon.killswitch import LAST_WORDS_S
from daemon.notify import Bounds, Service
from daemon.warming import Parts, warming

log = structlog.get_logger()

#: Beside the calls that are bounded by settings: files, locks, a store's probe, an alert on its way.
_SLACK_S = 60.0


def run(settings: Settings, *, parts: Parts | None = None, service: Service | None = None) -> None:
    """Be the daemon until told to stop. Raises `OperatorError` for a refused start.

    `service` is told how it goes; the default tells nobody.
    """
    settings.require("queue.url", "queue.dead_letter_url", "store.url", command="bulkhead run")
    service = service or Service()
    log.info("daemon.started", version=__version__, queue=settings.queue.url, store=settings.store.url)
    with ExitStack() as stack:
        service.start(_bounds(settings))
        stack.callback(service.close)
        alerts.configure(settings.sentry)
        stack.callback(alerts.flush)
        warm = stack.enter_context(warming(settings, parts))
        from daemon.serve import serve  # noqa: PLC0415 - see above

        serve(settings, warm, parts=parts, service=service)
    log.info("daemon.stopped")


def _bounds(settings: Settings) -> Bounds:
    """What systemd may wait for: each step of the start and of the end has a limit of its own."""
    call_s = settings.queue.retry_for_s
    return Bounds(
        start_s=3 * call_s + 2 * settings.child.start_timeout_s + settings.host.canary_timeout_s + _SLACK_S,
        stop_s=settings.drain_s + LAST_WORDS_S + _SLACK_S,
        heartbeat_s=call_s + _SLACK_S,
        receive_s=settings.queue.wait_s + call_s + _SLACK_S,
    )
