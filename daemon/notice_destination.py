"""Where notices go: an SQS queue or an SNS topic, plain or FIFO.

Edge. Rules: no retries of its own, since whoever publishes has all the time that there is; a call is short; whatever
stands in the way is the world's, and is said with what to look at. A FIFO destination gets the document as its group,
so that it keeps the order too, and the notice's key against copies.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from daemon.aws_errors import FIRST_CALL_ERRORS, insist_on_whole_answers, is_credentials
from daemon.config_recovery import NoticesSettings
from daemon.errors import WorldError
from daemon.model import Cause
from daemon.notice import Notice

if TYPE_CHECKING:
    from mypy_boto3_sns.client import SNSClient
    from mypy_boto3_sqs.client import SQSClient

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 5.0


class AwsDestination:
    """The queue or topic that the settings name."""

    def __init__(self, settings: NoticesSettings) -> None:
        self._settings = settings
        self._is_topic = settings.destination.startswith("arn:")
        self._is_fifo = settings.destination.endswith(".fifo")
        self._lock = threading.Lock()
        self._client: Any = None

    def publish(self, notice: Notice) -> None:
        """Return when SQS or SNS has confirmed the notice. Raises `WorldError(QUEUE_UNAVAILABLE)`."""
        attributes: dict[str, Any] = {
            name: {"DataType": "String", "StringValue": value}
            for name, value in (("state", str(notice.state)), ("document_id", notice.document_id))
        }
        ordered: Any = (
            {"MessageGroupId": notice.document_id, "MessageDeduplicationId": notice.key} if self._is_fifo else {}
        )
        where = self._settings.destination
        try:
            if self._is_topic:
                sns: SNSClient = self._connected()
                sns.publish(TopicArn=where, Message=notice.body, MessageAttributes=attributes, **ordered)
            else:
                sqs: SQSClient = self._connected()
                sqs.send_message(QueueUrl=where, MessageBody=notice.body, MessageAttributes=attributes, **ordered)
        except FIRST_CALL_ERRORS as error:
            if is_credentials(error):
                self.close()  # looked up again, for the next try
            detail = f"cannot publish a notice to {where}: {error}; look at the destination, its policy and credentials"
            raise WorldError(Cause.QUEUE_UNAVAILABLE, detail) from error

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                config = Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                    tcp_keepalive=True,
                )
                region = self._settings.region or _region_in(self._settings.destination)
                session = boto3.session.Session(region_name=region)
                service: Any = "sns" if self._is_topic else "sqs"
                self._client = session.client(service, endpoint_url=self._settings.endpoint_url, config=config)
                insist_on_whole_answers(self._client)
            return self._client

    def close(self) -> None:
        """Give connections back."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _region_in(destination: str) -> str | None:
    """The region that a topic's ARN, or AWS's own queue URL, bears; None for any other, where the SDK chooses."""
    if destination.startswith("arn:"):
        return destination.split(":")[3] or None
    match destination.removeprefix("https://").split("/")[0].split("."):
        case ["sqs", region, "amazonaws", *_]:
            return region
    return None
