"""Turns: never more than there are workers, in order, and given up at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from daemon.killswitch import KillSwitch
from daemon.model import KillReason
from daemon.turns import Turn, Turns

#: A net for a hang; it never decides.
NET_S = 30.0


def test_at_most_as_many_as_workers() -> None:
    """Twenty documents and three workers: never more than three at once, and all come to their turn."""
    turns, lock, now, most = Turns(3), threading.Lock(), 0, 0

    def convert(_: int) -> None:
        nonlocal now, most
        turn = turns.take(KillSwitch())
        assert turn is not None
        with turn:
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.005)
            with lock:
                now -= 1

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(convert, range(20), timeout=NET_S))
    assert most == 3


def test_in_the_order_in_which_they_came() -> None:
    """Whoever has waited longest is next."""
    turns, order, threads = Turns(1), [], []
    first = turns.take(KillSwitch())
    assert first is not None

    def convert(number: int) -> None:
        turn = turns.take(KillSwitch())
        assert turn is not None
        order.append(number)
        turn.end()

    for number in range(5):
        threads.append(threading.Thread(target=convert, args=(number,)))
        threads[-1].start()
        _wait_until_waiting(turns, number + 1)
    first.end()
    for thread in threads:
        thread.join(NET_S)
    assert order == list(range(5))


def test_a_pulled_switch_ends_the_waiting() -> None:
    """A document that waits leaves at once when it is told to, and takes nobody's turn with it."""
    turns, switch, got = Turns(1), KillSwitch(), []
    first = turns.take(KillSwitch())
    assert first is not None
    thread = threading.Thread(target=lambda: got.append(turns.take(switch)))
    thread.start()
    _wait_until_waiting(turns, 1)
    switch.pull(KillReason.DRAIN)
    thread.join(NET_S)
    assert got == [None]
    first.end()
    assert isinstance(turns.take(KillSwitch()), Turn)


def test_a_pulled_switch_wins_over_a_free_worker() -> None:
    """Pulled before and with a worker free: no turn, and the worker stays free."""
    turns, switch = Turns(1), KillSwitch()
    switch.pull(KillReason.DRAIN)
    assert turns.take(switch) is None
    assert turns.take(KillSwitch()) is not None


def test_ended_twice_is_ended_once() -> None:
    """A turn that is ended early, and again on leaving its block, frees one worker."""
    turns, switch = Turns(1), KillSwitch()
    turn = turns.take(KillSwitch())
    assert turn is not None
    with turn:
        turn.end()
    assert turns.take(KillSwitch()) is not None
    threading.Timer(0.05, switch.pull, (KillReason.DRAIN,)).start()
    assert turns.take(switch) is None


def _wait_until_waiting(turns: Turns, number: int) -> None:
    for _ in range(3000):
        if turns.waiting == number:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{turns.waiting} wait, not {number}")
