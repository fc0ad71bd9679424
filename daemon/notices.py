"""From settings to notices that go out: opens the destination, and gives it back.

Shell. Without `notices.destination` nothing is opened, nothing is written and nothing is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial

import structlog

from daemon.config import Settings
from daemon.errors import WorldError
from daemon.ledger import Ledger
from daemon.ledgers import notices_lock, outbox_of
from daemon.notice_destination import AwsDestination
from daemon.publisher import Publisher, Publishing

log = structlog.get_logger()


@contextmanager
def publishing(settings: Settings, ledger: Ledger, *, wake: threading.Event) -> Iterator[None]:
    """Notices go out in a thread of their own while the block runs; `wake` is set when a document has settled."""
    if not settings.notices.destination:
        yield
        return
    with closing(AwsDestination(settings.notices)) as destination:
        publisher = Publisher(outbox_of(ledger), destination, alone=partial(notices_lock, settings, ledger))
        thread = Publishing(publisher, wake=wake)
        thread.start()
        try:
            yield
        finally:
            thread.stop()


def publish(settings: Settings, ledger: Ledger) -> int:
    """Send what waits, once, for a command that has written some; how many. What cannot be sent is the daemon's."""
    if not settings.notices.destination:
        return 0
    with closing(AwsDestination(settings.notices)) as destination:
        publisher = Publisher(outbox_of(ledger), destination, alone=partial(notices_lock, settings, ledger))
        try:
            return publisher.send_waiting()
        except WorldError as error:
            log.error("notices.unreachable", detail=error.detail)  # noqa: TRY400 - no traceback: the sentence says it
            return 0


def waiting(ledger: Ledger, *, now: datetime) -> dict[str, object] | None:
    """What was written and not sent yet, for `bulkhead status`; None when nothing waits."""
    backlog = outbox_of(ledger).backlog()
    if backlog.oldest_at is None:
        return None
    oldest_s = round((now - backlog.oldest_at).total_seconds(), 1)
    return {"waiting": backlog.number, "oldest_at": backlog.oldest_at.isoformat(), "oldest_s": oldest_s}
