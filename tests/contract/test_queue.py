"""Both queues keep the contract: the one in memory, and SQS as moto speaks it over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import boto3
import pytest

from daemon.config import Settings
from daemon.config_queue import QueueSettings
from daemon.errors import LeaseLostError, ResourceError
from daemon.model import Cause, Message
from daemon.queue import DeadLetter
from daemon.queue_local import LocalQueue
from daemon.sqs import SqsQueue
from tests.contract.queue_contract import NEVER, QueueContract, Turn, take
from tests.fakes.clock import FakeClock

#: A net for a hang: what a handshake waits for comes at once or never.
NET_S = 20.0


class TestLocalQueue(QueueContract):
    """The one of `bulkhead convert`."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        """Virtual time."""
        return FakeClock()

    @pytest.fixture
    def queue(self, clock: FakeClock) -> LocalQueue:
        """Empty."""
        return LocalQueue(clock=clock, wait_s=0)

    @pytest.fixture
    def redriving(self, clock: FakeClock) -> LocalQueue:
        """Moves what was received once."""
        return LocalQueue(clock=clock, wait_s=0, max_receive_count=1)

    @pytest.fixture
    def turn(self, clock: FakeClock) -> Turn:
        """Time is the clock's."""
        return clock.advance

    def test_messages_come_in_the_order_of_sends(self, queue: LocalQueue) -> None:
        """`convert` sends the biggest first and must get it first."""
        for body in "cab":
            queue.send(body)
        assert [message.body for message in take(queue)] == ["c", "a", "b"]

    def test_an_old_receipt_is_worthless(self, queue: LocalQueue, clock: FakeClock) -> None:
        """Once a message was given to another slot, the first one's heartbeat must fail."""
        queue.send("x")
        (first,) = take(queue)
        clock.advance(61)
        with pytest.raises(LeaseLostError):
            queue.extend(first, visibility_s=60)
        (second,) = take(queue)
        with pytest.raises(LeaseLostError):
            queue.release(first)
        queue.extend(second, visibility_s=60)

    def test_a_send_wakes_a_waiting_receive(self, clock: FakeClock) -> None:
        """The first document starts when it is sent, not when a poll ends."""
        queue = LocalQueue(clock=clock, wait_s=NET_S)
        received: SimpleQueue[list[Message]] = SimpleQueue()
        waiting = threading.Thread(target=lambda: received.put(list(queue.receive(1, stop=NEVER))))
        waiting.start()
        queue.send("x")
        assert [message.body for message in received.get(timeout=NET_S)] == ["x"]
        waiting.join()


class MotoTime:
    """The embedded SQS's clock and ours, turned together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import moto.sqs.models as sqs  # noqa: PLC0415 - half a second that only these tests pay

        self.clock = FakeClock()
        self._offset_ms = 0.0
        real = sqs.unix_time_millis
        monkeypatch.setattr(sqs, "unix_time_millis", lambda *given: real(*given) + self._offset_ms)

    def turn(self, seconds: float) -> None:
        """Let seconds pass on both sides."""
        self._offset_ms += seconds * 1000
        self.clock.advance(seconds)


def client(endpoint: str) -> Any:
    """A plain client, to look behind the queue's back."""
    return boto3.session.Session().client("sqs", endpoint_url=endpoint)


def created(endpoint: str, name: str, **attributes: str) -> tuple[str, str]:
    """URL and ARN of a new queue."""
    sqs = client(endpoint)
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


@pytest.mark.aws
class TestSqsQueue(QueueContract):
    """SQS, as moto speaks it over HTTP."""

    @pytest.fixture
    def moto_time(self, monkeypatch: pytest.MonkeyPatch) -> MotoTime:
        """Both clocks."""
        return MotoTime(monkeypatch)

    @pytest.fixture
    def settings(self, moto_endpoint: str) -> QueueSettings:
        """A queue and its dead-letter queue."""
        source, dead = created(moto_endpoint, "source")[0], created(moto_endpoint, "dead")[0]
        return QueueSettings(url=source, dead_letter_url=dead, endpoint_url=moto_endpoint, wait_s=0)

    @pytest.fixture
    def queue(self, settings: QueueSettings, moto_time: MotoTime) -> Iterator[SqsQueue]:
        """Empty."""
        queue = SqsQueue(settings, clock=moto_time.clock, host="host-1")
        yield queue
        queue.close()

    @pytest.fixture
    def redriving(self, queue: SqsQueue, settings: QueueSettings) -> SqsQueue:
        """The same, with a redrive policy that moves what was received once."""
        redrive = json.dumps({"deadLetterTargetArn": queue.attributes("dead")["QueueArn"], "maxReceiveCount": 1})
        sqs = client(str(settings.endpoint_url))
        sqs.set_queue_attributes(QueueUrl=settings.url, Attributes={"RedrivePolicy": redrive})
        return queue

    @pytest.fixture
    def turn(self, moto_time: MotoTime) -> Turn:
        """Time passes here and there."""
        return moto_time.turn

    def test_a_dead_letter_bears_its_history(self, queue: SqsQueue, settings: QueueSettings) -> None:
        """The body is untouched, so that a redrive works; what a person needs is beside it."""
        letter = DeadLetter(body="\ta b", cause=Cause.CRASHED, detail="bad \x00 byte", document_id="a-1", attempts=3)
        queue.dead_letter(letter)
        sqs = client(str(settings.endpoint_url))
        answer = sqs.receive_message(QueueUrl=settings.dead_letter_url, MessageAttributeNames=["All"])
        (message,) = answer["Messages"]
        assert message["Body"] == "\ta b"
        assert {name: value["StringValue"] for name, value in message["MessageAttributes"].items()} == {
            "cause": "crashed",
            "detail": "bad \ufffd byte",
            "document_id": "a-1",
            "attempts": "3",
            "host": "host-1",
        }

    def test_a_queue_that_does_not_exist_is_the_operators(self, settings: QueueSettings) -> None:
        """A typing error in a URL must not look like an outage."""
        wrong = settings.model_copy(update={"url": settings.url + "-2", "dead_letter_url": settings.url + "-3"})
        queue = SqsQueue(wrong, clock=FakeClock())
        steps: list[Callable[[], object]] = [
            lambda: queue.receive(1, stop=NEVER),
            lambda: queue.send("x"),
            queue.attributes,
            lambda: queue.dead_letter(DeadLetter(body="x", cause=Cause.EMPTY, detail="")),
        ]
        for step in steps:
            with pytest.raises(ResourceError, match=r"create the queue or correct queue\.url"):
                step()

    def test_the_real_queues_attributes_are_judged(self, queue: SqsQueue, settings: QueueSettings) -> None:
        """A dangerous combination is said at start; a sound one is silent."""
        assert any("no redrive policy" in finding for finding in queue.findings(Settings(queue=settings)))
        sqs = client(str(settings.endpoint_url))
        dead_arn = queue.attributes("dead")["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 100})
        sqs.set_queue_attributes(QueueUrl=settings.url, Attributes={"RedrivePolicy": redrive})
        sqs.set_queue_attributes(
            QueueUrl=settings.dead_letter_url, Attributes={"MessageRetentionPeriod": str(14 * 86_400)}
        )
        assert queue.findings(Settings(queue=settings)) == ()
