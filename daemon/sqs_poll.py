"""One long poll of SQS in a thread of its own, that whoever waits for it may leave behind.

Edge. Rules: no call to SQS can be taken back, so a poll that nobody waits for any more gives back at once whatever it
still receives. Whether it was left behind or had ended is decided under one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon.errors import BulkheadError
from daemon.model import Message

if TYPE_CHECKING:
    from daemon.sqs import SqsQueue


class Poll(threading.Thread):
    """One long poll. Its messages belong to whoever waits for it; once abandoned, to nobody: it gives them back."""

    def __init__(self, queue: SqsQueue, limit: int) -> None:
        super().__init__(name="sqs-poll", daemon=True)
        self._queue = queue
        self._limit = limit
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._error: BaseException | None = None
        self._abandoned = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        """Poll, then hand over or give back."""
        try:
            messages = self._queue.poll(self._limit, self._abandoned)
        except BaseException as error:  # noqa: BLE001 - raised again by `result`, in the thread that asked
            self._error = error
            messages = []
        with self._lock:
            if not self._abandoned.is_set():
                self._messages, messages = messages, []
            self.done.set()
        for message in messages:
            self._give_back(message)

    def _give_back(self, message: Message) -> None:
        try:
            self._queue.release(message)
        except BulkheadError:
            # Nobody waits for us; the message comes back by itself when its visibility ends.
            return

    def abandon(self) -> bool:
        """Leave the poll behind; False when it has ended already and its result must be taken."""
        with self._lock:
            if self.done.is_set():
                return False
            self._abandoned.set()
            return True

    def result(self) -> Sequence[Message]:
        """What it received; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._messages
