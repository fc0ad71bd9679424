"""An embedded SQS and S3, and on request a DynamoDB, on loopback, for `bulkhead demo`, benches and tests.

Edge. moto's server in a process of its own, spoken to over real HTTP; it holds nothing after it has ended.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3

from daemon import dynamodb_table
from daemon.clock import SystemClock
from daemon.errors import WorldError
from daemon.model import Cause

#: moto wants some; they open nothing.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "eu-central-1",
}
_START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """A queue with its dead-letter queue, and a bucket."""

    endpoint_url: str
    queue_url: str
    dead_letter_url: str
    bucket: str
    s3: Any
    sqs: Any

    def settings(self) -> dict[str, str]:
        """The environment in which a daemon uses what is emulated here."""
        return CREDENTIALS | {
            "BULKHEAD_QUEUE__URL": self.queue_url,
            "BULKHEAD_QUEUE__DEAD_LETTER_URL": self.dead_letter_url,
            "BULKHEAD_QUEUE__ENDPOINT_URL": self.endpoint_url,
            "BULKHEAD_QUEUE__REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
            "BULKHEAD_STORE__URL": f"s3://{self.bucket}/results",
            "BULKHEAD_STORE__ENDPOINT_URL": self.endpoint_url,
            "BULKHEAD_STORE__REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
        }

    def ledger(self, table: str = "bulkhead-ledger") -> dict[str, str]:
        """Make a table for a ledger that hosts share; the environment in which a daemon uses it, beside `settings`."""
        db = _client("dynamodb", self.endpoint_url)
        db.create_table(**dynamodb_table.definition(table))
        specification = {"AttributeName": dynamodb_table.TTL, "Enabled": True}
        db.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)
        return {
            "BULKHEAD_LEDGER__TABLE": table,
            "BULKHEAD_LEDGER__ENDPOINT_URL": self.endpoint_url,
            "BULKHEAD_LEDGER__REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
        }

    def upload(self, path: Path) -> str:
        """Put a file into the bucket's inbox and send the event that S3 would send; returns its ETag."""
        key = f"inbox/{path.name}"
        etag = str(self.s3.put_object(Bucket=self.bucket, Key=key, Body=path.read_bytes())["ETag"]).strip('"')
        entity = {"bucket": {"name": self.bucket}, "object": {"key": key, "size": path.stat().st_size, "eTag": etag}}
        record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventVersion": "2.1", "s3": entity}
        self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps({"Records": [record]}))
        return etag


def available() -> bool:
    """Whether moto's server is installed (the extra `demo`)."""
    return find_spec("moto") is not None and find_spec("flask") is not None


@contextmanager
def emulated(log_file: Path) -> Iterator[Emulated]:
    """Start the server, make queues and bucket; ended on leaving.

    Raises `WorldError(QUEUE_UNAVAILABLE)` when the server does not answer in time; `log_file` says why.
    """
    port = _free_port()
    with log_file.open("ab") as output:
        server = subprocess.Popen(  # noqa: S603 - our own interpreter, fixed arguments
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | CREDENTIALS,
        )
    try:
        _await_answer(server, port, log_file)
        yield _made(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_answer(server: subprocess.Popen[bytes], port: int, log_file: Path) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _START_TIMEOUT_S
    while clock.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            threading.Event().wait(0.05)
        else:
            return
    raise WorldError(Cause.QUEUE_UNAVAILABLE, f"cannot start the embedded SQS and S3: see {log_file}")


def _client(service: str, endpoint_url: str) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=endpoint_url,
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


def _made(endpoint_url: str) -> Emulated:
    sqs, s3, bucket = _client("sqs", endpoint_url), _client("s3", endpoint_url), "bulkhead-demo"
    region = {"LocationConstraint": CREDENTIALS["AWS_DEFAULT_REGION"]}
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=region)
    dead = _queue(sqs, "documents-dead", {"MessageRetentionPeriod": "1209600"})
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "50"})
    queue = _queue(sqs, "documents", {"RedrivePolicy": redrive, "MessageRetentionPeriod": "345600"})
    return Emulated(endpoint_url=endpoint_url, queue_url=queue, dead_letter_url=dead, bucket=bucket, s3=s3, sqs=sqs)


def _queue(sqs: Any, name: str, attributes: Mapping[str, str]) -> str:
    return str(sqs.create_queue(QueueName=name, Attributes=dict(attributes))["QueueUrl"])
