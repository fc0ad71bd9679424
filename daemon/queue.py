"""The queue as the parent sees it, and what is sent when a document is given up.

Edge (the interface only; `sqs.py` is the real one, `queue_local.py` the one of `bulkhead convert`).
One contract suite, `tests/contract/queue_contract.py`, holds for every implementation.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from daemon.errors import LeaseLostError
from daemon.model import Cause, Message

#: SQS delays a new message so long at most.
MAX_DELAY_S = 900
#: SQS hides a message this long at most, counted from its receipt; extending does not reset it.
MAX_HIDDEN_S = 43_200
#: Ours ends earlier: the clocks of two machines, and the time that a call takes.
HIDDEN_MARGIN_S = 30


def clipped_visibility_s(message: Message, visibility_s: float, *, monotonic_s: float) -> int:
    """`visibility_s` in whole seconds, cut to what is left of the 12 h at the monotonic instant `monotonic_s`.

    Raises `LeaseLostError` when nothing is left.
    """
    left_s = int(message.received_monotonic_s + MAX_HIDDEN_S - HIDDEN_MARGIN_S - monotonic_s)
    if left_s < 1:
        raise LeaseLostError(
            f"cannot keep message {message.message_id}: it was received 12 h ago, and SQS hides nothing longer; "
            "it will be delivered again"
        )
    return min(ceil(visibility_s), left_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What goes to the dead-letter queue: the message as it came, and why.

    The body stays as it was, so that a native redrive works; cause and history travel as message attributes.
    """

    body: str
    cause: Cause
    #: Every cause in order, one sentence each.
    detail: str
    #: None when no document could be read from the message.
    document_id: str | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMessage:
    """What lies in the dead-letter queue, as one receipt gives it: our own dead letter, or a message moved by SQS."""

    #: Of the dead letter; a message that SQS's redrive policy moved keeps the one that it had in the queue.
    message_id: str
    #: Valid for this delivery only.
    receipt_handle: str
    body: str
    #: None: not ours, or of a cause that this version does not know. SQS moved it, or a person put it there.
    cause: Cause | None = None
    detail: str = ""
    document_id: str | None = None
    #: The attempt that gave the document up; 0 when none was made.
    attempts: int = 0


class Queue(Protocol):
    """A queue with receipts that run out.

    Every method may raise `WorldError(QUEUE_UNAVAILABLE)` after its own bounded retries. Every method that
    takes a message raises `LeaseLostError` when its receipt is no longer ours.
    """

    def receive(self, limit: int, *, stop: threading.Event) -> Sequence[Message]:
        """Wait for up to `limit` (1 to 10) messages; empty when none came in time or as soon as `stop` is set."""
        ...

    def extend(self, message: Message, *, visibility_s: float) -> None:
        """Hide the message for another `visibility_s` from now, clipped to 12 h from its receipt."""
        ...

    def release(self, message: Message, *, delay_s: float = 0.0) -> None:
        """Let the message be received again after `delay_s`."""
        ...

    def delete(self, message: Message) -> None:
        """Remove the message; the same again is harmless."""
        ...

    def send(self, body: str, *, delay_s: float = 0.0) -> str:
        """Enqueue a body that nobody receives for `delay_s` (0 to `MAX_DELAY_S`); returns the message id.

        Raises `ConfigurationError` when the queue takes no such body.
        """
        ...

    def dead_letter(self, letter: DeadLetter) -> None:
        """Put a dead letter; returns only after the queue has confirmed it."""
        ...

    def receive_dead(self, limit: int, *, hidden_s: float) -> Sequence[DeadMessage]:
        """Up to `limit` (1 to 10) dead letters that are there now, hidden from the next receipt for `hidden_s`."""
        ...

    def delete_dead(self, message: DeadMessage) -> None:
        """Remove a dead letter; the same again is harmless, and so is a receipt that has run out."""
        ...

    def depth(self) -> Mapping[str, int]:
        """Approximate numbers: `visible`, `in_flight`, `dead`."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
