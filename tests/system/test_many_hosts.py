"""Hosts that share a queue, a bucket and a DynamoDB table: real daemons with a fake engine, real HTTP, real deaths."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.emulator import Emulated
from daemon.errors import ExitStatus
from tests.system.daemon_process import NET_S, DaemonProcess, daemon, environment
from tests.system.test_daemon import dead_letters, depth
from tests.system.test_parent_deaths import FAKE, upload
from tests.system.test_sweep import bulkhead

pytestmark = [pytest.mark.aws, pytest.mark.process]


def told(aws: Emulated, state: Path, *arguments: str, **settings: str) -> list[dict[str, object]]:
    """The JSON lines of a command that must succeed."""
    result = bulkhead(aws, state, *arguments, "--json", **settings)
    assert result.returncode == ExitStatus.DONE, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def shared(aws: Emulated) -> dict[str, str]:
    """What all hosts set, beside queue and store."""
    own = {name.removeprefix("BULKHEAD_"): value for name, value in aws.ledger().items()}
    return own | {"STORE__CHECKPOINTS_URL": f"s3://{aws.bucket}/checkpoints"}


def settled_by(running: DaemonProcess) -> list[str]:
    """URIs of the documents that this daemon ended, in order."""
    return [line["uri"] for line in list(running.lines) if line["event"] == "attempt.settled"]


def await_empty(aws: Emulated) -> None:
    """Return when the queue holds nothing, visible or not."""
    clock = SystemClock()
    deadline = clock.monotonic() + NET_S
    while depth(aws) != (0, 0):
        assert clock.monotonic() < deadline, depth(aws)
        threading.Event().wait(0.2)


def stopped(running: DaemonProcess) -> None:
    """Let it drain."""
    running.send(signal.SIGTERM)
    assert running.left_with() == 0, running.lines[-5:]


def test_every_command_on_a_shared_ledger(aws: Emulated, shared: dict[str, str], tmp_path: Path) -> None:
    """A message becomes a result, a hopeless one is parked, and each command finds it, on a host that has no file."""
    uri, locked = upload(aws, tmp_path, "good.pdf"), f"s3://{aws.bucket}/inbox/gone.pdf"
    aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody=json.dumps({"uri": locked, "id": "gone"}))
    with daemon(environment(aws, tmp_path / "one", **shared), FAKE) as running:
        assert running.wait_for("attempt.settled", uri=uri)["status"] == "converted"
        assert running.wait_for("attempt.settled", uri=locked)["cause"] == "source_missing"
        stopped(running)
    assert not (tmp_path / "one" / "ledger.db").exists()
    other = tmp_path / "two"
    other.mkdir()
    (status,) = told(aws, other, "status", **shared)
    assert status["documents"] == {"running": 0, "waiting": 0, "converted": 1, "partial": 0, "failed": 1}
    (story,) = told(aws, other, "explain", uri, **shared)
    assert isinstance(story["attempts"], list)
    assert [each["attempt"] for each in story["attempts"]] == [1]
    assert told(aws, other, "sweep", **shared)[-1]["swept"] == {"parked": 1, "alerted": 1}
    (entry,) = told(aws, other, "parked", "list", **shared)
    assert (entry["key"], entry["cause"]) == ("gone", "source_missing")
    assert told(aws, other, "audit", **shared) == []
    upload(aws, tmp_path, "gone.pdf")
    assert told(aws, other, "parked", "retry", "gone", **shared) == [{"did": "retried", "key": "gone"}]
    assert told(aws, other, "requeue", uri, **shared)
    with daemon(environment(aws, other, **shared), FAKE) as running:
        running.wait_until(lambda _: len(settled_by(running)) == 3)
        stopped(running)
        assert Counter(settled_by(running))[uri] == 1
    (status,) = told(aws, other, "status", **shared)
    assert status["documents"] == {"running": 0, "waiting": 0, "converted": 3, "partial": 0, "failed": 0}
    assert told(aws, other, "audit", **shared) == []
    assert depth(aws) == (0, 0)


def test_two_daemons_convert_nothing_twice(aws: Emulated, shared: dict[str, str], tmp_path: Path) -> None:
    """Each document is delivered twice, to whoever is faster: one converts it, and both take part."""
    slow = {"ALLOW_FAILPOINTS": "true", "FAILPOINTS": "child.page@page=1=sleep:0.3"}
    uris = [upload(aws, tmp_path, f"doc-{number}.pdf") for number in range(10)]
    for number in range(10):
        upload(aws, tmp_path, f"doc-{number}.pdf")
    one_env = environment(aws, tmp_path / "one", **shared, **slow)
    two_env = environment(aws, tmp_path / "two", **shared, **slow)
    with daemon(one_env, (*FAKE, "one")) as one, daemon(two_env, (*FAKE, "two")) as two:
        one.wait_for("daemon.ready")
        two.wait_for("daemon.ready")
        await_empty(aws)
        for running in (one, two):
            stopped(running)
        ended = settled_by(one) + settled_by(two)
        assert Counter(ended) == Counter(uris)
        assert settled_by(one)
        assert settled_by(two)
    assert told(aws, tmp_path / "one", "audit", **shared) == []
    assert dead_letters(aws) == []


def test_a_dead_hosts_document_goes_on_elsewhere(aws: Emulated, shared: dict[str, str], tmp_path: Path) -> None:
    """SIGKILL to a parent in mid-document: another host goes on with its finished pages when the lease is over."""
    stays = {"LOG__LEVEL": "debug", "ALLOW_FAILPOINTS": "true", "FAILPOINTS": "child.page@page=3,attempt=1=hang"}
    uri = upload(aws, tmp_path, "long.pdf")
    with daemon(environment(aws, tmp_path / "one", **shared, **stays), (*FAKE, "one")) as one:
        one.wait_for("page.finished", page=2)
        one.send(signal.SIGKILL)
        assert one.left_with() == -signal.SIGKILL
    with daemon(environment(aws, tmp_path / "two", **shared, LOG__LEVEL="debug"), (*FAKE, "two")) as two:
        assert two.wait_for("attempt.settled", uri=uri)["status"] == "converted"
        stopped(two)
        assert not [line for line in two.lines if line["event"] == "lease.broken"], "another host's"
        assert [line["page"] for line in two.lines if line["event"] == "page.finished"] == [3]
    (story,) = told(aws, tmp_path / "two", "explain", uri, **shared)
    attempts = story["attempts"]
    assert isinstance(attempts, list)
    first, second = attempts
    assert (first["host"], second["host"]) == ("one", "two")
    assert [child["cause"] for child in first["children"]] == ["parent_died"]
    assert told(aws, tmp_path / "two", "audit", **shared) == []
