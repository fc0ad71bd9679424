"""The CloudFormation template, made real: its queues are as the daemon wants them, and its policy is enough to work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from daemon.emulator import CREDENTIALS, Emulated
from tests.system.daemon_process import NET_S, daemon, environment

pytestmark = [pytest.mark.engine, pytest.mark.aws, pytest.mark.process]

TEMPLATE = Path(__file__).parents[2] / "deploy" / "aws" / "bulkhead.yaml"
INCOMING, RESULTS = "example-incoming", "example-results"
#: Everything optional is there: moto does not leave a statement out whose condition is false.
PARAMETERS = {
    "IncomingBucketName": INCOMING,
    "ResultsBucketName": RESULTS,
    "CheckpointsPrefix": "checkpoints",
    "LedgerTableName": "example-ledger",
    "NoticesArn": "arn:aws:sqs:us-east-1:123456789012:example-notices",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What the template made, and two sets of keys: what a host has, and what may do everything."""

    aws: Emulated
    queue_url: str
    dead_letter_url: str
    worker: Mapping[str, str]
    admin: Mapping[str, str]

    def client(self, service: str, keys: Mapping[str, str]) -> Any:
        """A client with these keys."""
        return _client(self.aws, service, keys)

    def settings(self, state: Path) -> dict[str, str]:
        """The environment of a daemon with a host's keys."""
        return environment(
            self.aws,
            state,
            QUEUE__URL=self.queue_url,
            QUEUE__VISIBILITY_S="30",
            QUEUE__DEAD_LETTER_URL=self.dead_letter_url,
            STORE__URL=f"s3://{RESULTS}/markdown",
            STORE__CHECKPOINTS_URL=f"s3://{RESULTS}/checkpoints",
        ) | {name.upper(): value for name, value in self.worker.items()}


def _client(aws: Emulated, service: str, keys: Mapping[str, str]) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=aws.endpoint_url,
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        **keys,
    )


def _user(iam: Any, name: str) -> dict[str, str]:
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}


@pytest.fixture
def stack(aws: Emulated) -> Stack:
    """The stack, in an AWS that from then on refuses what no policy allows."""
    anyone = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    made, iam, sqs = (_client(aws, name, anyone) for name in ("cloudformation", "iam", "sqs"))
    given = [{"ParameterKey": name, "ParameterValue": value} for name, value in PARAMETERS.items()]
    made.create_stack(
        StackName="bulkhead", TemplateBody=TEMPLATE.read_text(), Parameters=given, Capabilities=["CAPABILITY_IAM"]
    )
    resources = made.describe_stack_resources(StackName="bulkhead")["StackResources"]
    names = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources if "LogicalResourceId" in each}
    queues = [
        sqs.get_queue_url(QueueName=names[name].rpartition("/")[2])["QueueUrl"] for name in ("Queue", "DeadLetterQueue")
    ]
    worker, admin = _user(iam, "worker"), _user(iam, "admin")
    iam.attach_user_policy(UserName="worker", PolicyArn=names["WorkerPolicy"])
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=json.dumps(everything))
    request = urllib.request.Request(  # noqa: S310 - our own loopback server
        f"{aws.endpoint_url}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}, method="POST"
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30):
        pass
    return Stack(aws=aws, queue_url=queues[0], dead_letter_url=queues[1], worker=worker, admin=admin)


def bulkhead(stack: Stack, state: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a command prints; it must have found nothing to complain of."""
    ended = subprocess.run(
        [sys.executable, "-m", "daemon", *arguments, "--json"],
        env=stack.settings(state), capture_output=True, text=True, check=False, timeout=NET_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_host_with_this_policy_can_work(stack: Stack, samples: Path, tmp_path: Path) -> None:
    """From an object to Markdown, from a broken one to a dead letter and into the ledger; with every doctor content."""
    s3, sqs = (stack.client(name, stack.admin) for name in ("s3", "sqs"))
    for name in ("letter.pdf", "encrypted.pdf"):
        s3.put_object(Bucket=INCOMING, Key=name, Body=(samples / name).read_bytes())
        sqs.send_message(QueueUrl=stack.queue_url, MessageBody=f"s3://{INCOMING}/{name}")
    with daemon(stack.settings(tmp_path)) as running:
        letter = running.wait_for("attempt.settled", uri=f"s3://{INCOMING}/letter.pdf")
        running.wait_for("attempt.settled", uri=f"s3://{INCOMING}/encrypted.pdf", cause="encrypted")
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
    assert letter["status"] == "converted"
    assert "s3:" in letter["manifest"]
    bulkhead(stack, tmp_path, "sweep")
    assert [row["cause"] for row in bulkhead(stack, tmp_path, "parked", "list")] == ["encrypted"]
    bulkhead(stack, tmp_path, "audit")
    told = bulkhead(stack, tmp_path, "doctor")
    assert {row["verdict"] for row in told if row["check"] in {"queue", "store"}} == {"good"}, told


def test_a_host_with_this_policy_can_do_no_more(stack: Stack) -> None:
    """What was put in is not a host's to change, nor what lies beside the results, nor the queues themselves."""
    s3, sqs = (stack.client(name, stack.worker) for name in ("s3", "sqs"))
    refused: tuple[Callable[[], Any], ...] = (
        lambda: s3.put_object(Bucket=INCOMING, Key="letter.pdf", Body=b""),
        lambda: s3.delete_object(Bucket=INCOMING, Key="letter.pdf"),
        lambda: s3.put_object(Bucket=RESULTS, Key="elsewhere/document.md", Body=b""),
        lambda: s3.delete_bucket(Bucket=RESULTS),
        lambda: sqs.purge_queue(QueueUrl=stack.queue_url),
        lambda: sqs.set_queue_attributes(QueueUrl=stack.queue_url, Attributes={"VisibilityTimeout": "1"}),
        lambda: sqs.send_message(QueueUrl=stack.aws.queue_url, MessageBody="another queue's"),
    )
    for call in refused:
        with pytest.raises(ClientError, match=r"AccessDenied|403"):
            call()
