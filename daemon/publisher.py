"""Sends what waits in the outbox, in the background of a daemon or at the end of a sweep.

Shell. Rules: nothing waits for it; a notice is forgotten only after the destination has confirmed it, so it is sent at
least once; no document has two notices on their way at the same time, so a later state never overtakes an earlier
one; one process at a time sends for one ledger; a destination that does not answer is asked again later and later,
and a person is told once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import structlog

from daemon.errors import AlreadyRunningError, BulkheadError
from daemon.notice import Notice
from daemon.outbox import Outbox

log = structlog.get_logger()

#: Read at once; bounds memory, whatever the backlog is.
BATCH = 50
#: What a sweep has parked is looked for this often; what the daemon itself settles is sent at once.
POLL_S = 5.0
#: Pause after a failure, at first and at most.
_PAUSE_FIRST_S, _PAUSE_LONGEST_S = 1.0, 300.0
_MOST_DOUBLINGS = 20
#: How long the end of a daemon may wait for a notice that is on its way.
STOP_S = 3.0


class Destination(Protocol):
    """Where notices go."""

    def publish(self, notice: Notice) -> None:
        """Return when it is confirmed. Raises `WorldError` for whatever stood in the way."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class Publisher:
    """Empties one outbox into one destination."""

    def __init__(
        self, outbox: Outbox, destination: Destination, *, alone: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`alone` is held while something is sent; it raises `AlreadyRunningError` when another process holds it."""
        self._outbox = outbox
        self._destination = destination
        self._alone = alone

    def send_waiting(self, *, ended: threading.Event | None = None) -> int:
        """Send all that waits; how many were sent. Nothing while another process sends; ends early when told.

        Raises `WorldError` when the destination or the ledger does not answer; what was confirmed is not sent again.
        """
        number = 0
        while ended is None or not ended.is_set():
            waiting = self._outbox.waiting(limit=BATCH)
            if not waiting:
                break
            try:
                with self._alone():
                    number += self._send(_one_each(self._outbox.waiting(limit=BATCH)), ended)
            except AlreadyRunningError:
                break
        return number

    def _send(self, notices: Sequence[Notice], ended: threading.Event | None) -> int:
        confirmed: list[Notice] = []
        try:
            for notice in notices:
                if ended is not None and ended.is_set():
                    break
                self._destination.publish(notice)
                confirmed.append(notice)
        finally:
            if confirmed:
                self._outbox.sent(confirmed)
        return len(confirmed)


def _one_each(notices: Sequence[Notice]) -> Sequence[Notice]:
    """The oldest notice of each document, up to the first document that comes a second time.

    When it is not known which of them were confirmed, all are sent once more: then nothing later may have been sent.
    """
    seen: set[str] = set()
    for index, notice in enumerate(notices):
        if notice.document_id in seen:
            return notices[:index]
        seen.add(notice.document_id)
    return notices


class Publishing:
    """The thread of a daemon that keeps its outbox empty."""

    def __init__(self, publisher: Publisher, *, wake: threading.Event, poll_s: float = POLL_S) -> None:
        """`wake` is set by whoever has settled a document."""
        self._publisher = publisher
        self._wake = wake
        self._poll_s = poll_s
        self._ended = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more; what is left is sent by the next daemon or sweep."""
        self._ended.set()
        self._wake.set()
        self._thread.join(timeout=STOP_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._publisher.send_waiting(ended=self._ended)
            except Exception as error:  # noqa: BLE001 - this thread ending, nothing would ever be told again
                self._failed(error)
            else:
                self._answered()

    def _failed(self, error: Exception) -> None:
        if self._ended.is_set():
            return
        if self._failures == 0:
            detail = str(error) if isinstance(error, BulkheadError) else f"{type(error).__name__}: {error}"
            log.error("notices.unreachable", detail=detail)
        self._failures += 1
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        self._ended.wait(min(_PAUSE_FIRST_S * 2**doublings, _PAUSE_LONGEST_S))

    def _answered(self) -> None:
        if self._failures:
            log.info("notices.resumed", failures=self._failures)
            self._failures = 0
        self._wake.wait(self._poll_s)
        self._wake.clear()
