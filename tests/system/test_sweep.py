"""`bulkhead sweep` as a timer runs it, on an SQS and an S3 over real HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.config_queue import QueueSettings
from daemon.emulator import Emulated
from daemon.errors import ExitStatus
from daemon.ledger_sqlite import SqliteLedger
from daemon.lock import instance_lock
from daemon.model import Cause
from daemon.queue import DeadLetter
from daemon.sqs import SqsQueue
from tests.contract.ledger_contract import claimed, converted, document, failed
from tests.system.daemon_process import NET_S, environment
from tests.unit.test_alerts import Endpoint

pytestmark = [pytest.mark.aws, pytest.mark.process]


def bulkhead(aws: Emulated, state: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "daemon", *arguments],
        env=environment(aws, state, **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NET_S,
        check=False,
    )


def given_up(aws: Emulated, state: Path, **causes: Cause) -> None:
    """Documents as a daemon leaves them: settled as failed, with a dead letter each."""
    state.mkdir()
    ledger = SqliteLedger.open(state / "ledger.db")
    settings = QueueSettings(
        url=aws.queue_url, dead_letter_url=aws.dead_letter_url, endpoint_url=aws.endpoint_url, region="eu-central-1"
    )
    queue = SqsQueue(settings, clock=SystemClock())
    for name, cause in causes.items():
        attempt = claimed(ledger, document(name), now=datetime.now(UTC)).attempt
        letter = DeadLetter(body="as it came", cause=cause, detail="why", document_id=name, attempts=attempt.number)
        queue.dead_letter(letter)
        ledger.settle(attempt, failed(attempt))
    queue.close()
    ledger.close()


@pytest.fixture(autouse=True)
def _credentials(aws_environment: None) -> None:
    """The test's own client needs some."""


