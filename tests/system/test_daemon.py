"""The daemon as it is run: a real process, real HTTP, the real engine, real deaths."""

from __future__ import annotations

import json
import os
import select
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from daemon.emulator import Emulated
from daemon.errors import ExitStatus
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause, ResultStatus
from daemon.samples import SAMPLES
from tests.system.daemon_process import NET_S, alive, daemon, environment, processes_below

pytestmark = [pytest.mark.engine, pytest.mark.aws, pytest.mark.process]


def published(aws: Emulated, document_id: str, name: str) -> bytes:
    """One artefact from the bucket."""
    body = aws.s3.get_object(Bucket=aws.bucket, Key=f"results/{document_id}/{name}")["Body"].read()
    assert isinstance(body, bytes)
    return body


def dead_letters(aws: Emulated) -> list[dict[str, Any]]:
    """Everything in the dead-letter queue."""
    found: list[dict[str, Any]] = []
    while batch := aws.sqs.receive_message(
        QueueUrl=aws.dead_letter_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    ).get("Messages"):
        found += batch
    return found


def depth(aws: Emulated) -> tuple[int, int]:
    """Messages visible and in flight on the queue."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = aws.sqs.get_queue_attributes(QueueUrl=aws.queue_url, AttributeNames=names)["Attributes"]
    return int(attributes[names[0]]), int(attributes[names[1]])


def figures(port: int) -> dict[str, float]:
    """What the daemon serves, by name and labels."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=NET_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_every_sample_ends_as_it_must(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """From S3's own events to Markdown with the right words, or to a dead letter with the right cause."""
    for sample in SAMPLES:
        aws.upload(samples / sample.name)
    env = environment(aws, tmp_path / "state", WORKERS="2", METRICS__LISTEN="127.0.0.1:0")
    with daemon(env) as running:
        settled = {}
        for sample in SAMPLES:
            uri = f"s3://{aws.bucket}/inbox/{sample.name}"
            settled[sample.name] = running.wait_for("attempt.settled", uri=uri)
        told = figures(running.wait_for("metrics.served")["port"])
        assert sum(value for name, value in told.items() if name.startswith("bulkhead_documents_total")) == len(SAMPLES)
        assert told["bulkhead_child_peak_bytes_count"] > len(SAMPLES) // 2, "some have no child"
        assert told["bulkhead_lines_uncounted_total"] == 0
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
    for sample in SAMPLES:
        line = settled[sample.name]
        assert (line["status"], line["cause"]) == (sample.status, sample.cause), sample.name
        if sample.status is ResultStatus.FAILED:
            continue
        assert line["pages"] == sample.pages, sample.name
        markdown = " ".join(published(aws, line["document_id"], "document.md").decode().split())
        assert sample.text is None or sample.text in markdown, sample.name
        manifest = json.loads(published(aws, line["document_id"], "manifest.json"))
        assert sum(manifest["pages_by_state"].values()) == sample.pages
        assert json.loads(published(aws, line["document_id"], "document.json"))["schema_name"] == "DoclingDocument"
    letters = dead_letters(aws)
    assert len(letters) == sum(sample.status is ResultStatus.FAILED for sample in SAMPLES)
    assert depth(aws) == (0, 0)


