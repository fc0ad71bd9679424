"""What ends a delivery without ending its document.

Shell. Which of it costs an attempt is the table of causes in `causes.py`.
"""

from __future__ import annotations

import errno

import structlog

from daemon.decide import release_delay_s
from daemon.edges import Edges
from daemon.errors import BulkheadError, EngineError, LeaseLostError, OperatorError, WorldError
from daemon.heartbeat import InHand
from daemon.model import Cause, KillReason

log = structlog.get_logger()


class NotNowError(WorldError):
    """The document cannot be finished in this delivery; the message goes back and may return after `delay_s`."""

    def __init__(self, cause: Cause, detail: str, *, delay_s: float | None = None) -> None:
        super().__init__(cause, detail)
        self.delay_s = delay_s


def outage_of(error: OperatorError | OSError) -> NotNowError:
    """What was there when the daemon started is gone, or has no room: nobody's document is at fault, so none pays."""
    match error:
        case EngineError():
            return NotNowError(Cause.ZYGOTE_DIED, f"cannot start a child: {error}")
        case OperatorError():
            return NotNowError(Cause.STORE_UNAVAILABLE, str(error))
        case _:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            detail = f"cannot run a child, or keep what it made: {error.strerror or error}"
            return NotNowError(Cause.DISK_FULL if full else Cause.ZYGOTE_DIED, detail)


def raise_if_stopped(held: InHand) -> None:
    """Raise what becomes of a delivery whose switch was pulled."""
    match held.switch.reason:
        case None:
            return
        case KillReason.LEASE_LOST:
            raise LeaseLostError("cannot go on: the lease was lost")
        case reason:
            raise NotNowError(Cause.DRAINED, f"stopped on purpose: {reason}", delay_s=0.0)


def give_back(edges: Edges, held: InHand, error: WorldError, *, first_s: float) -> None:
    """Let the message return, at once or later; where the queue does not answer, it returns by itself.

    `first_s` is the delay after a first delivery; it doubles with each.
    """
    delay_s = error.delay_s if isinstance(error, NotNowError) else None
    if delay_s is None:
        delay_s = release_delay_s(held.message.receive_count, first_s=first_s)
    fields = {"message_id": held.message.message_id, "cause": str(error.cause), "detail": error.detail}
    edges.heartbeat.let_go(held)
    try:
        edges.queue.release(held.message, delay_s=delay_s)
    except BulkheadError as again:
        log.warning("message.not_released", **fields, because=str(again))
    else:
        log.info("message.released", **fields, delay_s=delay_s)
