"""A clock that a test turns by hand.

Fake of `daemon.clock.Clock`. Both scales move together by `advance`; `jump` moves the wall clock alone.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta


class FakeClock:
    """Virtual time, safe to read and turn from several threads."""

    def __init__(self, *, now: datetime | None = None, monotonic_s: float = 1_000.0) -> None:
        self._lock = threading.Lock()
        self._now = now or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic_s = monotonic_s

    def monotonic(self) -> float:
        """Virtual seconds since an arbitrary instant."""
        with self._lock:
            return self._monotonic_s

    def now(self) -> datetime:
        """The virtual wall clock, aware, UTC."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both scales."""
        assert seconds >= 0, "monotonic time never goes back"
        with self._lock:
            self._monotonic_s += seconds
            self._now += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forth or back, as an NTP step does; monotonic time stays."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
