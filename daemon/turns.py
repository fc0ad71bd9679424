"""Whose turn it is to convert: `admission.py`'s line, for the threads that wait in it.

Edge: threads. More messages are in hand than workers, so that one document is stored, settled and deleted while the
next one converts. A turn begins before the attempt is marked: a document that only waits has nothing on its record when
this process dies. Waiting ends at once when the document's switch is pulled.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Self

from daemon.admission import Ask, Line, Pool, Waiting
from daemon.killswitch import KillSwitch

#: Who waits for memory: the names of `Ask`, and the bytes that each needs, first come first.
HeldBack = tuple[tuple[str, int], ...]


class Turns:
    """Hands out turns: never more at a time than there are workers, never more memory than there is."""

    def __init__(self, pool: Pool, *, note: Callable[[HeldBack], None] = lambda _: None) -> None:
        """`note` is told who waits for memory whenever that changes; it must not raise."""
        self._lock = threading.Lock()
        self._line = Line(pool=pool)
        self._numbers = count(1)
        self._turns: dict[int, Turn] = {}
        self._note = note
        self._noted: HeldBack = ()
        self._note_lock = threading.Lock()

    @property
    def pool(self) -> Pool:
        """What is handed out."""
        return self._line.pool

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line.waiting)

    @property
    def held_back(self) -> HeldBack:
        """Who waits, had a worker, and had not the memory."""
        waiting = sorted(self._line.waiting.items())
        return tuple((each.ask.name, each.ask.need_bytes) for _, each in waiting if each.held_back)

    def line_up(self, ask: Ask | None = None) -> Turn:
        """Take the last place. The caller ends the turn, whether it came to it or not.

        Without an `ask`, an ordinary document is meant.
        """
        with self._lock:
            turn = Turn(self, next(self._numbers))
            self._turns[turn.number] = turn
            self._change(self._line.asked(turn.number, ask or Ask(need_bytes=self.pool.ordinary_bytes)))
        return turn

    def ask(self, turn: Turn, ask: Ask) -> None:
        """Only for a turn that asks again."""
        with self._lock:
            turn.held_back = None
            self._change(self._line.asked(turn.number, ask))
        self._tell()

    def leave(self, turn: Turn) -> None:
        """Only for a turn that ends: its worker and its memory, or its place, are free."""
        with self._lock:
            del self._turns[turn.number]
            self._change(self._line.left(turn.number))
        self._tell()

    def _change(self, line: Line) -> None:
        before, self._line = self._line, line.admitted()
        for number in (before.granted.keys() - self._line.granted.keys()) & self._turns.keys():
            self._turns[number].recall()
        for number, granted_bytes in self._line.granted.items():
            turn = self._turns[number]
            turn.memory_bytes = granted_bytes
            if not turn.called:
                turn.call(line.waiting.get(number))

    def _tell(self) -> None:
        with self._note_lock:
            held_back = self.held_back
            if held_back != self._noted:
                self._noted = held_back
                self._note(held_back)


class Turn:
    """A place in the line, then the right to convert. Ended by `end`, or on leaving the block; once."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self.number = number
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ended = False
        self.called = False
        #: The limit of its next child; of worth while the turn is called.
        self.memory_bytes = 0
        #: How it waited, where a worker was free for it and the memory was not; None otherwise.
        self.held_back: Waiting | None = None

    def call(self, waiting: Waiting | None) -> None:
        """It is this one's turn, after having been `waiting`."""
        self.called = True
        self.held_back = waiting if waiting is not None and waiting.held_back else None
        os.eventfd_write(self._event, 1)

    def recall(self) -> None:
        """It asked for more, and waits again."""
        self.called = False
        os.eventfd_read(self._event)

    def ask(self, ask: Ask) -> None:
        """Say what it needs, as soon as that is known; only while no child of it runs. `wait` afterwards."""
        self._turns.ask(self, ask)

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
