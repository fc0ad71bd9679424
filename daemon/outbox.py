"""Notices that are written and not yet sent.

Edge (the interface and its values; the ledgers keep it beside what it tells of). Rules: a notice is written in the same
transaction as the state that it tells of, and is gone only after somebody confirmed that it was sent; those of one
document come out in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from daemon.notice import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How much waits."""

    number: int = 0
    #: When the oldest of them was written; None when nothing waits.
    oldest_at: datetime | None = None


class Outbox(Protocol):
    """Every method may raise `WorldError` like the ledger's."""

    def waiting(self, *, limit: int) -> Sequence[Notice]:
        """The oldest ones that were not sent; of each document in order, without a gap."""
        ...

    def sent(self, notices: Sequence[Notice]) -> None:
        """The destination has confirmed these; the same again is harmless."""
        ...

    def backlog(self) -> Backlog:
        """How much waits now."""
        ...
