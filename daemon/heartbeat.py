"""Keeps what is in hand in hand: visibility of messages and leases of attempts, while conversions run.

Edge. One thread that never converts, fetches or stores, so that nothing a document does can delay a beat.
It begins at the moment of receipt. A refused extension means that somebody else may hold the message: the
work on it is stopped and nothing is published.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import structlog

from daemon.children import KillSwitch
from daemon.clock import Clock
from daemon.errors import LeaseLostError
from daemon.ledger import Ledger
from daemon.model import Attempt, KillReason, Message
from daemon.pulse import BEAT_S, Beating, Pulse
from daemon.queue import Queue
from daemon.turns import Turn

log = structlog.get_logger()


class InHand:
    """One delivered message while we hold its receipt."""

    def __init__(self, message: Message, switch: KillSwitch) -> None:
        self.message = message
        self.switch = switch
        #: Set together with the switch; ends a fetch.
        self.cancelled = threading.Event()
        #: The attempt whose lease is renewed beside the message; set by the slot.
        self.attempt: Attempt | None = None
        #: Its place in the line, from its receipt until its first document takes it.
        self.turn: Turn | None = None

    def stop(self, reason: KillReason) -> None:
        """Stop whatever is being done for this message; the first reason wins."""
        self.switch.pull(reason)
        self.cancelled.set()


class Heartbeat:
    """Extends everything in hand, every `interval_s`."""

    def __init__(
        self,
        *,
        queue: Queue,
        ledger: Ledger,
        clock: Clock,
        visibility_s: float,
        interval_s: float,
        pulse: Pulse | None = None,
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._clock = clock
        self._visibility_s = visibility_s
        self._interval_s = interval_s
        self._pulse = pulse or Pulse(clock)
        self._lock = threading.Lock()
        self._in_hand: set[InHand] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def hold(self, held: InHand) -> None:
        """Extend this message from now on."""
        with self._lock:
            self._in_hand.add(held)

    def let_go(self, held: InHand) -> None:
        """Extend it no longer; harmless when it was let go before."""
        with self._lock:
            self._in_hand.discard(held)

    def stop(self) -> None:
        """Beat no more; returns when the thread has ended or is stuck in one last call."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        steps = math.ceil(self._interval_s / BEAT_S)
        step = 0
        while not self._stop.wait(self._interval_s / steps):
            self._pulse.beat(Beating.HEARTBEAT)
            step = (step + 1) % steps
            if step == 0:
                self.beat()
        self._pulse.rest(Beating.HEARTBEAT)

    def beat(self) -> None:
        """One round over everything in hand."""
        with self._lock:
            in_hand = tuple(self._in_hand)
        for held in in_hand:
            self._pulse.beat(Beating.HEARTBEAT)
            self._extend(held)

    def _extend(self, held: InHand) -> None:
        """The lease first, which is ours to keep; then the message, whose queue may not answer."""
        attempt = held.attempt
        if attempt is not None:
            self._try(held, lambda: self._ledger.renew(attempt, now=self._clock.now(), lease_s=self._visibility_s))
        if held in self._in_hand:  # what was let go since the round began is somebody's again
            self._try(held, lambda: self._queue.extend(held.message, visibility_s=self._visibility_s))

    def _try(self, held: InHand, extend: Callable[[], None]) -> None:
        attempt = held.attempt
        try:
            extend()
        except LeaseLostError as lost:
            if held not in self._in_hand or held.attempt is not attempt:
                return  # It was settled while we asked; the refusal is about the past.
            log.warning("lease.lost", message_id=held.message.message_id, detail=lost.detail)
            held.stop(KillReason.LEASE_LOST)
        except Exception as error:  # noqa: BLE001 - this thread ending, nothing would ever be extended again
            log.warning("heartbeat.failed", message_id=held.message.message_id, detail=str(error))
