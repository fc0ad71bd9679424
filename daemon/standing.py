"""What the daemon is doing, as one sentence for whoever looks at its unit.

Core. Instants are handed in; nothing here is asked for the time. A sentence changes only when what it says
changes, so that whoever shows it can compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Phase(StrEnum):
    """The parts of a daemon's life."""

    #: Settings, edges, engine and canary; nothing is received yet.
    STARTING = "starting"
    #: Receives whenever a slot is free.
    RECEIVING = "receiving"
    #: Receives nothing for a while, since the world failed.
    PAUSED = "paused"
    #: Receives nothing until the canary converts again.
    SUSPENDED = "suspended"
    #: Told to stop; what is in hand may end within `drain_s`.
    DRAINING = "draining"


_WORDS = {
    Phase.STARTING: "starting",
    Phase.RECEIVING: "receiving",
    Phase.PAUSED: "receiving nothing for a while",
    Phase.SUSPENDED: "suspended: receiving nothing until the canary converts",
    Phase.DRAINING: "draining",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One look at the daemon."""

    phase: Phase
    #: Messages whose receipt we hold.
    in_hand: int = 0
    #: Monotonic instant at which the oldest of them was received; None when there is none.
    oldest_received_s: float | None = None
    #: Of what is in hand: for whom a worker is free, and not the memory.
    held_back: int = 0
    #: Why, for the phases that have a reason.
    detail: str = ""

    def sentence(self, *, now: datetime, monotonic_s: float) -> str:
        """What it does, since when; both instants are the same moment, read on two clocks."""
        words = _WORDS[self.phase] + (f" ({self.detail})" if self.detail else "")
        if self.phase is Phase.STARTING:
            return words
        if self.oldest_received_s is None:
            return f"{words}; nothing in hand"
        since = now - timedelta(seconds=monotonic_s - self.oldest_received_s)
        # To the minute: the two clocks drift apart by microseconds, and a sentence must not change with them.
        documents = "1 document" if self.in_hand == 1 else f"{self.in_hand} documents, the oldest"
        memory = f"; {self.held_back} waiting for memory" if self.held_back else ""
        return f"{words}; in hand: {documents} since {since:%Y-%m-%d %H:%M} UTC{memory}"
