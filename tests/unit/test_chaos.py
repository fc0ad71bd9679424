"""The chaos run's own parts: what it draws, what it injects, what it holds against a run. Nothing is started here."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
import threading
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from bench import _chaos_trouble, chaos
from bench._chaos_documents import FAILPOINTS, UNPUBLISHABLE, Kind, tiny
from bench._chaos_faults import Fault, Faults, Service, refusal
from bench._chaos_hosts import Host
from bench._chaos_judge import Standings, bugs, rounds, write_down
from bench._chaos_places import keep_ledger, state_dir
from bench._chaos_proxy import Exchange, Record, Recorder
from bench._chaos_scene import Plan, trouble_of
from bench._chaos_trouble import Disk, Sweeps
from daemon import aws_errors, failpoints
from daemon.errors import ResourceError
from daemon.model import Attempt, Cause, Holder, Outcome
from daemon.spool import sniff

DEAD = "http://aws/1/documents-dead"
REFUSING = [Fault.THROTTLED, Fault.FAILED, Fault.EXPIRED, Fault.DONE_AND_FAILED]


def recorder() -> tuple[Record, Recorder]:
    """An empty record, and who writes it."""
    record = Record()
    return record, Recorder(record, results="/bucket/results/", dead_url=DEAD)


def sqs(operation: str, **fields: object) -> Exchange:
    """A request to SQS."""
    body = json.dumps({"QueueUrl": "http://aws/1/documents", **fields}).encode()
    return Exchange(service=Service.SQS, operation=operation, method="POST", path="/", headers={}, body=body)


def put(document_id: str, token: str) -> Exchange:
    """A manifest on its way to the store."""
    path = f"/bucket/results/{document_id}/manifest.json"
    headers = {"x-amz-meta-fencing-token": token}
    return Exchange(service=Service.S3, operation="PUT", method="PUT", path=path, headers=headers, body=b"")


def test_one_seed_draws_the_same_documents() -> None:
    """A run can be had again; another seed is another run."""
    assert tiny(100, seed=3, bucket="bucket") == tiny(100, seed=3, bucket="bucket")
    assert tiny(100, seed=3, bucket="bucket") != tiny(100, seed=4, bucket="bucket")


def test_every_kind_is_among_a_few_documents() -> None:
    """The short run of `make test` does everything that the long one does."""
    kinds = Counter(each.kind for each in tiny(40, seed=7, bucket="bucket"))
    assert set(kinds) == set(Kind)


def test_named_points_are_the_daemons_own() -> None:
    """A failpoint that the daemon cannot read would refuse every start; one that matches nobody would prove nothing."""
    names = [entry.doc for entry in failpoints.parse(FAILPOINTS)]
    kinds = {name.partition("-")[0] for name in names if name is not None}
    assert kinds <= set(Kind)
    assert len(names) == len(kinds)


def test_what_can_be_published_is_a_document() -> None:
    """The fake engine's documents pass the daemon's own look at their first bytes."""
    for each in tiny(200, seed=1, bucket="bucket"):
        if each.content is not None and each.kind not in UNPUBLISHABLE:
            assert sniff(each.content) is not None, each.name


@pytest.mark.parametrize("service", list(Service))
@pytest.mark.parametrize("fault", REFUSING)
def test_an_injected_refusal_passes_by_itself(service: Service, fault: Fault) -> None:
    """Faults are those that waiting cures: one that the daemon takes for good would make the run accuse itself."""
    status, _, body = refusal(service, fault)
    xml = service is Service.S3
    code = ET.fromstring(body).findtext("Code") if xml else json.loads(body)["__type"]  # noqa: S314 - made a line above
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    throttled = str(code).endswith("ProvisionedThroughputExceededException")
    assert throttled or aws_errors.is_transient(ClientError(answer, "Op"))  # type: ignore[arg-type]  # the two that are read


def test_calm_is_calm() -> None:
    """After the storm nothing is injected, and an outage that was to last is over."""
    faults = Faults(seed=1, share=1.0, now=lambda: 0.0)
    faults.refuse(Service.S3, 9.0)
    assert faults.draw(Service.S3, "GET").fault is Fault.FAILED
    assert faults.draw(Service.SQS, "SendMessage").fault is not Fault.NONE
    faults.calm()
    drawn = {faults.draw(service, "ReceiveMessage").fault for service in Service for _ in range(50)}
    assert drawn == {Fault.NONE}


def test_a_second_manifest_is_seen() -> None:
    """The same attempt may put its manifest twice, since an answer may be lost; another attempt may not."""
    record, writer = recorder()
    writer.after(put("a", "1"), b"")
    writer.after(put("a", "1"), b"")
    assert record.manifests == {"a": {"1"}}
    writer.after(put("a", "2"), b"")
    assert record.manifests == {"a": {"1", "2"}}


def test_a_deletion_that_comes_too_early_is_seen() -> None:
    """Asked for before a manifest or a dead letter was confirmed; afterwards it is what must happen."""
    record, writer = recorder()
    body = json.dumps({"uri": "s3://bucket/inbox/a.pdf", "id": "a"})
    received = json.dumps({"Messages": [{"ReceiptHandle": "r", "Body": body}]}).encode()
    writer.after(sqs("ReceiveMessage"), received)
    writer.before(sqs("DeleteMessage", ReceiptHandle="r"))
    assert record.early_deletions == [body]
    writer.after(put("a", "1"), b"")
    writer.before(sqs("DeleteMessage", ReceiptHandle="r"))
    assert record.early_deletions == [body]


def test_an_unreadable_message_is_deleted_after_its_dead_letter() -> None:
    """It has no document, so its body is what was confirmed."""
    record, writer = recorder()
    received = json.dumps({"Messages": [{"ReceiptHandle": "r", "Body": "{"}]}).encode()
    writer.after(sqs("ReceiveMessage"), received)
    writer.after(sqs("SendMessage", QueueUrl=DEAD, MessageBody="{"), b"")
    writer.before(sqs("DeleteMessage", ReceiptHandle="r"))
    assert record.early_deletions == []


@pytest.mark.parametrize("ended", ["clean", "wrong", "broken"])
def test_what_explains_a_finding_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ended: str
) -> None:
    """A finding comes once in many runs, so its first run must be enough; a clean run, and it alone, leaves nothing."""

    def run(_plan: object, work: Path, *, tell: object) -> dict[str, object]:
        del tell
        (work / "host-1.log").touch()
        if ended == "broken":
            raise ResourceError("cannot begin")
        return {"clean": ended == "clean"}

    monkeypatch.setattr(chaos, "run", run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with contextlib.suppress(ResourceError):
        assert chaos.main(["--json"]) == (ended != "clean")
    kept = list(tmp_path.iterdir())
    assert [list(each.iterdir()) for each in kept] == ([] if ended == "clean" else [[kept[0] / "host-1.log"]])
    told = capsys.readouterr().err.replace("\n", "")
    assert all(str(each) in told for each in kept)
    assert bool(told) is (ended != "clean")


def test_what_explains_a_finding(tmp_path: Path) -> None:
    """The ledger outlives the disk on which it lay, and what was put when is written down."""
    disk = Disk(path=tmp_path / "disk")
    disk.path.mkdir()
    (state_dir(disk, "host-1", ledger="sqlite") / "ledger.db").write_bytes(b"rows")
    keep_ledger(disk, tmp_path)
    assert (tmp_path / "ledger" / "ledger.db").read_bytes() == b"rows"
    record, writer = recorder()
    writer.after(put("a", "1"), b"")
    write_down(tmp_path / "record.json", Standings(parked={}, tries={}), record)
    told = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert [row[1:] for row in told["manifests_put"]] == [["a", "1"]]


OPENED = Outcome(cause=Cause.CRASHED, detail="", child=1)
CUT_OFF = Outcome(cause=Cause.PARENT_DIED, detail="")
WORLD = Outcome(cause=Cause.DISK_FULL, detail="")


@pytest.mark.parametrize(
    ("lives", "needed"),
    [
        pytest.param([], 1, id="none"),
        pytest.param([[CUT_OFF]] * 3, 1, id="as many as may be"),
        pytest.param([[OPENED]] * 4, 2, id="one more"),
        pytest.param([[OPENED, CUT_OFF]] * 4, 2, id="one more, cut off"),
        pytest.param([[OPENED, WORLD]] * 9, 1, id="the world's"),
        pytest.param([[CUT_OFF]] * 3 + [[CUT_OFF]] * 5, 1, id="killed while giving up"),
        pytest.param([[CUT_OFF]] * 4 + [[OPENED]], 2, id="opened after giving up"),
        pytest.param([[CUT_OFF]] * 5 + [[OPENED]] * 3, 2, id="a whole round after giving up"),
        pytest.param([[CUT_OFF]] * 5 + [[OPENED]] * 4, 3, id="more than a round after giving up"),
    ],
)
def test_attempts_are_held_against_what_was_granted(lives: list[list[Outcome]], needed: int) -> None:
    """A document that is opened too often is a finding; one whose parents are killed while they park it is not."""
    holder = Holder(host="h", boot_id="b", invocation="i", pid=1)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    attempts = [
        Attempt(
            document_id="a", number=number, holder=holder, started_at=at, lease_until=at, ended_at=at,
            outcomes=tuple(outcomes),
        )
        for number, outcomes in enumerate(lives, start=1)
    ]  # fmt: skip
    assert rounds(attempts, 3) == needed


class Moved:
    """A host whose clock is moved, and to which nothing else happens."""

    def __init__(self, moves: list[tuple[str, float]], enough: threading.Event, name: str) -> None:
        self._moves = moves
        self._enough = enough
        self._name = name

    def move_clock(self, offset_s: float) -> None:
        """See `Host.move_clock`."""
        self._moves.append((self._name, offset_s))
        if len({at for _, at in self._moves}) > 5:
            self._enough.set()


@pytest.mark.parametrize(("ledger", "hosts_at_once"), [("sqlite", 3), ("dynamodb", 1)])
def test_hosts_that_share_a_file_have_one_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Any, hosts_at_once: int
) -> None:
    """Its processes are one machine's; clocks that differ there would blame the ledger for what cannot be."""
    monkeypatch.setattr(_chaos_trouble, "_WEIGHTS", {"clock": 1})
    plan = Plan(
        engine="fake", ledger=ledger, reclaims=1, documents=1, parents=3, storm_s=1.0, troubles_per_minute=1e6,
        faults=0.0, skew_s=600.0, longest_wait_s=1, seed=1,
    )  # fmt: skip
    moves: list[tuple[str, float]] = []
    enough = threading.Event()
    hosts = [cast("Host", Moved(moves, enough, name)) for name in "abc"]
    sweeps = Sweeps(env={}, log=tmp_path / "sweep.log", every_s=1.0)
    faults = Faults(seed=1, share=0.0, now=lambda: 0.0)
    trouble = trouble_of(plan, hosts, sweeps=sweeps, faults=faults, disk=Disk(path=tmp_path, reason="none"))
    trouble.start()
    assert enough.wait(60)
    trouble.stop()
    at_once = {len(list(group)) for offset_s, group in itertools.groupby(moves, key=lambda move: move[1]) if offset_s}
    assert at_once == {hosts_at_once}
    assert {name for name, _ in moves} == set("abc")


def test_bugs_are_told_from_last_words(tmp_path: Path) -> None:
    """A traceback and a crashed slot are bugs; a line that a SIGKILL cut and a command's refusal are not."""
    log = tmp_path / "host.log"
    good = ['{"event": "daemon.ready"}', '{"event": "child.ex', "bulkhead: cannot write x: the disk is full."]
    log.write_text("\n".join([*good, '{"event": "slot.failed"}', "Traceback (most recent call last):"]))
    assert [line.partition(": ")[2] for line in bugs([log])] == [
        '{"event": "slot.failed"}',
        "Traceback (most recent call last):",
    ]
