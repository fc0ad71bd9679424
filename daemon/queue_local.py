"""The queue of `bulkhead convert`: in this process's memory, with the manners of SQS.

Edge. Messages are received in the order in which they were sent; a receipt runs out by the injected clock, and a
newer one makes the older worthless. Nothing outlives the process, and nothing needs to: the ledger knows what is done.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from daemon.clock import Clock
from daemon.errors import ConfigurationError, LeaseLostError
from daemon.model import Message
from daemon.queue import MAX_DELAY_S, DeadLetter, DeadMessage, clipped_visibility_s

#: SQS's own limit, so that what works here works there.
MAX_BODY_BYTES = 2**20
#: How long a waiting `receive` may overlook that its `stop` was set, or that a receipt ran out.
GLANCE_S = 0.05


@dataclass(slots=True)
class _Kept:
    """One message in the queue; guarded by the queue's lock."""

    message_id: str
    body: str
    visible_from_s: float
    receive_count: int = 0
    #: The newest receipt; empty before the first delivery and after a release.
    receipt: str = ""


@dataclass(slots=True)
class _Dead:
    """One dead letter; guarded by the queue's lock. A moved message is one without a letter."""

    message_id: str
    body: str
    letter: DeadLetter | None = None
    visible_from_s: float = 0.0


class LocalQueue:
    """`daemon.queue.Queue` in memory; safe to use from several threads."""

    def __init__(
        self, *, clock: Clock, visibility_s: float = 60.0, wait_s: float = 1.0, max_receive_count: int | None = None
    ) -> None:
        """What was received `max_receive_count` times is moved to the dead letters, as SQS's redrive policy does."""
        self._clock = clock
        self._visibility_s = visibility_s
        self._wait_s = wait_s
        self._max_receive_count = max_receive_count
        self._numbers = count(1)
        #: In the order of sends: a dict keeps it.
        self._kept: dict[str, _Kept] = {}
        self._changed = threading.Condition()
        #: Dead letters and moved messages, oldest first.
        self._dead: dict[str, _Dead] = {}

    @property
    def dead(self) -> list[DeadLetter]:
        """Our own dead letters that were not deleted, oldest first."""
        with self._changed:
            return [dead.letter for dead in self._dead.values() if dead.letter is not None]

    def receive(self, limit: int, *, stop: threading.Event) -> Sequence[Message]:
        """Wait up to `wait_s` real seconds for up to `limit` messages; empty as soon as `stop` is set."""
        assert 1 <= limit <= 10, "SQS gives 1 to 10 messages"  # noqa: PLR2004 - SQS's own limit
        glances = round(self._wait_s / GLANCE_S)
        with self._changed:
            while not stop.is_set():
                if taken := self._take(limit):
                    return taken
                if glances <= 0:
                    break
                glances -= 1
                self._changed.wait(GLANCE_S)
        return ()

    def _take(self, limit: int) -> list[Message]:
        now_s = self._clock.monotonic()
        for kept in tuple(self._kept.values()):
            if kept.receive_count == self._max_receive_count and kept.visible_from_s <= now_s:
                self._dead[kept.message_id] = _Dead(kept.message_id, self._kept.pop(kept.message_id).body)
        ready = [kept for kept in self._kept.values() if kept.visible_from_s <= now_s][:limit]
        for kept in ready:
            kept.receive_count += 1
            kept.receipt = f"{kept.message_id}#{kept.receive_count}"
            kept.visible_from_s = now_s + self._visibility_s
        return [
            Message(
                message_id=kept.message_id,
                receipt_handle=kept.receipt,
                body=kept.body,
                receive_count=kept.receive_count,
                received_monotonic_s=now_s,
            )
            for kept in ready
        ]

    def extend(self, message: Message, *, visibility_s: float) -> None:
        """Hide the message for another `visibility_s` from now, clipped to 12 h from its receipt.

        Raises `LeaseLostError` when the receipt ran out or was replaced.
        """
        self._rehide(message, visibility_s)

    def release(self, message: Message, *, delay_s: float = 0.0) -> None:
        """Let the message be received again after `delay_s`. Raises `LeaseLostError` like `extend`."""
        self._rehide(message, delay_s).receipt = ""

    def _rehide(self, message: Message, seconds: float) -> _Kept:
        now_s = self._clock.monotonic()
        with self._changed:
            kept = self._kept.get(message.message_id)
            if kept is None or kept.receipt != message.receipt_handle or kept.visible_from_s <= now_s:
                raise LeaseLostError(f"cannot change message {message.message_id}: its receipt is no longer ours")
            kept.visible_from_s = now_s + clipped_visibility_s(message, seconds, monotonic_s=now_s)
            self._changed.notify_all()
            return kept

    def delete(self, message: Message) -> None:
        """Remove the message, whichever receipt of it this is; the same again is harmless."""
        with self._changed:
            self._kept.pop(message.message_id, None)

    def send(self, body: str, *, delay_s: float = 0.0) -> str:
        """Enqueue a body that nobody receives for `delay_s`; returns the message id.

        Raises `ConfigurationError` when it is larger than SQS allows.
        """
        assert 0 <= delay_s <= MAX_DELAY_S, "SQS delays no longer"
        size_bytes = len(body.encode())
        if size_bytes > MAX_BODY_BYTES:
            raise ConfigurationError(f"cannot send {size_bytes} bytes: a message has {MAX_BODY_BYTES} at most")
        with self._changed:
            message_id = f"local-{next(self._numbers)}"
            self._kept[message_id] = _Kept(message_id, body, self._clock.monotonic() + delay_s)
            self._changed.notify_all()
        return message_id

    def dead_letter(self, letter: DeadLetter) -> None:
        """Keep the letter in `dead`."""
        with self._changed:
            message_id = f"local-dead-{next(self._numbers)}"
            self._dead[message_id] = _Dead(message_id, letter.body, letter)

    def receive_dead(self, limit: int, *, hidden_s: float) -> Sequence[DeadMessage]:
        """Up to `limit` dead letters that nobody has received in the last `hidden_s` that its receiver named."""
        now_s = self._clock.monotonic()
        with self._changed:
            ready = [dead for dead in self._dead.values() if dead.visible_from_s <= now_s][:limit]
            for dead in ready:
                dead.visible_from_s = now_s + hidden_s
            return [_as_received(dead) for dead in ready]

    def delete_dead(self, message: DeadMessage) -> None:
        """Remove a dead letter, whichever receipt of it this is; the same again is harmless."""
        with self._changed:
            self._dead.pop(message.message_id, None)

    def depth(self) -> Mapping[str, int]:
        """Numbers of messages: `visible`, `in_flight`, `dead`."""
        now_s = self._clock.monotonic()
        with self._changed:
            visible = sum(kept.visible_from_s <= now_s for kept in self._kept.values())
            return {"visible": visible, "in_flight": len(self._kept) - visible, "dead": len(self._dead)}

    def close(self) -> None:
        """Nothing to give back; what is still queued is gone with the process."""


def _as_received(dead: _Dead) -> DeadMessage:
    letter = dead.letter
    if letter is None:
        return DeadMessage(message_id=dead.message_id, receipt_handle=dead.message_id, body=dead.body)
    return DeadMessage(
        message_id=dead.message_id,
        receipt_handle=dead.message_id,
        body=dead.body,
        cause=letter.cause,
        detail=letter.detail,
        document_id=letter.document_id,
        attempts=letter.attempts,
    )
