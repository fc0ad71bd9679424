"""Notices that wait, in memory, beside a `MemoryLedger`.

Fake: nothing is durable, everything else holds. `tests/contract/test_outbox.py` proves it against the real ones' suite.
"""

from __future__ import annotations

from collections.abc import Sequence

from daemon.notice import Notice
from daemon.outbox import Backlog
from tests.fakes.ledger import MemoryLedger


class MemoryOutbox:
    """A list in the ledger."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

    def waiting(self, *, limit: int) -> Sequence[Notice]:
        """See `Outbox.waiting`."""
        with self._ledger.lock:
            return self._ledger.announced[:limit]

    def sent(self, notices: Sequence[Notice]) -> None:
        """See `Outbox.sent`."""
        with self._ledger.lock:
            self._ledger.announced = [each for each in self._ledger.announced if each not in notices]

    def backlog(self) -> Backlog:
        """See `Outbox.backlog`."""
        waiting = self.waiting(limit=2**31)
        return Backlog(number=len(waiting), oldest_at=min((each.at for each in waiting), default=None))
