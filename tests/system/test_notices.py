"""Whoever waits for a document is told how it ended: the real daemon and sweep, over real HTTP, a fake engine."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from daemon.emulator import CREDENTIALS, Emulated
from daemon.errors import ExitStatus
from tests.system.daemon_process import daemon, environment
from tests.system.test_parent_deaths import FAKE
from tests.system.test_sweep import bulkhead

pytestmark = [pytest.mark.aws, pytest.mark.process]


def upload(aws: Emulated, folder: Path, name: str, text: str) -> str:
    """A document, and its message; its URI."""
    (folder / name).write_text(f"%PDF-1.4\n{text}\n", encoding="ascii")
    aws.upload(folder / name)
    return f"s3://{aws.bucket}/inbox/{name}"


def told(aws: Emulated, url: str, number: int) -> list[dict[str, Any]]:
    """So many notices, as they come; one at a time, so that a FIFO queue's order shows."""
    found: list[dict[str, Any]] = []
    while len(found) < number:
        answer = aws.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=20)
        (message,) = answer["Messages"]
        found.append(json.loads(message["Body"]))
        aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


@pytest.mark.parametrize("ledger", ["sqlite", "dynamodb"])
def test_every_end_is_told(aws: Emulated, tmp_path: Path, ledger: str) -> None:
    """Converted, failed, parked; first nobody listens, which delays no document, is said once, and loses nothing."""
    state = tmp_path / "state"
    url = f"{aws.endpoint_url}/123456789012/ends.fifo"
    settings = {
        "NOTICES__DESTINATION": url,
        "NOTICES__ENDPOINT_URL": aws.endpoint_url,
        "NOTICES__REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
    }
    if ledger == "dynamodb":
        settings |= {"LEDGER__TABLE": "bulkhead-test", "LEDGER__ENDPOINT_URL": aws.endpoint_url}
        settings |= {"LEDGER__REGION": CREDENTIALS["AWS_DEFAULT_REGION"]}
        assert bulkhead(aws, state, "ledger", "create", **settings).returncode == ExitStatus.DONE
    good = upload(aws, tmp_path, "good.pdf", "this is fine")
    locked = upload(aws, tmp_path, "locked.pdf", "encrypted")
    with daemon(environment(aws, state, **settings), FAKE) as running:
        assert running.wait_for("attempt.settled", uri=good)["status"] == "converted"
        assert running.wait_for("attempt.settled", uri=locked)["cause"] == "encrypted"
        running.wait_for("notices.unreachable")
        status = json.loads(bulkhead(aws, state, "status", "--json", **settings).stdout)
        assert status["notices"]["waiting"] == 2
        created = aws.sqs.create_queue(QueueName="ends.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        assert created == url
        running.wait_for("notices.resumed")
        assert bulkhead(aws, state, "sweep", **settings).returncode == ExitStatus.DONE
        found = told(aws, url, 3)
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
        assert sum(line["event"] == "notices.unreachable" for line in running.lines) == 1
    ends = [(notice["uri"], notice["state"], notice["cause"]) for notice in found]
    assert sorted(ends[:2]) == [(good, "converted", "converted"), (locked, "failed", "encrypted")]
    assert ends[2] == (locked, "parked", "encrypted")
    (published,) = [notice for notice in found if notice["state"] == "converted"]
    key = published["manifest"].removeprefix(f"s3://{aws.bucket}/")
    manifest = json.loads(aws.s3.get_object(Bucket=aws.bucket, Key=key)["Body"].read())
    assert manifest["status"] == "converted"
    assert json.loads(bulkhead(aws, state, "status", "--json", **settings).stdout)["notices"] is None


def test_a_sweep_tells_without_a_daemon(aws: Emulated, tmp_path: Path) -> None:
    """The daemon is down for the night: what the sweep parks and what the daemon could not send goes out."""
    state = tmp_path / "state"
    url = aws.sqs.create_queue(QueueName="ends.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    settings = {
        "NOTICES__DESTINATION": url,
        "NOTICES__REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
    }
    locked = upload(aws, tmp_path, "locked.pdf", "encrypted")
    nowhere = {"NOTICES__ENDPOINT_URL": "http://127.0.0.1:9"}
    with daemon(environment(aws, state, **settings, **nowhere), FAKE) as running:
        running.wait_for("attempt.settled", uri=locked)
        running.wait_for("notices.unreachable")
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
    settings["NOTICES__ENDPOINT_URL"] = aws.endpoint_url
    swept = bulkhead(aws, state, "sweep", "--json", **settings)
    assert json.loads(swept.stdout.splitlines()[-1])["swept"] == {"parked": 1, "alerted": 1, "published": 2}
    assert [notice["state"] for notice in told(aws, url, 2)] == ["failed", "parked"]
