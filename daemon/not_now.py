"""What ends a delivery without ending its document.

Shell. Errors only: which of them costs an attempt is the table of causes in `causes.py`.
"""

from __future__ import annotations

import errno

from daemon.errors import EngineError, LeaseLostError, OperatorError, WorldError
from daemon.heartbeat import InHand
from daemon.model import Cause, KillReason


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
