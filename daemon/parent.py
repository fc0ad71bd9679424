"""The long-running parent: one inbox, one loop, a fixed number of slots.

Shell. Signal handlers, the receiver and the slots only put events into the inbox; the loop alone takes them
out and alone decides who may receive and when to leave. What a slot does with a message is `delivery.py`'s.
The parent never opens a document and never forks. A slot is a permanent thread, so that a child that was started
from it does not see its parent die when one document ends.
"""

from __future__ import annotations

import queue as stdlib_queue
import threading
from collections.abc import Callable, Mapping

import structlog

from daemon.clock import Clock
from daemon.delivery import Delivery
from daemon.edges import Edges
from daemon.errors import LeaseLostError, OperatorError, WorldError
from daemon.events import ErrorEvent
from daemon.excuse import excuse
from daemon.heartbeat import InHand
from daemon.inbox import CanaryEnded, Event, HostSuspended, Received, SlotFreed, StopAsked
from daemon.killswitch import LAST_WORDS_S, KillSwitch
from daemon.model import Cause, KillReason, Message
from daemon.not_now import NotNowError, give_back
from daemon.prover import Prover
from daemon.pulse import BEAT_S, Beating
from daemon.standing import Phase, Standing

log = structlog.get_logger()

#: SQS gives at most this many messages for one request.
_RECEIVE_AT_MOST = 10
#: How long nothing new is received after the world failed us, at first and at most.
_PAUSE_FIRST_S, _PAUSE_LONGEST_S = 1.0, 60.0
#: Causes after which receiving more would only fail more, and what each outage is called when it begins.
_PAUSING: Mapping[Cause, ErrorEvent] = {
    Cause.DISK_FULL: "disk.filled",
    Cause.STORE_UNAVAILABLE: "store.unavailable",
    Cause.QUEUE_UNAVAILABLE: "queue.unavailable",
}


