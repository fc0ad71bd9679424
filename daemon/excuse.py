"""What is written down when this process is told to stop.

Shell. Runs beside the loop, which must not wait for a ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from daemon.errors import LeaseLostError, WorldError
from daemon.ledger import Ledger
from daemon.model import Attempt, Cause, Outcome

log = structlog.get_logger()


def excuse(ledger: Ledger, attempts: Sequence[Attempt]) -> None:
    """Write down that we were told to stop, so that an attempt which somebody's SIGKILL cuts off does not count."""
    for attempt in attempts:
        outcome = Outcome(cause=Cause.DRAINED, detail="its parent was told to stop, and let it go on for a while")
        try:
            ledger.record_outcome(attempt, outcome)
        except LeaseLostError:
            continue  # it has ended meanwhile
        except WorldError as error:
            log.warning("attempt.not_excused", document_id=attempt.document_id, detail=error.detail)
        else:
            log.info("attempt.excused", document_id=attempt.document_id, attempt=attempt.number)
