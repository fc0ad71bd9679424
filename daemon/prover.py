"""When a suspended host tries its canary, and the thread that does it.

Shell. Everything but the thread belongs to the parent's loop: it asks whether a canary is due, begins one when no slot
holds anything, and is told when it has ended.
"""

from __future__ import annotations

import queue as stdlib_queue
import threading
from collections.abc import Callable

from daemon.clock import Clock
from daemon.killswitch import KillSwitch
from daemon.model import KillReason
from daemon.trust import Trust


class Prover:
    """One canary after the other, with growing pauses, while the host is suspended."""

    def __init__(
        self, trust: Trust, *, clock: Clock, new_switch: Callable[[], KillSwitch], on_ended: Callable[[], None]
    ) -> None:
        """`on_ended` is called in the prover's thread, after each canary."""
        self._trust = trust
        self._clock = clock
        self._new_switch = new_switch
        self._on_ended = on_ended
        self._to_prove: stdlib_queue.SimpleQueue[KillSwitch] = stdlib_queue.SimpleQueue()
        self._switch: KillSwitch | None = None
        self._not_before = 0.0

    @property
    def running(self) -> bool:
        """A canary is on its way."""
        return self._switch is not None

    def start(self) -> None:
        """Start the thread; it lives as long as the process, since a child dies with the thread that started it."""
        threading.Thread(target=self._loop, name="prover", daemon=True).start()

    def patience_s(self) -> float:
        """Seconds until the next canary is due; 0: now."""
        return max(self._not_before - self._clock.monotonic(), 0.0)

    def begin(self) -> None:
        """Try one canary, if none is on its way and the pause after the last one is over."""
        if not self.running and not self.patience_s():
            self._switch = self._new_switch()
            self._to_prove.put(self._switch)

    def ended(self) -> None:
        """The canary has ended; the next one, if any, comes after the pause."""
        self._switch = None
        self._not_before = self._clock.monotonic() + self._trust.pause_s

    def abandon(self) -> None:
        """We are told to stop; its end is told all the same."""
        if self._switch is not None:
            self._switch.pull(KillReason.DRAIN)
            self._trust.abandon()

    def _loop(self) -> None:
        while True:
            switch = self._to_prove.get()
            self._trust.prove_anew(switch)
            self._on_ended()