def test_one_sweep(aws: Emulated, tmp_path: Path) -> None:
    """What may pass goes back with a delay, what may not is parked and told once; nothing is left in the queue."""
    state = tmp_path / "state"
    given_up(aws, state, shaky=Cause.CRASHED, locked=Cause.ENCRYPTED)
    result = bulkhead(aws, state, "sweep", "--json", METRICS__TEXTFILE_DIR=str(tmp_path))
    assert result.returncode == ExitStatus.DONE, result.stderr
    figures = (tmp_path / "bulkhead_sweep.prom").read_text().splitlines()
    assert {'bulkhead_sweep_done{what="reclaimed"} 1.0', 'bulkhead_parked{cause="encrypted"} 1.0'} <= set(figures)
    assert (tmp_path / "bulkhead_sweep_success.prom").exists()
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert told[-1] == {"swept": {"reclaimed": 1, "parked": 1, "alerted": 1}, "dry_run": False}
    errors = [json.loads(line) for line in result.stderr.splitlines() if '"document.parked"' in line]
    assert [(line["level"], line["cause"], line["documents"]) for line in errors] == [("error", "encrypted", "locked")]
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
    ]
    depths = [
        [int(aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"][name]) for name in names]
        for url in (aws.queue_url, aws.dead_letter_url)
    ]
    assert depths == [[0, 1, 0], [0, 0, 0]]
    again = bulkhead(aws, state, "sweep")
    assert (again.returncode, again.stdout) == (ExitStatus.DONE, "nothing to do\n")


def test_a_sweep_checks_in_with_sentry(aws: Emulated, tmp_path: Path) -> None:
    """One that stops running is an alert: each real one says that it began and how it ended, a dry one says nothing."""
    state, endpoint = tmp_path / "state", Endpoint()
    given_up(aws, state, locked=Cause.ENCRYPTED)
    sentry = {"SENTRY__DSN": endpoint.settings.dsn.get_secret_value(), "SENTRY__SWEEP_MONITOR": "sweeps"}
    try:
        assert bulkhead(aws, state, "sweep", **sentry).returncode == ExitStatus.DONE
        began, (event, _), ended = endpoint.check_in(), endpoint.event(), endpoint.check_in()
        assert event["tags"]["event"] == "document.parked"
        assert [(each["monitor_slug"], each["status"]) for each in (began, ended)] == [
            ("sweeps", "in_progress"), ("sweeps", "ok"),
        ]  # fmt: skip
        gone = bulkhead(aws, state, "sweep", **sentry, SWEEP__PREFIXES="s3://nowhere/in")
        assert gone.returncode == ExitStatus.RESOURCE, gone.stderr
        assert [endpoint.check_in()["status"] for _ in range(2)] == ["in_progress", "error"]
        assert bulkhead(aws, state, "sweep", "--dry-run", **sentry).returncode == ExitStatus.DONE
        assert endpoint.received.empty()
    finally:
        endpoint.close()


def test_a_document_without_a_message(aws: Emulated, tmp_path: Path) -> None:
    """Its event was lost; the next sweep enqueues it, once, and the one after that nothing."""
    state = tmp_path / "state"
    given_up(aws, state)
    aws.s3.put_object(Bucket=aws.bucket, Key="inbox/lost é.pdf", Body=b"%PDF-1.4")
    sweeps = {"SWEEP__PREFIXES": f"s3://{aws.bucket}/inbox/", "SWEEP__FORGOTTEN_AFTER_S": "0"}
    dry = bulkhead(aws, state, "sweep", "--dry-run", **sweeps)
    assert (dry.returncode, dry.stdout.splitlines()[-1]) == (ExitStatus.DONE, "would be done: 1 enqueued"), dry.stderr
    assert bulkhead(aws, state, "sweep", **sweeps).stdout.endswith("1 enqueued\n")
    assert bulkhead(aws, state, "sweep", **sweeps).stdout == "nothing to do\n"
    (message,) = aws.sqs.receive_message(QueueUrl=aws.queue_url, MaxNumberOfMessages=10)["Messages"]
    assert json.loads(message["Body"])["uri"] == f"s3://{aws.bucket}/inbox/lost é.pdf"


def test_parked_and_back(aws: Emulated, tmp_path: Path) -> None:
    """Listed, shown, sent back with its own id, dropped: all of it by the command line, with one object a line."""
    state = tmp_path / "state"
    given_up(aws, state, locked=Cause.ENCRYPTED, large=Cause.TOO_LARGE)
    assert bulkhead(aws, state, "sweep").returncode == ExitStatus.DONE
    listed = bulkhead(aws, state, "parked", "list", "--json", "--cause", "encrypted")
    assert [json.loads(line)["key"] for line in listed.stdout.splitlines()] == ["locked"]
    assert "large" in bulkhead(aws, state, "parked", "list").stdout
    shown = json.loads(bulkhead(aws, state, "parked", "show", "locked", "--json").stdout)
    assert (shown["cause"], shown["detail"], shown["document_id"]) == ("encrypted", "why", "locked")
    assert bulkhead(aws, state, "parked", "retry").returncode == ExitStatus.USAGE
    assert bulkhead(aws, state, "parked", "retry", "nobody").returncode == ExitStatus.RESOURCE
    assert bulkhead(aws, state, "parked", "retry", "locked").stdout == "retried locked\n"
    assert bulkhead(aws, state, "parked", "drop", "--cause", "too_large", "--json").stdout == (
        '{"did": "dropped", "key": "large"}\n'
    )
    assert bulkhead(aws, state, "requeue", "large").stdout == "requeued large\n"
    received = aws.sqs.receive_message(QueueUrl=aws.queue_url, MaxNumberOfMessages=10)["Messages"]
    assert sorted(json.loads(message["Body"])["id"] for message in received) == ["large", "locked"]
    assert bulkhead(aws, state, "parked", "list", "--json").stdout == ""


def test_what_an_upgrade_may_have_cured(aws: Emulated, tmp_path: Path) -> None:
    """After an upgrade the list says how many failed in another engine, and a retry can take just these."""
    state = tmp_path / "state"
    given_up(aws, state, old=Cause.ENCRYPTED, new=Cause.ENCRYPTED)
    assert bulkhead(aws, state, "sweep").returncode == ExitStatus.DONE
    assert "another engine" not in bulkhead(aws, state, "parked", "list").stdout
    ledger = SqliteLedger.open(state / "ledger.db")
    with ledger.file.write() as db:  # as a sweep of the release before would have written it
        db.execute("UPDATE parked SET build = 'bulkheadd 0.0.9, pymupdf 1.9' WHERE key = 'old'")
    ledger.close()
    listed = [json.loads(line) for line in bulkhead(aws, state, "parked", "list", "--json").stdout.splitlines()]
    assert {row["key"]: row["other_engine"] for row in listed} == {"old": True, "new": False}
    assert len({row["problem"] for row in listed}) == 2, "another engine is another problem"
    assert "1 of them failed in another engine" in bulkhead(aws, state, "parked", "list").stdout
    assert bulkhead(aws, state, "parked", "list", "--json", "--older-than", "1d").stdout == ""
    assert bulkhead(aws, state, "parked", "retry", "--other-engine").stdout == "retried old\n"
    (message,) = aws.sqs.receive_message(QueueUrl=aws.queue_url, MaxNumberOfMessages=10)["Messages"]
    assert json.loads(message["Body"])["id"] == "old"


def test_an_audit(aws: Emulated, tmp_path: Path) -> None:
    """Status 0 and silence when all agree; 1 and a line for each finding otherwise."""
    state = tmp_path / "state"
    given_up(aws, state, shaky=Cause.CRASHED)
    clean = bulkhead(aws, state, "audit", "--json")
    assert (clean.returncode, clean.stdout) == (ExitStatus.DONE, ""), clean.stderr
    ledger = SqliteLedger.open(state / "ledger.db")
    attempt = claimed(ledger, document("vanished"), now=datetime.now(UTC)).attempt
    ledger.settle(attempt, converted(attempt))
    ledger.close()
    found = bulkhead(aws, state, "audit", "--json", METRICS__TEXTFILE_DIR=str(tmp_path))
    figures = (tmp_path / "bulkhead_audit.prom").read_text().splitlines()
    assert {'bulkhead_audit_findings{check="not_published"} 1.0', 'bulkhead_audit_findings{check="lost"} 0.0'} <= set(
        figures
    )
    assert found.returncode == ExitStatus.DOCUMENT_FAILED
    (finding,) = [json.loads(line) for line in found.stdout.splitlines()]
    assert (finding["check"], finding["document_id"]) == ("not_published", "vanished")
    assert '"audit.failed"' in found.stderr


def test_a_second_sweep_at_the_same_time(aws: Emulated, tmp_path: Path) -> None:
    """It leaves with its own status and says who is at it; a daemon that runs is no hindrance."""
    state = tmp_path / "state"
    given_up(aws, state)
    with instance_lock(state / "sweep.lock"), instance_lock(state / "instance.lock"):
        result = bulkhead(aws, state, "sweep", METRICS__TEXTFILE_DIR=str(tmp_path))
        assert result.returncode == ExitStatus.ALREADY_RUNNING
        assert "sweep.lock is locked; pid " in result.stderr
        assert not (tmp_path / "bulkhead_sweep.prom").exists(), "the one that holds the lock writes the figures"
    with instance_lock(state / "instance.lock"):
        assert bulkhead(aws, state, "sweep").returncode == ExitStatus.DONE


def test_a_sweep_where_no_daemon_has_run(aws: Emulated, tmp_path: Path) -> None:
    """A wrong state_dir must not make an empty ledger in which every dead letter is unknown."""
    result = bulkhead(aws, tmp_path / "elsewhere", "sweep")
    assert result.returncode == ExitStatus.RESOURCE
    assert not (tmp_path / "elsewhere").exists()
