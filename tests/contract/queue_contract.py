"""What every queue promises; run on the one in memory and on SQS (moto over real HTTP).

A subclass gives the fixtures `queue` (empty, wait_s 0, visibility 60 s), `redriving` (the same, and moves to the dead
letters what was received once) and `turn` (lets that many seconds pass).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from daemon.errors import ConfigurationError, LeaseLostError
from daemon.model import Cause, Message
from daemon.queue import DeadLetter, DeadMessage, Queue

Turn = Callable[[float], None]
NEVER = threading.Event()


def take(queue: Queue, limit: int = 10) -> list[Message]:
    """What can be received now, however many calls that takes."""
    taken: list[Message] = []
    for _ in range(20):
        messages = queue.receive(limit, stop=NEVER)
        if not messages:
            break
        taken += messages
    return taken


def take_dead(queue: Queue, *, hidden_s: float = 60) -> list[DeadMessage]:
    """Every dead letter that can be received now."""
    taken: list[DeadMessage] = []
    for _ in range(20):
        letters = queue.receive_dead(10, hidden_s=hidden_s)
        if not letters:
            break
        taken += letters
    return taken


class QueueContract:
    """The suite. Where nothing may come yet, half of the time is left: a slow machine must not decide."""

    def test_what_is_sent_is_received_once_while_it_is_hidden(self, queue: Queue) -> None:
        """A message in hand is nobody else's."""
        message_id = queue.send("s3://bucket/a")
        (message,) = take(queue)
        assert (message.message_id, message.body, message.receive_count) == (message_id, "s3://bucket/a", 1)
        assert take(queue) == []

    def test_no_more_than_asked_for(self, queue: Queue) -> None:
        """As many messages as there are free slots: the others stay visible to other hosts."""
        for number in range(3):
            queue.send(f"s3://bucket/{number}")
        assert len(queue.receive(2, stop=NEVER)) == 2
        assert queue.depth() == {"visible": 1, "in_flight": 2, "dead": 0}

    def test_a_body_comes_back_as_it_was(self, queue: Queue) -> None:
        """Keys hold every character; none may change on the way."""
        body = "s3://bucket/ä 文書 \"<&>' \n.pdf"
        queue.send(body)
        assert take(queue)[0].body == body

    def test_a_forgotten_message_comes_back(self, queue: Queue, turn: Turn) -> None:
        """A dead daemon's message returns when its visibility ends, with a new receipt and a higher count."""
        queue.send("x")
        (first,) = take(queue)
        turn(30)
        assert take(queue) == []
        turn(31)
        (again,) = take(queue)
        assert again.message_id == first.message_id
        assert again.receipt_handle != first.receipt_handle
        assert again.receive_count == 2

    def test_an_extended_message_stays_hidden(self, queue: Queue, turn: Turn) -> None:
        """Extending counts from now, not from the old end."""
        queue.send("x")
        (message,) = take(queue)
        turn(35)
        queue.extend(message, visibility_s=60)
        turn(30)
        assert take(queue) == []
        turn(31)
        assert len(take(queue)) == 1

    def test_a_released_message_is_visible_at_once(self, queue: Queue, turn: Turn) -> None:
        """A drain must not hide messages from the hosts that stay."""
        queue.send("x")
        (message,) = take(queue)
        queue.release(message)
        turn(0.01)
        assert len(take(queue)) == 1

    def test_a_release_with_a_delay_hides_that_long(self, queue: Queue, turn: Turn) -> None:
        """Back-off is the queue's work, not a sleep of ours."""
        queue.send("x")
        (message,) = take(queue)
        queue.release(message, delay_s=100)
        turn(50)
        assert take(queue) == []
        turn(51)
        assert len(take(queue)) == 1

    def test_a_deleted_message_never_comes_back(self, queue: Queue, turn: Turn) -> None:
        """Deleting the same message again is harmless: a crash between two deletes is one more."""
        queue.send("x")
        (message,) = take(queue)
        queue.delete(message)
        queue.delete(message)
        turn(1000)
        assert take(queue) == []
        assert queue.depth()["in_flight"] == 0

    def test_extending_a_deleted_message_is_a_lost_lease(self, queue: Queue) -> None:
        """Somebody else ended it: stop, and publish nothing."""
        queue.send("x")
        (message,) = take(queue)
        queue.delete(message)
        with pytest.raises(LeaseLostError):
            queue.extend(message, visibility_s=60)
        with pytest.raises(LeaseLostError):
            queue.release(message)

    def test_twelve_hours_after_receipt_the_lease_is_lost(self, queue: Queue, turn: Turn) -> None:
        """SQS lets no message be hidden longer, however often it is extended; we know before we ask."""
        queue.send("x")
        (message,) = take(queue)
        queue.extend(message, visibility_s=12 * 3600)
        turn(12 * 3600 - 40)
        queue.extend(message, visibility_s=60)
        turn(20)
        with pytest.raises(LeaseLostError):
            queue.extend(message, visibility_s=60)

    def test_a_set_stop_receives_nothing(self, queue: Queue) -> None:
        """What is received while stopping would only be hidden from others."""
        queue.send("x")
        stop = threading.Event()
        stop.set()
        assert list(queue.receive(10, stop=stop)) == []
        assert queue.depth()["visible"] == 1

    def test_a_dead_letter_is_confirmed_and_leaves_the_message_alone(self, queue: Queue) -> None:
        """Deleting is a second step, after this one has succeeded."""
        queue.send("x")
        take(queue)
        queue.dead_letter(DeadLetter(body="x", cause=Cause.CRASHED, detail="SIGSEGV on page 3", document_id="a-1"))
        assert queue.depth() == {"visible": 0, "in_flight": 1, "dead": 1}

    def test_a_body_beyond_the_limit_is_refused(self, queue: Queue) -> None:
        """Content belongs in the bucket; the sender is told before anything is queued."""
        with pytest.raises(ConfigurationError, match="cannot send"):
            queue.send("x" * (2**20 + 1))
        assert queue.depth()["visible"] == 0

    def test_a_delayed_message_comes_later(self, queue: Queue, turn: Turn) -> None:
        """What is tried again waits in the queue, not in a process."""
        queue.send("x", delay_s=100)
        turn(50)
        assert take(queue) == []
        assert queue.depth()["visible"] + queue.depth()["in_flight"] == 1
        turn(51)
        assert len(take(queue)) == 1

    def test_dead_letters_come_back_with_their_history(self, queue: Queue) -> None:
        """The sweep decides by what the daemon wrote, each letter once."""
        full = DeadLetter(body="x", cause=Cause.CRASHED, detail="page 3", document_id="a-1", attempts=2)
        queue.dead_letter(full)
        queue.dead_letter(DeadLetter(body="y", cause=Cause.MALFORMED_MESSAGE, detail="no uri"))
        told = {each.body: (each.cause, each.detail, each.document_id, each.attempts) for each in take_dead(queue)}
        assert told == {
            "x": (Cause.CRASHED, "page 3", "a-1", 2),
            "y": (Cause.MALFORMED_MESSAGE, "no uri", None, 0),
        }

    def test_a_dead_letter_that_is_not_deleted_comes_back(self, queue: Queue, turn: Turn) -> None:
        """A killed sweep has lost nothing."""
        queue.dead_letter(DeadLetter(body="x", cause=Cause.CRASHED, detail=""))
        assert len(take_dead(queue, hidden_s=60)) == 1
        turn(30)
        assert take_dead(queue) == []
        turn(31)
        assert len(take_dead(queue)) == 1

    def test_a_deleted_dead_letter_never_comes_back(self, queue: Queue, turn: Turn) -> None:
        """Deleting the same letter again is harmless."""
        queue.dead_letter(DeadLetter(body="x", cause=Cause.CRASHED, detail=""))
        (letter,) = take_dead(queue)
        queue.delete_dead(letter)
        queue.delete_dead(letter)
        turn(1000)
        assert take_dead(queue) == []
        assert queue.depth()["dead"] == 0

    def test_a_redriven_message_has_no_cause(self, redriving: Queue, turn: Turn) -> None:
        """SQS moves by itself what was received too often: body and message id stay, nothing says why."""
        message_id = redriving.send("s3://bucket/a")
        take(redriving)
        turn(61)
        assert take(redriving) == []
        (moved,) = take_dead(redriving)
        assert (moved.message_id, moved.body, moved.cause) == (message_id, "s3://bucket/a", None)
