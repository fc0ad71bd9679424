"""A thread that stands still is seen: a real parent and heartbeat, held up at one place, on a clock turned by hand."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from daemon.children import KillSwitch
from daemon.clock import SystemClock
from daemon.heartbeat import Heartbeat, InHand
from daemon.model import Message
from daemon.pulse import Beating, Pulse
from daemon.queue_local import LocalQueue
from daemon.standing import Phase
from tests.fakes.clock import FakeClock
from tests.fakes.edges import ScriptedConverter
from tests.fakes.ledger import MemoryLedger
from tests.shell.test_parent import NET_S, Bench, Gate, running

LONG_S = 1_000.0


class Barrier:
    """Holds whoever passes until it is lifted."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.lifted = threading.Event()

    def stand(self) -> None:
        """Stay here."""
        self.reached.set()
        assert self.lifted.wait(NET_S), "never lifted"


def watched(bench: Bench) -> tuple[Pulse, FakeClock]:
    """The pulse of this parent, on a clock of its own."""
    clock = FakeClock()
    pulse = Pulse(clock)
    bench.parent._edges = dataclasses.replace(bench.parent._edges, pulse=pulse)
    return pulse, clock


def comes_round(pulse: Pulse, who: Beating) -> bool:
    """Whether `who` leaves a beat within the net."""
    return _soon(lambda: pulse.ages().get(who, LONG_S) < LONG_S)


def _soon(true: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(true() or pause.wait(0.05) for _ in range(int(NET_S / 0.05)))


def test_a_loop_that_stands_still_leaves_no_beat() -> None:
    """Everything else may go on: one blocked loop is a daemon that takes no more work and gives none back."""
    barrier = Barrier()
    bench = Bench()

    def held_up() -> KillSwitch:
        barrier.stand()
        return KillSwitch()

    bench.parent._new_switch = held_up
    pulse, clock = watched(bench)
    with running(bench):
        assert comes_round(pulse, Beating.LOOP)
        bench.send("a")
        assert barrier.reached.wait(NET_S)
        clock.advance(LONG_S)
        assert pulse.ages()[Beating.LOOP] >= LONG_S
        barrier.lifted.set()
        assert comes_round(pulse, Beating.LOOP)


def test_a_receiver_counts_only_while_it_asks() -> None:
    """A queue that never answers is late; a receiver that nobody asks for messages is not."""
    barrier = Barrier()

    class Silent(LocalQueue):
        def receive(self, limit: int, *, stop: threading.Event) -> Sequence[Message]:
            barrier.stand()
            return super().receive(limit, stop=stop)

    bench = Bench(queue=Silent(clock=SystemClock(), wait_s=0.2))
    pulse, clock = watched(bench)
    with running(bench):
        assert barrier.reached.wait(NET_S)
        clock.advance(LONG_S)
        assert pulse.ages()[Beating.RECEIVER] >= LONG_S
        barrier.lifted.set()
        assert comes_round(pulse, Beating.RECEIVER)
    assert _soon(lambda: Beating.RECEIVER not in pulse.ages())


def test_a_heartbeat_that_hangs_in_a_call_is_seen() -> None:
    """Receipts and leases would run out behind a daemon that looks alive."""
    barrier = Barrier()

    class Hanging(LocalQueue):
        def extend(self, message: Message, *, visibility_s: float) -> None:
            barrier.stand()
            super().extend(message, visibility_s=visibility_s)

    clock = FakeClock()
    pulse = Pulse(clock)
    queue = Hanging(clock=SystemClock(), wait_s=0.2)
    heartbeat = Heartbeat(
        queue=queue, ledger=MemoryLedger(), clock=SystemClock(), visibility_s=60, interval_s=0.05, pulse=pulse
    )
    heartbeat.start()
    assert comes_round(pulse, Beating.HEARTBEAT)
    queue.send("{}")
    (message,) = queue.receive(1, stop=threading.Event())
    heartbeat.hold(InHand(message, KillSwitch()))
    assert barrier.reached.wait(NET_S)
    clock.advance(LONG_S)
    assert pulse.ages()[Beating.HEARTBEAT] >= LONG_S
    barrier.lifted.set()
    assert comes_round(pulse, Beating.HEARTBEAT)
    heartbeat.stop()
    assert _soon(lambda: Beating.HEARTBEAT not in pulse.ages())


def test_the_standing_follows_the_loop() -> None:
    """What `systemctl status` shows is what the loop last saw."""
    gate = Gate()
    bench = Bench(converter=ScriptedConverter(on_run=gate.hold))
    bench.send("a")
    with running(bench):
        gate.wait_for(1)
        assert _soon(lambda: (bench.parent.standing.phase, bench.parent.standing.in_hand) == (Phase.RECEIVING, 1))
        assert bench.parent.standing.oldest_received_s is not None
        bench.parent.request_stop()
        assert _soon(lambda: (bench.parent.standing.phase, bench.parent.standing.in_hand) == (Phase.DRAINING, 1))
        gate.open.set()
        bench.join()
