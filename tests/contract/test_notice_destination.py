"""Where notices go, over real HTTP to an embedded SQS and SNS: plain and FIFO, there and not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from daemon.config import load
from daemon.config_recovery import NoticesSettings
from daemon.errors import ConfigurationError, WorldError
from daemon.model import Cause
from daemon.notice import Notice, NoticeState
from daemon.notice_destination import AwsDestination
from tests.aws import REGION

AT = datetime(2026, 3, 1, tzinfo=UTC)


def notice(document_id: str = "doc-1", sequence: int = 2) -> Notice:
    """One that is easily recognised."""
    body = json.dumps({"document_id": document_id, "sequence": sequence})
    return Notice(document_id=document_id, sequence=sequence, state=NoticeState.CONVERTED, at=AT, body=body)


@pytest.fixture
def clients(moto_endpoint: str) -> Iterator[tuple[Any, Any]]:
    """Of SQS and SNS."""
    made = [boto3.client(name, endpoint_url=moto_endpoint, region_name=REGION) for name in ("sqs", "sns")]
    yield made[0], made[1]
    for client in made:
        client.close()


def destination(name: str, endpoint: str) -> AwsDestination:
    """Ours."""
    return AwsDestination(NoticesSettings(destination=name, endpoint_url=endpoint, region=REGION))


def queue(sqs: Any, *, fifo: bool) -> str:
    """A new queue's URL."""
    attributes = {"FifoQueue": "true"} if fifo else {}
    return str(sqs.create_queue(QueueName="ends.fifo" if fifo else "ends", Attributes=attributes)["QueueUrl"])


def arrived(sqs: Any, url: str) -> list[dict[str, Any]]:
    """All that lies in it."""
    found: list[dict[str, Any]] = []
    asked = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"], "AttributeNames": ["All"]}
    while batch := sqs.receive_message(QueueUrl=url, **asked).get("Messages"):
        for message in batch:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        found += batch
    return found


@pytest.mark.aws
@pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
def test_a_queue(clients: tuple[Any, Any], moto_endpoint: str, fifo: bool) -> None:  # noqa: FBT001
    """Body and attributes; in a FIFO queue the document is the group, and a copy is swallowed."""
    sqs, _ = clients
    url = queue(sqs, fifo=fifo)
    with closing(destination(url, moto_endpoint)) as ends:
        for each in (notice(), notice(), notice(sequence=3), notice("doc-2")):
            ends.publish(each)
    found = arrived(sqs, url)
    attributes = {name: value["StringValue"] for name, value in found[0]["MessageAttributes"].items()}
    assert attributes == {"state": "converted", "document_id": "doc-1"}
    told = [(json.loads(message["Body"])["document_id"], json.loads(message["Body"])["sequence"]) for message in found]
    if fifo:
        assert sorted(told) == [("doc-1", 2), ("doc-1", 3), ("doc-2", 2)]
        assert found[0]["Attributes"]["MessageGroupId"] == "doc-1"
    else:
        assert sorted(told) == [("doc-1", 2), ("doc-1", 2), ("doc-1", 3), ("doc-2", 2)]


@pytest.mark.aws
@pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
def test_a_topic(clients: tuple[Any, Any], moto_endpoint: str, fifo: bool) -> None:  # noqa: FBT001
    """A subscriber's filter sees the state; the message is the same."""
    sqs, sns = clients
    attributes = {"FifoTopic": "true"} if fifo else {}
    topic = sns.create_topic(Name="ends.fifo" if fifo else "ends", Attributes=attributes)["TopicArn"]
    url = queue(sqs, fifo=fifo)
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    raw = {"RawMessageDelivery": "true", "FilterPolicy": json.dumps({"state": ["converted"]})}
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=raw)
    with closing(destination(topic, moto_endpoint)) as ends:
        ends.publish(notice())
    (message,) = arrived(sqs, url)
    assert message["Body"] == notice().body


@pytest.mark.aws
@pytest.mark.parametrize("name", ["http://HOST/123456789012/gone", f"arn:aws:sns:{REGION}:123456789012:gone"])
def test_nobody_there(moto_endpoint: str, name: str) -> None:
    """A queue or topic that does not exist is the world's: it is said, and tried again."""
    host = moto_endpoint.removeprefix("http://")
    with closing(destination(name.replace("HOST", host), moto_endpoint)) as ends:
        for _ in range(2):
            with pytest.raises(WorldError, match="cannot publish a notice to") as raised:
                ends.publish(notice())
            assert raised.value.cause is Cause.QUEUE_UNAVAILABLE


def test_an_endpoint_that_refuses(aws_environment: None) -> None:
    """No connection: the same, within seconds."""
    ends = destination("http://127.0.0.1:9/1/ends", "http://127.0.0.1:9")
    with closing(ends), pytest.raises(WorldError, match="look at the destination"):
        ends.publish(notice())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "https://sqs.eu-central-1.amazonaws.com/123456789012/ends.fifo",
        "arn:aws:sns:eu-central-1:123456789012:ends",
        "arn:aws-cn:sns:cn-north-1:123456789012:ends.fifo",
    ],
)
def test_a_good_name(name: str) -> None:
    """Queues by URL, topics by ARN."""
    assert load(environ={}, notices__destination=name).notices.destination == name


@pytest.mark.parametrize(
    "name", ["ends", "arn:aws:sqs:eu-central-1:123456789012:ends", "arn:aws:sns:eu-central-1:ends", "sns://ends"]
)
def test_a_wrong_name(name: str) -> None:
    """Refused at start with what to write."""
    with pytest.raises(ConfigurationError, match="topic's ARN"):
        load(environ={}, notices__destination=name)
