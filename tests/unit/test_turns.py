"""Turns: never more than there are workers, in order, and given up at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from daemon.admission import Pool
from daemon.killswitch import KillSwitch
from daemon.model import KillReason
from daemon.sandbox import open_descriptors
from daemon.turns import Turn, Turns

#: A net for a hang; it never decides.
NET_S = 30.0


def pulled() -> KillSwitch:
    """A switch that was pulled."""
    switch = KillSwitch()
    switch.pull(KillReason.DRAIN)
    return switch


def comes(turn: Turn) -> bool:
    """Whether it is this one's turn without anybody doing anything."""
    switch = KillSwitch()
    timer = threading.Timer(0.05, switch.pull, (KillReason.DRAIN,))
    timer.start()
    try:
        return turn.wait(switch)
    finally:
        timer.cancel()
        timer.join()


def test_at_most_as_many_as_workers() -> None:
    """Twenty documents and three workers: never more than three at once, and all come to their turn."""
    turns, lock, now, most = Turns(Pool.of_shares(3)), threading.Lock(), 0, 0

    def convert(_: int) -> None:
        nonlocal now, most
        with turns.line_up() as turn:
            assert turn.wait(KillSwitch())
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.005)
            with lock:
                now -= 1

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(convert, range(20), timeout=NET_S))
    assert most == 3
    assert turns.waiting == 0


def test_in_the_order_in_which_they_lined_up() -> None:
    """Who lined up first is first, whoever asks first; the one behind comes when the one before ends."""
    turns = Turns(Pool.of_shares(1))
    first, second, third = (turns.line_up() for _ in range(3))
    assert not comes(third)
    assert not comes(second)
    assert comes(first)
    first.end()
    assert comes(second)
    assert not comes(third)
    second.end()
    assert comes(third)
    third.end()


def test_a_pulled_switch_ends_the_waiting() -> None:
    """A document that waits leaves at once when it is told to, and takes nobody's turn with it."""
    turns, switch, got = Turns(Pool.of_shares(1)), KillSwitch(), []
    first, second, third = (turns.line_up() for _ in range(3))

    def wait_in_line() -> None:
        with second:
            got.append(second.wait(switch))

    thread = threading.Thread(target=wait_in_line)
    thread.start()
    switch.pull(KillReason.DRAIN)
    thread.join(NET_S)
    assert got == [False]
    first.end()
    assert comes(third)
    third.end()


def test_a_pulled_switch_wins_over_a_free_worker() -> None:
    """Pulled before, and a worker is free: no turn, and the worker stays free."""
    turns = Turns(Pool.of_shares(1))
    with turns.line_up() as turn:
        assert not turn.wait(pulled())
    with turns.line_up() as turn:
        assert comes(turn)


def test_ended_twice_is_ended_once() -> None:
    """A turn that is ended early, and again on leaving its block, frees one worker."""
    turns = Turns(Pool.of_shares(1))
    with turns.line_up() as turn:
        turn.end()
    with turns.line_up() as one, turns.line_up() as other:
        assert comes(one)
        assert not comes(other)


def test_nothing_is_left() -> None:
    """Neither a turn that was taken nor one that was given up keeps a descriptor."""
    before = open_descriptors()
    turns = Turns(Pool.of_shares(1))
    for _ in range(10):
        with turns.line_up() as one, turns.line_up() as other:
            assert one.wait(KillSwitch())
            assert not other.wait(pulled())
    assert open_descriptors() == before