class Parent:
    """Receives as many messages as there are free slots (one a worker, and those ahead), until told to stop."""

    def __init__(
        self,
        edges: Edges,
        *,
        delivery: Delivery,
        workers: int,
        ahead: int = 0,
        drain_s: float,
        release_delay_s: float,
        new_switch: Callable[[], KillSwitch],
        on_released: Callable[[Message, WorldError], None],
    ) -> None:
        self._edges = edges
        self._delivery = delivery
        self._drain_s = drain_s
        self._release_first_s = release_delay_s
        self._new_switch = new_switch
        self._on_released = on_released
        self._clock: Clock = edges.clock
        # SimpleQueue.put is re-entrant: a signal handler may call it while the loop is inside get().
        self._inbox: stdlib_queue.SimpleQueue[Event] = stdlib_queue.SimpleQueue()
        self._to_receive: stdlib_queue.SimpleQueue[int] = stdlib_queue.SimpleQueue()
        self._to_slots: stdlib_queue.SimpleQueue[InHand] = stdlib_queue.SimpleQueue()
        self._prover = Prover(
            edges.trust,
            clock=edges.clock,
            new_switch=new_switch,
            on_ended=lambda: self._inbox.put(CanaryEnded()),
        )
        self._stop_receiving = threading.Event()
        self._left = threading.Event()
        self._workers = workers
        self._slots = workers + ahead
        self._in_flight: set[InHand] = set()
        self._receiving = False
        self._answered = False
        self._pause_s = 0.0
        self._paused_for: Cause | None = None
        self._paused_until = 0.0
        self._leave_deadline: float | None = None
        self._killed = False
        #: What the loop did when it last came round; any thread may read it.
        self.standing = Standing(phase=Phase.RECEIVING)

    def request_stop(self, *, at_once: bool = False) -> None:
        """Ask the loop to leave; safe to call from a signal handler and from any thread."""
        self._inbox.put(StopAsked(at_once=at_once))

    def run(self) -> None:
        """Work until asked to stop; returns when nothing is in flight, or when what is does not come back."""
        self._edges.heartbeat.start()
        threading.Thread(target=self._receive_loop, name="receiver", daemon=True).start()
        for number in range(1, self._slots + 1):
            threading.Thread(target=self._slot_loop, name=f"slot-{number}", daemon=True).start()
        self._edges.trust.listen(lambda: self._inbox.put(HostSuspended()))
        self._prover.start()
        log.info("daemon.ready", workers=self._workers)
        while not self._done():
            self._ask_for_messages()
            self.standing = self._look()
            self._edges.pulse.beat(Beating.LOOP)
            patience_s = self._patience_s()
            try:
                event = self._inbox.get(timeout=BEAT_S if patience_s is None else min(patience_s, BEAT_S))
            except stdlib_queue.Empty:
                self._on_silence()
                continue
            self._on(event)
        self._edges.pulse.rest(Beating.LOOP)
        self._edges.heartbeat.stop()
        self._left.set()
        if self._in_flight:
            log.error("daemon.left_work", messages=len(self._in_flight))

    # The loop's decisions. Only these touch the fields; slots and the receiver only put events.

    def _done(self) -> bool:
        if self._leave_deadline is None:
            return False
        idle = not self._in_flight and not self._receiving and not self._prover.running
        return idle or (self._killed and self._clock.monotonic() >= self._leave_deadline)

    def _ask_for_messages(self) -> None:
        if self._edges.trust.suspended:
            # Its engine is replaced, so nobody may be at work with it.
            if self._leave_deadline is None and not self._in_flight:
                self._prover.begin()
            return
        free = self._slots - len(self._in_flight)
        ready = self._leave_deadline is None and self._clock.monotonic() >= self._paused_until
        if ready and free and not self._receiving:
            self._receiving = True
            self._to_receive.put(min(free, _RECEIVE_AT_MOST))

    def _patience_s(self) -> float | None:
        """How long the loop may wait for an event before it has something to do by itself."""
        now = self._clock.monotonic()
        if self._leave_deadline is not None:
            return max(self._leave_deadline - now, 0.0)
        if self._edges.trust.suspended and not self._prover.running and not self._in_flight:
            return self._prover.patience_s()
        if now < self._paused_until:
            return self._paused_until - now
        return None

    def _look(self) -> Standing:
        phase, detail = Phase.RECEIVING, ""
        if self._leave_deadline is not None:
            phase = Phase.DRAINING
        elif self._edges.trust.suspended:
            phase = Phase.SUSPENDED
        elif self._clock.monotonic() < self._paused_until:
            phase, detail = Phase.PAUSED, str(self._paused_for)
        received = [held.message.received_monotonic_s for held in self._in_flight]
        oldest_s = min(received, default=None)
        held_back = len(self._edges.turns.held_back)
        return Standing(
            phase=phase, in_hand=len(received), oldest_received_s=oldest_s, held_back=held_back, detail=detail
        )

    def _on_silence(self) -> None:
        if self._leave_deadline is not None and not self._killed and self._clock.monotonic() >= self._leave_deadline:
            self._kill_what_is_left()

    def _on(self, event: Event) -> None:
        match event:
            case Received(messages=messages, failure=failure):
                self._on_received(messages, failure)
            case SlotFreed(held=held, cause=cause, detail=detail):
                self._in_flight.discard(held)
                self._pause_after(cause, detail)
            case HostSuspended():
                self._stop_all()
            case CanaryEnded():
                self._prover.ended()
            case StopAsked(at_once=at_once):
                self._on_stop(at_once=at_once)

    def _on_received(self, messages: tuple[Message, ...], failure: str) -> None:
        self._receiving = False
        if not failure and not self._answered:
            self._answered = True
            log.info("queue.answered", messages=len(messages))
        if failure:
            self._pause_after(Cause.QUEUE_UNAVAILABLE, failure)
        elif self._paused_for is Cause.QUEUE_UNAVAILABLE:
            self._pause_s = 0.0
        for message in messages:
            held = InHand(message, self._new_switch())
            held.turn = self._edges.turns.line_up()
            self._edges.heartbeat.hold(held)
            self._in_flight.add(held)
            if self._leave_deadline is not None or self._edges.trust.suspended:
                held.stop(KillReason.DRAIN)
            log.info("message.received", message_id=message.message_id, receive_count=message.receive_count)
            self._to_slots.put(held)

    def _pause_after(self, cause: Cause | None, detail: str) -> None:
        """Receive nothing for a while after the world failed; one ERROR, and so one alert, for each outage."""
        if cause is None:
            self._pause_s = 0.0
        if cause is None or cause not in _PAUSING:
            return
        if self._pause_s == 0.0:
            log.error(_PAUSING[cause], detail=detail)
        self._paused_for = cause
        self._pause_s = min(max(self._pause_s * 2, _PAUSE_FIRST_S), _PAUSE_LONGEST_S)
        self._paused_until = self._clock.monotonic() + self._pause_s
        log.warning("daemon.paused", cause=str(cause), pause_s=self._pause_s)

    def _on_stop(self, *, at_once: bool) -> None:
        if self._leave_deadline is None:
            log.info("daemon.stopping", in_flight=len(self._in_flight), drain_s=0.0 if at_once else self._drain_s)
            self._stop_receiving.set()
            self._leave_deadline = self._clock.monotonic() + self._drain_s
            self._prover.abandon()
            for held in self._in_flight:
                if held.attempt is None:  # it has not begun: whoever takes it next begins at once
                    held.stop(KillReason.DRAIN)
            attempts = [held.attempt for held in self._in_flight if held.attempt is not None]
            threading.Thread(target=excuse, args=(self._edges.ledger, attempts), name="excuser", daemon=True).start()
        if at_once and not self._killed:
            self._kill_what_is_left()

    def _kill_what_is_left(self) -> None:
        self._killed = True
        self._leave_deadline = self._clock.monotonic() + LAST_WORDS_S
        self._stop_all()

    def _stop_all(self) -> None:
        for held in self._in_flight:
            held.stop(KillReason.DRAIN)

    # The threads that only put events.

    def _receive_loop(self) -> None:
        while True:
            self._edges.pulse.rest(Beating.RECEIVER)
            limit = self._to_receive.get()
            self._edges.pulse.beat(Beating.RECEIVER)
            try:
                messages = self._edges.queue.receive(limit, stop=self._stop_receiving)
            except Exception as error:  # noqa: BLE001 - this thread ending, nothing would ever be received again
                self._inbox.put(Received(failure=str(error) or type(error).__name__))
            else:
                self._inbox.put(Received(messages=tuple(messages)))

    def _slot_loop(self) -> None:
        while True:
            held = self._to_slots.get()
            failure: WorldError | None = None
            try:
                failure = self._work_on(held)
            except Exception:
                # A bug met by one message must not cost the other slots their work. Its attempt stays without
                # an end and counts: the message returns, and is given up after the limit. Left behind, it is no bug:
                # the edges were closed under it, and `daemon.left_work` has said so.
                if not self._left.is_set():
                    log.exception("slot.failed", message_id=held.message.message_id)
            finally:
                if held.turn is not None:
                    held.turn.end()
                self._edges.heartbeat.let_go(held)
                cause, detail = (None, "") if failure is None else (failure.cause, failure.detail)
                self._inbox.put(SlotFreed(held=held, cause=cause, detail=detail))

    def _work_on(self, held: InHand) -> WorldError | None:
        try:
            if held.switch.reason is not None:
                raise NotNowError(Cause.DRAINED, "received while stopping", delay_s=0.0)
            self._delivery.carry(held)
        except LeaseLostError as lost:
            log.warning("lease.lost", message_id=held.message.message_id, detail=lost.detail)
        except WorldError as error:
            self._release(held, error)
            return error
        except OperatorError as error:
            # What was there at the start is gone: nothing is lost by waiting for a person to bring it back.
            outage = WorldError(Cause.QUEUE_UNAVAILABLE, str(error))
            self._release(held, outage)
            return outage
        return None

    def _release(self, held: InHand, error: WorldError) -> None:
        give_back(self._edges, held, error, first_s=self._release_first_s)
        self._on_released(held.message, error)
