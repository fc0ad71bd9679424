"""A document that kills its children and its parents: the limit of lives holds over all of them, and it ends parked."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemon.emulator import Emulated
from daemon.errors import ExitStatus
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Attempt, Cause, ResultStatus
from daemon.recovery_sqlite import SqliteRecovery
from tests.system.daemon_process import DaemonProcess, daemon, environment
from tests.system.test_daemon import dead_letters, depth
from tests.system.test_sweep import bulkhead
from tests.unit.test_alerts import Endpoint

pytestmark = [pytest.mark.aws, pytest.mark.process]

FAKE = ("tests.system.fake_daemon", str(Path(__file__).parents[1] / "process"), "fake_engine:load")
LIMIT = 2
#: The first child of each life dies of it; the second one would stay for ever.
DEADLY = "child.page@doc=poison*,child=1=segv;child.page@doc=poison*,child=2=hang"


@pytest.fixture
def sentry() -> Iterator[Endpoint]:
    """What arrives is kept."""
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def upload(aws: Emulated, folder: Path, name: str) -> str:
    """A small document of three pages; its URI."""
    (folder / name).write_bytes(b"%PDF-1.4 is the first page\nthe second\nthe third\n")
    aws.upload(folder / name)
    return f"s3://{aws.bucket}/inbox/{name}"


def attempts_at(state: Path, uri: str) -> list[Attempt]:
    """All of them."""
    with closing(SqliteLedger.open_read_only(state / "ledger.db")) as ledger:
        (document,) = ledger.find(uri)
        return list(ledger.attempts(document.id))


def in_mid_document(running: DaemonProcess) -> None:
    """Return when a child has died of the document and the next one is at it."""
    running.wait_for("child.exited", cause="crashed", child=1)
    running.wait_for("child.started", child=2)


def test_a_document_that_kills_children_and_parents(aws: Emulated, sentry: Endpoint, tmp_path: Path) -> None:
    """As many lives as the limit says, then one parked entry and one alert; the queue is empty, all else goes on.

    Each life has a crash in it and is cut off by a SIGKILL to its parent; the one that sends the dead letter dies too.
    """
    state = tmp_path / "state"
    uri = upload(aws, tmp_path, "poison.pdf")
    settings = {
        "LOG__LEVEL": "debug",
        "ALLOW_FAILPOINTS": "true",
        "HOST__SUSPECT_AFTER": "100",
        "RETRY__MAX_ATTEMPTS": str(LIMIT),
        "SENTRY__DSN": sentry.settings.dsn.get_secret_value(),
    }
    env = environment(aws, state, FAILPOINTS=f"{DEADLY};after_dead_letter@attempt={LIMIT + 1}=kill", **settings)
    for _ in range(LIMIT):
        with daemon(env, FAKE) as running:
            in_mid_document(running)
            running.send(signal.SIGKILL)
            assert running.left_with() == -signal.SIGKILL
    with daemon(env, FAKE) as running:  # dies right after its dead letter, before that is written down
        assert running.left_with() == -signal.SIGKILL
        assert not [line for line in running.lines if line["event"] in {"document.fetched", "child.started"}]
    with daemon(env, FAKE) as running:
        line = running.wait_for("attempt.settled", uri=uri)
        assert (line["status"], line["cause"]) == ("failed", "parent_died")
        neighbour = upload(aws, tmp_path, "neighbour.pdf")
        assert running.wait_for("attempt.settled", uri=neighbour)["status"] == "converted"
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
        assert not [line for line in running.lines if line["event"] == "child.exited" and line["cause"] == "crashed"]
    opened = [attempt for attempt in attempts_at(state, uri) if any(o.child for o in attempt.outcomes)]
    assert [attempt.number for attempt in opened] == list(range(1, LIMIT + 1))
    assert depth(aws) == (0, 0)
    for expected in ({"parked": 1, "discarded": 1, "alerted": 1}, {}):
        result = bulkhead(aws, state, "sweep", "--json", **settings)
        assert result.returncode == ExitStatus.DONE, result.stderr
        assert json.loads(result.stdout.splitlines()[-1])["swept"] == expected
    with closing(SqliteLedger.open_read_only(state / "ledger.db")) as ledger:
        (parked,) = SqliteRecovery(ledger).parked()
        assert (parked.uri, parked.cause) == (uri, Cause.PARENT_DIED)
        assert "SIGSEGV" in parked.detail, "every cause is told"
        assert ledger.counts()[ResultStatus.FAILED] == 1
    assert dead_letters(aws) == []
    assert depth(aws) == (0, 0)
    arrived = [sentry.event()[0] for _ in range(sentry.received.qsize())]
    told = [event["tags"]["event"] for event in arrived if "tags" in event]  # sweeps check in there too
    assert [event for event in told if event != "queue.finding"] == ["document.parked"]
    assert bulkhead(aws, state, "audit", **settings).returncode == ExitStatus.DONE


def test_parents_that_were_told_to_stop_cost_nothing(aws: Emulated, tmp_path: Path) -> None:
    """A drain that is cut short by SIGKILL, again and again: deploying often must not give a document up."""
    state = tmp_path / "state"
    uri = upload(aws, tmp_path, "slow.pdf")
    failpoints = ";".join(f"child.page@doc=slow*,attempt={number}=hang" for number in range(1, LIMIT + 2))
    env = environment(
        aws,
        state,
        LOG__LEVEL="debug",
        DRAIN_S="600",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS=failpoints,
        RETRY__MAX_ATTEMPTS=str(LIMIT),
    )
    for _ in range(LIMIT + 1):
        with daemon(env, FAKE) as running:
            running.wait_for("child.started", child=1)
            running.send(signal.SIGTERM)
            running.wait_for("attempt.excused")
            running.send(signal.SIGKILL)
            assert running.left_with() == -signal.SIGKILL
    with daemon(env, FAKE) as running:
        assert running.wait_for("attempt.settled", uri=uri)["status"] == "converted"
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
    assert len(attempts_at(state, uri)) == LIMIT + 2
