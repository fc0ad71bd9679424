"""Whether the threads that must make progress do.

Shell. Each such thread leaves a beat whenever it has come round; whoever watches asks which of them is late. A thread
that has not begun, or has ended, is not late. Nothing here waits, and nothing can hold a thread up.
"""

from __future__ import annotations

from enum import StrEnum

from daemon.clock import Clock, SystemClock

#: A thread that waits for something comes round this often to say that it only waits.
BEAT_S = 1.0


class Beating(StrEnum):
    """Who leaves beats."""

    #: Takes events out of the parent's inbox.
    LOOP = "loop"
    #: Extends what is in hand.
    HEARTBEAT = "heartbeat"
    #: Asks the queue for messages; counts only while it asks.
    RECEIVER = "receiver"


class Pulse:
    """The last beat of each thread; one writer for each, any number of readers."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._beats: dict[Beating, float] = {}

    def beat(self, who: Beating) -> None:
        """`who` has come round."""
        self._beats[who] = self._clock.monotonic()

    def rest(self, who: Beating) -> None:
        """`who` waits for us, and is not late however long that takes."""
        self._beats.pop(who, None)

    def ages(self) -> dict[Beating, float]:
        """Seconds since the last beat of everyone who beats."""
        now = self._clock.monotonic()
        return {who: max(now - at, 0.0) for who, at in self._beats.copy().items()}