def test_killed_at_every_step(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """SIGKILL to the parent after every step, each with its own document: nothing is lost, nothing published twice."""
    points = {
        "letter.pdf": "parent.after_mark",
        "table.pdf": "parent.after_fetch",
        "two-columns.pdf": "parent.after_store",
        "accents.pdf": "parent.after_settle",
        "encrypted.pdf": "parent.after_dead_letter",
    }
    for name in points:
        aws.upload(samples / name)
    # Only the first attempt at each document dies, so that the second one can be watched.
    failpoints = ";".join(f"{point}@doc={name}*,attempt=1=kill" for name, point in points.items())
    # One at a time: a death must not end the first attempt of another document beside it.
    settings = {"WORKERS": "1", "AHEAD": "0", "QUEUE__VISIBILITY_S": "10", "ALLOW_FAILPOINTS": "true"}
    env = environment(aws, tmp_path / "state", **settings, FAILPOINTS=failpoints)
    ledger_path = tmp_path / "state" / "ledger.db"
    stored_once: dict[str, str] = {}
    deaths = 0
    while deaths <= len(points):
        with daemon(env) as running:
            line = running.wait_until(lambda _: depth(aws) == (0, 0) and _settled(ledger_path) == len(points))
            if line is not None:
                running.send(signal.SIGTERM)
                assert running.left_with() == 0
                break
            assert running.left_with() == -signal.SIGKILL
            deaths += 1
            _remember_manifests(aws, stored_once)
    assert deaths == len(points)
    _remember_manifests(aws, stored_once)
    ledger = SqliteLedger.open_read_only(ledger_path)
    try:
        for name in points:
            (document,) = ledger.find(f"s3://{aws.bucket}/inbox/{name}")
            settled = ledger.settled(document.id)
            assert settled is not None, name
            assert settled.status is (ResultStatus.FAILED if name == "encrypted.pdf" else ResultStatus.CONVERTED)
    finally:
        ledger.close()
    assert {json.loads(letter["Body"])["Records"][0]["s3"]["object"]["key"] for letter in dead_letters(aws)} == {
        "inbox/encrypted.pdf"
    }
    assert depth(aws) == (0, 0)


def _settled(ledger_path: Path) -> int:
    ledger = SqliteLedger.open_read_only(ledger_path)
    try:
        return sum(ledger.counts()[status] for status in ResultStatus)
    finally:
        ledger.close()


def _remember_manifests(aws: Emulated, seen: dict[str, str]) -> None:
    """A manifest, once there, never changes: published once."""
    for found in aws.s3.list_objects_v2(Bucket=aws.bucket, Prefix="results/").get("Contents", []):
        key = str(found["Key"])
        if key.endswith("manifest.json"):
            assert seen.setdefault(key, str(found["ETag"])) == found["ETag"], f"{key} was published twice"


def test_a_child_that_dies_costs_its_document_one_child(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """A SIGSEGV: a fresh child goes on, both are in the manifest, the parent's pid is unchanged."""
    aws.upload(samples / "letter.pdf")
    env = environment(aws, tmp_path / "state", ALLOW_FAILPOINTS="true", FAILPOINTS="child.page@page=1,child=1=segv")
    with daemon(env) as running:
        line = running.wait_for("attempt.settled")
        assert (line["status"], line["children"]) == ("converted", ["crashed on page 1 (full)", "converted"])
        died = running.wait_for("child.exited", cause="crashed")
        assert died["signal"] == "SIGSEGV"
        assert "Segmentation fault" in died["traceback"]
        manifest = json.loads(published(aws, line["document_id"], "manifest.json"))
        assert [child["signal"] for child in manifest["run"]["children"]] == ["SIGSEGV", None]
        assert alive(running.pid)


def test_sigterm_with_work_in_hand(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """The child hangs in native code: the parent leaves, the message is visible at once, nothing is left."""
    aws.upload(samples / "letter.pdf")
    env = environment(
        aws,
        tmp_path / "state",
        DRAIN_S="0.2",
        QUEUE__VISIBILITY_S="600",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page=hang",
    )
    with daemon(env) as running:
        running.wait_for("document.fetched")
        below = processes_below(running.pid)
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
        running.wait_for("message.released", cause="drained")
    assert depth(aws) == (1, 0)
    assert not any(alive(pid) for pid in below)
    assert not list((tmp_path / "state" / "scratch").iterdir())
    ledger = SqliteLedger.open_read_only(tmp_path / "state" / "ledger.db")
    try:
        (document,) = ledger.find("letter.pdf")
        assert [attempt.last_cause for attempt in ledger.attempts(document.id)] == [Cause.DRAINED]
    finally:
        ledger.close()


def test_a_killed_parent_takes_everything_with_it(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """SIGKILL to the parent while a child hangs, holding the GIL: zygote and child are gone too."""
    aws.upload(samples / "letter.pdf")
    env = environment(
        aws, tmp_path / "state", LOG__LEVEL="debug", ALLOW_FAILPOINTS="true", FAILPOINTS="child.page=hang"
    )
    with daemon(env) as running:
        running.wait_for("child.started")
        pidfds = [os.pidfd_open(pid) for pid in processes_below(running.pid)]
        assert len(pidfds) >= 2, "the zygote and the child"
        running.send(signal.SIGKILL)
        assert running.left_with() == -signal.SIGKILL
        for pidfd in pidfds:
            _wait_for_end(pidfd)
            os.close(pidfd)


def _wait_for_end(pidfd: int) -> None:
    assert select.select([pidfd], [], [], 20)[0], "a process outlived its parent"


def test_a_dead_zygote_is_replaced(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """SIGKILL to the zygote between two documents: the next one has a new zygote, and the parent stays."""
    with daemon(environment(aws, tmp_path / "state")) as running:
        first = running.wait_for("zygote.ready")
        running.wait_for("daemon.ready")
        os.kill(first["zygote_pid"], signal.SIGKILL)
        aws.upload(samples / "letter.pdf")
        line = running.wait_for("attempt.settled")
        assert line["status"] == "converted"
        assert alive(running.pid)


def test_a_second_daemon_is_refused(aws: Emulated, tmp_path: Path) -> None:
    """Two daemons on one state folder would fight over the ledger: the second names the first, and leaves."""
    env = environment(aws, tmp_path / "state")
    with daemon(env) as first:
        first.wait_for("daemon.ready")
        with daemon(env) as second:
            assert second.left_with() == ExitStatus.ALREADY_RUNNING
            assert any(str(first.pid) in str(line.get("text")) for line in second.lines)


@pytest.mark.parametrize(
    ("settings", "status", "words"),
    [
        ({"QUEUE__URL": ""}, ExitStatus.CONFIGURATION, "queue.url"),
        ({"QUEUE__WAIT_S": "60"}, ExitStatus.CONFIGURATION, "queue.wait_s"),
        ({"QUEUE__VISIBILTY_S": "60"}, ExitStatus.CONFIGURATION, "BULKHEAD_QUEUE__VISIBILTY_S"),
        ({"FAILPOINTS": "child.start=kill"}, ExitStatus.CONFIGURATION, "allow_failpoints"),
        ({"STORE__URL": "s3://there-is-no-such-bucket/x"}, ExitStatus.RESOURCE, "there-is-no-such-bucket"),
        ({"ENGINE__LANGUAGES": '["tlh"]'}, ExitStatus.ENGINE, "tlh"),
    ],
)
def test_a_refused_start(
    aws: Emulated, tmp_path: Path, settings: dict[str, str], status: ExitStatus, words: str
) -> None:
    """What a person must change first is one sentence on stderr and a status that says so; nothing was received."""
    aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody="s3://bucket/never.pdf")
    with daemon(environment(aws, tmp_path / "state", **settings)) as running:
        assert running.left_with() == status
        assert any(words in str(line) for line in running.lines), running.lines
        zygotes = [line["zygote_pid"] for line in running.lines if line["event"] == "zygote.started"]
        assert bool(zygotes) == (status in {ExitStatus.RESOURCE, ExitStatus.ENGINE}), "it loads while the rest is tried"
        assert not any(alive(pid) for pid in zygotes)
    assert depth(aws) == (1, 0)
