"""A host that breaks while the daemon runs: real processes, real HTTP, a Sentry on loopback, a fake engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemon.emulator import Emulated
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause
from tests.system.daemon_process import NET_S, daemon, environment
from tests.system.test_daemon import dead_letters, depth
from tests.unit.test_alerts import Endpoint

pytestmark = [pytest.mark.aws, pytest.mark.process]

ENGINES = Path(__file__).parents[1] / "process"
DOCUMENTS = 12


@pytest.fixture
def sentry() -> Iterator[Endpoint]:
    """What arrives is kept."""
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder with an engine that a test can break."""
    folder = tmp_path / "engine"
    folder.mkdir()
    for name in ("fake_engine.py", "breakable_engine.py"):
        shutil.copy(ENGINES / name, folder)
    return folder


def upload(aws: Emulated, folder: Path, number: int) -> None:
    """One small document of two pages, and its message."""
    path = folder / f"doc-{number:02}.pdf"
    path.write_bytes(f"%PDF-1.4 is document {number}\nand this is its second page\n".encode())
    aws.upload(path)


def status_of(env: dict[str, str]) -> dict[str, object]:
    """`bulkhead status --json`, beside the daemon."""
    command = [sys.executable, "-m", "daemon", "status", "--json"]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=NET_S, check=True)
    told = json.loads(result.stdout)
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize("way", ["broken", "damaged"])
def test_a_host_that_breaks(aws: Emulated, sentry: Endpoint, engine: Path, tmp_path: Path, way: str) -> None:
    """Children die, or no zygote loads any more: the queue is not eaten, one alert, all convert once it is cured."""
    env = environment(
        aws,
        tmp_path / "state",
        HOST__CANARY_PAUSE_S="0.2",
        HOST__LONGEST_CANARY_PAUSE_S="0.5",
        RETRY__RELEASE_DELAY_S="1",
        SENTRY__DSN=sentry.settings.dsn.get_secret_value(),
    )
    module = ("tests.system.fake_daemon", str(engine), "breakable_engine:load")
    with daemon(env, module) as running:
        upload(aws, tmp_path, 0)
        running.wait_for("attempt.settled", status="converted")
        (engine / way).touch()
        if way == "damaged":  # what is loaded is loaded: a reboot, an upgrade or a killed zygote brings it to light
            os.kill(running.wait_for("zygote.ready")["zygote_pid"], signal.SIGKILL)
            running.wait_for("zygote.died")
        for number in range(1, DOCUMENTS):
            upload(aws, tmp_path, number)
        running.wait_for("host.poisoned")
        for failures in (3, 4, 5):
            running.wait_for("host.canary_failed", failures=failures)
        suspended = status_of(env)["suspended"]
        assert isinstance(suspended, dict)
        assert suspended["pid"] == running.pid
        received = [line for line in running.lines if line["event"] == "message.received"]
        assert len(received) <= 3, "the first one, and what was on its way when the canary died"
        (engine / way).unlink()
        running.wait_for("host.trusted")
        for number in range(1, DOCUMENTS):
            uri = f"s3://{aws.bucket}/inbox/doc-{number:02}.pdf"
            assert running.wait_for("attempt.settled", uri=uri)["status"] == "converted"
        assert status_of(env)["suspended"] is None
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
    assert dead_letters(aws) == []
    assert depth(aws) == (0, 0)
    events = [sentry.event()[0]["tags"]["event"] for _ in range(sentry.received.qsize())]
    events = [event for event in events if event != "queue.finding"]  # of the emulated queue's attributes, at start
    assert events.count("host.poisoned") == 1
    assert set(events) <= {"host.poisoned", "zygote.unavailable"}
    assert way == "damaged" or events == ["host.poisoned"]
    with closing(SqliteLedger.open_read_only(tmp_path / "state" / "ledger.db")) as ledger:
        for number in range(DOCUMENTS):
            (document,) = ledger.find(f"s3://{aws.bucket}/inbox/doc-{number:02}.pdf")
            causes = [attempt.last_cause for attempt in ledger.attempts(document.id)]
            assert causes[-1] is Cause.CONVERTED
            assert set(causes[:-1]) <= {Cause.POISON_HOST, Cause.ZYGOTE_DIED, Cause.DRAINED}
