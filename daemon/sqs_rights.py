"""What this host may do with its queues, tried without harming a message.

Edge: SQS. Rules: a call is tried with a receipt that was never given, which SQS refuses for the receipt where it allows
the call; nothing is received from a queue that holds something, since that counts as a delivery; what cannot be tried
without harm is said to be untried and not to be good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from daemon.clock import Clock
from daemon.config_queue import QueueSettings
from daemon.errors import LeaseLostError
from daemon.sqs_calls import Calls, QueueDeniedError

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

#: No receipt of SQS looks like this.
_NO_RECEIPT = "bulkhead-doctor"
_READ_TIMEOUT_S = 10.0


class Rights:
    """One client, for as long as the doctor looks."""

    def __init__(self, settings: QueueSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._calls = Calls(settings, read_timeout_s=_READ_TIMEOUT_S)

    def close(self) -> None:
        """Give connections back."""
        self._calls.close()

    def skew_s(self) -> float | None:
        """How far this host's clock is ahead of SQS's, in seconds; None when the answer bears no date."""
        answer = self._call(
            "read the queue's clock",
            lambda client: client.get_queue_attributes(QueueUrl=self._settings.url, AttributeNames=["QueueArn"]),
        )
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        return (self._clock.now() - parsedate_to_datetime(date)).total_seconds() if date else None

    def missing(self, *, empty: bool) -> Iterator[str]:
        """A sentence for each right that is missing; `empty`: the queue holds nothing, so receiving harms nothing."""
        ours: dict[str, Callable[[SQSClient, str], object]] = {
            "sqs:ChangeMessageVisibility": _extend,
            "sqs:DeleteMessage": _delete,
        }
        if empty:
            ours["sqs:ReceiveMessage"] = _receive
        # A dead letter is taken out or left: nobody extends it.
        dead = {"sqs:DeleteMessage": _delete}
        queues = (
            ("the queue", self._settings.url, ours),
            ("the dead-letter queue", self._settings.dead_letter_url, dead),
        )
        for name, url, tried in queues:
            for right, request in tried.items():
                if url and self._is_denied(right, url, request):
                    yield f"{right} on {name} is not allowed; the policy in deploy/aws has all that is needed"

    def _is_denied(self, right: str, url: str, request: Callable[[SQSClient, str], object]) -> bool:
        try:
            self._call(f"try {right}", lambda client: request(client, url))
        except LeaseLostError:
            return False  # allowed, and refused for the receipt
        except QueueDeniedError:
            return True
        return False

    def _call(self, what: str, request: Callable[[SQSClient], Any]) -> Any:
        return self._calls.call(
            what, request, retry_for_s=self._settings.retry_for_s, ended=threading.Event(), receipt=True
        )


def _extend(client: SQSClient, url: str) -> object:
    return client.change_message_visibility(QueueUrl=url, ReceiptHandle=_NO_RECEIPT, VisibilityTimeout=0)


def _delete(client: SQSClient, url: str) -> object:
    return client.delete_message(QueueUrl=url, ReceiptHandle=_NO_RECEIPT)


def _receive(client: SQSClient, url: str) -> object:
    return client.receive_message(QueueUrl=url, MaxNumberOfMessages=1, VisibilityTimeout=0, WaitTimeSeconds=0)
