"""The two clocks, injected: monotonic seconds decide, aware UTC instants are only shown and stored.

Edge. Nothing else in the package reads the time; tests pass a clock that they turn by hand.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the daemon may know about time."""

    def monotonic(self) -> float:
        """Seconds since this host booted, without those that it slept; the same for each of its processes.

        Never goes back and cannot be set. Deadlines are on this scale.
        """
        ...

    def now(self) -> datetime:
        """The wall clock, aware, UTC; may jump, so it never decides within one process."""
        ...


class SystemClock:
    """The host's clocks."""

    def monotonic(self) -> float:
        """`time.monotonic()`."""
        return time.monotonic()

    def now(self) -> datetime:
        """The current instant in UTC."""
        return datetime.now(UTC)
