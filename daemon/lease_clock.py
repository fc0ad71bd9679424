"""By which clock the SQLite ledger's leases end: the host's uptime, which nobody can set.

Edge. Whoever shares the file is a process of one machine, so all of them have the same uptime and boot. Rules: a lease
that another boot gave is over; one that a version without this clock gave ends by the wall clock; what is given back is
on the reader's wall clock as it is now, so that whoever compares it with `now` compares uptimes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from daemon.clock import Clock
from daemon.model import Attempt

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One instant on both of a host's clocks."""

    now: datetime
    uptime_us: int
    boot_id: str

    def uptime_after(self, seconds: float) -> int:
        """The uptime so much later, in microseconds."""
        return self.uptime_us + round(seconds * _SECOND_US)

    def seen(self, attempt: Attempt, lease_uptime_us: int | None) -> Attempt:
        """An attempt as it was written, its lease as it ends from here; None: only the wall clock was written."""
        if attempt.ended_at is not None:
            return attempt
        if attempt.holder.boot_id != self.boot_id:
            return replace(attempt, lease_until=min(attempt.lease_until, self.now))
        if lease_uptime_us is None:
            return attempt
        left = timedelta(microseconds=lease_uptime_us - self.uptime_us)
        return replace(attempt, lease_until=self.now + left)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClock:
    """Reads both clocks of the host whose boot has this id."""

    clock: Clock
    boot_id: str

    def at(self, now: datetime | None = None, *, boot_id: str | None = None) -> Instant:
        """This instant; `now` is the wall clock where the caller has read it, `boot_id` what a claim's holder says."""
        uptime_us = round(self.clock.monotonic() * _SECOND_US)
        return Instant(now=now or self.clock.now(), uptime_us=uptime_us, boot_id=boot_id or self.boot_id)
