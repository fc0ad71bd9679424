"""SQS as the queue: long polls that a stop abandons, receipts kept or known to be lost, confirmed dead letters.

Edge. Rules: a poll runs in a thread of its own, since no call to SQS can be taken back; whoever stops waiting for
it leaves it behind, and it gives back at once whatever it still receives. Nothing here decides about a document.
A message's 12 h are counted from before the call that received it. Retries are `sqs_calls.py`'s.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Literal, TypedDict

from daemon import queue_findings
from daemon.clock import Clock
from daemon.config import Settings
from daemon.config_queue import QueueSettings
from daemon.dead_letters import parcel, unpacked
from daemon.errors import ConfigurationError, ResourceError
from daemon.model import Message
from daemon.queue import DeadLetter, DeadMessage, clipped_visibility_s
from daemon.sqs_calls import Calls, QueueDeniedError
from daemon.sqs_poll import Poll

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef, ReceiveMessageResultTypeDef

#: Beyond the long poll itself, and for every other call.
READ_TIMEOUT_S = 10.0
#: A long poll, since a short one asks only some of SQS's servers; ends below `READ_TIMEOUT_S`.
DEAD_WAIT_S = 5
#: How often a waiting `receive` looks at its `stop`.
GLANCE_S = 0.1
#: How long `close` waits for a poll that was left behind. A longer one dies with the process, and a message that SQS
#: gives to it in that moment is hidden for `visibility_s`.
CLOSE_WAIT_S = 2.0
#: What a queue takes when it does not say: SQS's limit before 2025.
DEFAULT_MAX_BYTES = 262_144


#: SQS lets no queue take less.
LEAST_MAX_BYTES = 1_024


class _Delay(TypedDict, total=False):
    """How SQS names it."""

    DelaySeconds: int


class SqsQueue:
    """`daemon.queue.Queue` on SQS; safe to use from several threads, one of which receives."""

    def __init__(self, settings: QueueSettings, *, clock: Clock, host: str | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._host = host or socket.gethostname()
        self._calls = Calls(settings, read_timeout_s=READ_TIMEOUT_S)
        self._polls = Calls(settings, read_timeout_s=settings.wait_s + READ_TIMEOUT_S)
        self._closed = threading.Event()
        #: Left behind and perhaps still running; only `receive` and `close` touch it.
        self._abandoned: list[Poll] = []
        self._dead_max_bytes: int | None = None

    def receive(self, limit: int, *, stop: threading.Event) -> Sequence[Message]:
        """Long-poll for up to `limit` (1 to 10) messages, for `wait_s`; returns within a blink when `stop` is set.

        What an abandoned poll receives later is released at once. Raises `WorldError`, or `ResourceError` when
        there is no such queue.
        """
        if stop.is_set():
            return ()
        poll = Poll(self, limit)
        poll.start()
        while not poll.done.wait(GLANCE_S):
            if stop.is_set() and poll.abandon():
                self._abandoned = [left for left in self._abandoned if left.is_alive()]
                self._abandoned.append(poll)
                return ()
        return poll.result()

    def poll(self, limit: int, ended: threading.Event) -> list[Message]:
        """One long poll with its retries; blocks for `wait_s` and more."""
        received_s = self._clock.monotonic()

        def request(client: SQSClient) -> ReceiveMessageResultTypeDef:
            nonlocal received_s
            received_s = self._clock.monotonic()
            return client.receive_message(
                QueueUrl=self._settings.url,
                MaxNumberOfMessages=limit,
                WaitTimeSeconds=self._settings.wait_s,
                VisibilityTimeout=self._settings.visibility_s,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )

        answer = self._polls.call("receive messages", request, retry_for_s=self._settings.retry_for_s, ended=ended)
        return [
            Message(
                message_id=message["MessageId"],
                receipt_handle=message["ReceiptHandle"],
                body=message.get("Body", ""),
                receive_count=int(message.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
                received_monotonic_s=received_s,
            )
            for message in answer.get("Messages", ())
        ]

    def extend(self, message: Message, *, visibility_s: float) -> None:
        """Hide the message for another `visibility_s` from now, clipped to 12 h from its receipt.

        Retried no longer than a heartbeat's interval, so that one message cannot cost the others theirs. Raises
        `LeaseLostError` when nothing is left or SQS no longer knows the receipt, else `WorldError`.
        """
        seconds = clipped_visibility_s(message, visibility_s, monotonic_s=self._clock.monotonic())
        self._hide(message, seconds, retry_for_s=min(self._settings.heartbeat_s, self._settings.retry_for_s))

    def release(self, message: Message, *, delay_s: float = 0.0) -> None:
        """Let the message be received again after `delay_s`, clipped like `extend`. Raises like `extend`."""
        seconds = clipped_visibility_s(message, delay_s, monotonic_s=self._clock.monotonic())
        self._hide(message, seconds, retry_for_s=self._settings.retry_for_s)

    def _hide(self, message: Message, seconds: int, *, retry_for_s: float) -> None:
        self._calls.call(
            f"change the visibility of message {message.message_id}",
            lambda client: client.change_message_visibility(
                QueueUrl=self._settings.url, ReceiptHandle=message.receipt_handle, VisibilityTimeout=seconds
            ),
            retry_for_s=retry_for_s,
            ended=self._closed,
            receipt=True,
        )

    def delete(self, message: Message) -> None:
        """Remove the message. Deleted before: harmless. A receipt that has run out: SQS may or may not remove it.

        Raises `LeaseLostError` when SQS says that the receipt is not valid; then the message comes back, and is
        found settled.
        """
        self._calls.call(
            f"delete message {message.message_id}",
            lambda client: client.delete_message(QueueUrl=self._settings.url, ReceiptHandle=message.receipt_handle),
            retry_for_s=self._settings.retry_for_s,
            ended=self._closed,
            receipt=True,
        )

    def send(self, body: str, *, delay_s: float = 0.0) -> str:
        """Enqueue a body that nobody receives for `delay_s`, in whole seconds; returns the message id.

        Raises `ConfigurationError` when SQS does not take it, `WorldError`, or `ResourceError`.
        """
        return self._send(self._settings.url, body, {}, delay_s=delay_s)

    def dead_letter(self, letter: DeadLetter) -> None:
        """Put a dead letter; returns only after SQS has confirmed it. Retries may put it twice.

        Raises `WorldError`, `ResourceError` when there is no such queue, `ConfigurationError` when none is set.
        """
        url = self._dead_url("send a dead letter")
        limit = self._max_bytes(url)
        try:
            self._put(url, letter, limit)
        except ConfigurationError:
            # The limit was lowered since it was read, or may not be read: a document must not hang on that.
            self._dead_max_bytes = None
            lower = min(self._max_bytes(url), LEAST_MAX_BYTES if limit == DEFAULT_MAX_BYTES else limit - 1)
            self._put(url, letter, lower)

    def _put(self, url: str, letter: DeadLetter, max_bytes: int) -> None:
        packed = parcel(letter, host=self._host, max_bytes=max_bytes)
        attributes: dict[str, MessageAttributeValueTypeDef] = {
            name: {"DataType": kind, "StringValue": value} for name, (kind, value) in packed.attributes.items()
        }
        self._send(url, packed.body, attributes)

    def receive_dead(self, limit: int, *, hidden_s: float) -> Sequence[DeadMessage]:
        """Up to `limit` dead letters, hidden for `hidden_s`; waits `DEAD_WAIT_S` at most. Raises like `dead_letter`."""
        url = self._dead_url("receive dead letters")
        answer = self._calls.call(
            "receive dead letters",
            lambda client: client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=limit,
                WaitTimeSeconds=min(self._settings.wait_s, DEAD_WAIT_S),
                VisibilityTimeout=ceil(hidden_s),
                MessageAttributeNames=["All"],
            ),
            retry_for_s=self._settings.retry_for_s,
            ended=self._closed,
        )
        return [unpacked(message) for message in answer.get("Messages", ())]

    def delete_dead(self, message: DeadMessage) -> None:
        """Remove a dead letter. Raises `WorldError`, and `LeaseLostError` like `delete`."""
        url = self._dead_url("delete a dead letter")
        self._calls.call(
            f"delete dead letter {message.message_id}",
            lambda client: client.delete_message(QueueUrl=url, ReceiptHandle=message.receipt_handle),
            retry_for_s=self._settings.retry_for_s,
            ended=self._closed,
            receipt=True,
        )

    def _dead_url(self, what: str) -> str:
        if not self._settings.dead_letter_url:
            raise ConfigurationError(f"cannot {what}: queue.dead_letter_url is not set")
        return self._settings.dead_letter_url

    def _send(
        self, url: str, body: str, attributes: Mapping[str, MessageAttributeValueTypeDef], *, delay_s: float = 0.0
    ) -> str:
        # Left out where there is none, so that a queue's own delay holds.
        delay: _Delay = {"DelaySeconds": ceil(delay_s)} if delay_s else {}
        answer = self._calls.call(
            f"send to {url}",
            lambda client: client.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes, **delay),
            retry_for_s=self._settings.retry_for_s,
            ended=self._closed,
        )
        return answer["MessageId"]

    def _max_bytes(self, url: str) -> int:
        """The dead-letter queue's own limit, read once; the old default when we may not read it."""
        if self._dead_max_bytes is None:
            try:
                self._dead_max_bytes = int(self._attributes(url).get("MaximumMessageSize", DEFAULT_MAX_BYTES))
            except QueueDeniedError:
                self._dead_max_bytes = DEFAULT_MAX_BYTES
        return self._dead_max_bytes

    def depth(self) -> Mapping[str, int]:
        """Approximate numbers: `visible` (delayed ones too), `in_flight`, `dead`. Raises `WorldError`."""
        queue = self._attributes(self._settings.url)
        dead_url = self._settings.dead_letter_url
        dead = self._attributes(dead_url) if dead_url else {}
        number = "ApproximateNumberOfMessages"
        return {
            "visible": int(queue.get(number, 0)) + int(queue.get(f"{number}Delayed", 0)),
            "in_flight": int(queue.get(f"{number}NotVisible", 0)),
            "dead": int(dead.get(number, 0)) + int(dead.get(f"{number}NotVisible", 0)),
        }

    def attributes(self, which: Literal["source", "dead"] = "source") -> Mapping[str, str]:
        """The real attributes of the queue, or of the dead-letter queue, by their names in SQS.

        Raises `ResourceError` when it does not exist or refuses us, `WorldError` when SQS does not answer.
        """
        url = self._settings.url if which == "source" else self._settings.dead_letter_url
        try:
            return self._attributes(url)
        except QueueDeniedError as error:
            raise ResourceError(error.detail) from error

    def _attributes(self, url: str) -> Mapping[str, str]:
        answer = self._calls.call(
            f"read the attributes of {url}",
            lambda client: client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]),
            retry_for_s=self._settings.retry_for_s,
            ended=self._closed,
        )
        return {str(name): value for name, value in answer.get("Attributes", {}).items()}

    def findings(self, settings: Settings) -> tuple[str, ...]:
        """What is dangerous in the queues' real attributes together with `settings`, a sentence each.

        Raises like `attributes`.
        """
        dead = self.attributes("dead") if self._settings.dead_letter_url else None
        return queue_findings.findings(self.attributes(), dead, settings)

    def close(self) -> None:
        """Wait `CLOSE_WAIT_S` at most for polls that were left behind, then give connections back."""
        for poll in self._abandoned:
            poll.join(CLOSE_WAIT_S)
        self._closed.set()
        if not any(poll.is_alive() for poll in self._abandoned):
            self._polls.close()
            self._calls.close()
