"""Whose turn it is to convert: as many documents at once as there are workers, in the order in which they lined up.

Edge: threads. More messages are in hand than workers, so that one document is stored, settled and deleted while the
next one converts. A turn begins before the attempt is marked: a document that only waits has nothing on its record when
this process dies. Waiting ends at once when the document's switch is pulled.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from types import TracebackType
from typing import Self

from daemon.killswitch import KillSwitch


class Turns:
    """Hands out at most `workers` turns at a time."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._free = workers
        #: Longest first.
        self._waiting: deque[Turn] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def line_up(self) -> Turn:
        """Take the last place. The caller ends the turn, whether it came to it or not."""
        turn = Turn(self)
        with self._lock:
            self._waiting.append(turn)
            self._call_next()
        return turn

    def leave(self, turn: Turn) -> None:
        """Only for a turn that ends: its worker, or its place, is free."""
        with self._lock:
            if turn.called:
                self._free += 1
            else:
                self._waiting.remove(turn)
            self._call_next()

    def _call_next(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._waiting.popleft().call()


class Turn:
    """A place in the line, then the right to convert. Ended by `end`, or on leaving the block; once."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ended = False
        self.called = False

    def call(self) -> None:
        """It is this one's turn."""
        self.called = True
        os.eventfd_write(self._event, 1)

    def wait(self, switch: KillSwitch) -> bool:
        """Whether its turn comes before `switch` is pulled."""
        waiting = select.poll()
        waiting.register(self._event, select.POLLIN)
        waiting.register(switch, select.POLLIN)
        ready = {fd for fd, _ in waiting.poll()}
        return switch.fileno() not in ready

    def end(self) -> None:
        """Let the next one convert."""
        if not self._ended:
            self._ended = True
            self._turns.leave(self)
            os.close(self._event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
