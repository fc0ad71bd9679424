"""The real daemon below something that listens like systemd: what is said when, and what is not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.emulator import Emulated
from daemon.errors import ExitStatus
from tests.fakes.manager import Manager
from tests.system.daemon_process import daemon, environment, processes_below
from tests.system.test_daemon import depth

pytestmark = [pytest.mark.aws, pytest.mark.process, pytest.mark.engine]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """Listens at a path of its own."""
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.close()


def test_ready_is_the_canarys_word(aws: Emulated, samples: Path, manager: Manager, tmp_path: Path) -> None:
    """READY follows the canary and comes before the first message; then life, work and leaving are told."""
    env = environment(
        aws,
        tmp_path / "state",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page@page=3,doc=*five*=sleep:3",
    )
    env |= {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000000"}
    aws.upload(samples / "five-pages.pdf")
    with daemon(env) as running:
        assert "starting" in manager.hear("STATUS")["STATUS"]
        manager.hear("READY")
        running.wait_for("message.received")
        names = [line["event"] for line in running.lines]
        assert names.index("canary.converted") < names.index("daemon.ready") < names.index("message.received")
        manager.hear("WATCHDOG")
        while "in hand: 1 document" not in manager.hear("STATUS")["STATUS"]:
            pass
        for pid in processes_below(running.pid):
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
        running.send(signal.SIGTERM)
        manager.hear("STOPPING")
        manager.hear("EXTEND_TIMEOUT_USEC")
        assert running.left_with() == 0


def test_a_host_whose_canary_dies_is_not_ready(aws: Emulated, samples: Path, manager: Manager, tmp_path: Path) -> None:
    """The engine loads and crashes: nothing is received, systemd hears why, and may try again."""
    env = environment(
        aws,
        tmp_path / "state",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page@doc=canary=segv",
    )
    aws.upload(samples / "letter.pdf")
    with daemon(env | {"NOTIFY_SOCKET": manager.address}) as running:
        assert running.left_with() == ExitStatus.UNAVAILABLE
        assert "message.received" not in [line["event"] for line in running.lines]
        assert running.wait_for("daemon.refused")["message"].startswith("cannot convert the canary")
    heard = manager.heard()
    assert not any("READY" in message for message in heard)
    assert heard[-1]["STATUS"].startswith("ended: cannot convert the canary")
    assert sum(depth(aws)) == 1
