"""The real units on a real systemd: what dies is replaced, what stands still is restarted, and no document is lost.

One host for all tests; each sets what it needs, starts the daemon anew and stops it. Nothing here decides by time but
what is a promise about time.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.deploy.installed import NET_S, UNIT, UNITS, Installed, installed, why_not

pytestmark = pytest.mark.deploy

#: From the death of the parent to its successor's readiness. Other work only adds to it, so the best counts.
RESTART_S, TRIES = 5.0, 3
#: A watchdog for tests; the unit's own is a minute.
QUICK_WATCHDOG = "WatchdogSec=4\n"
#: Finished pages are told one by one, and a message that was given back returns at once.
TALKATIVE = '[log]\nlevel = "debug"\n[retry]\nrelease_delay_s = 0.1\n'


@pytest.fixture(scope="module")
def host(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Everything installed, nothing started."""
    reason = why_not()
    if reason:
        pytest.skip(f"not deployed: {reason}")
    with installed(tmp_path_factory.mktemp("host"), memory_limits=True) as host:
        yield host


@pytest.fixture
def service(host: Installed) -> Iterator[Installed]:
    """The host, on which nothing runs and no message waits before and after the test."""
    host.forget()
    yield host
    host.stop()


def in_mid_document(service: Installed, samples: Path, page: int = 2) -> None:
    """Send five pages, and return when `page` of them are finished."""
    service.aws.upload(samples / "five-pages.pdf")
    service.wait_for(lambda: [line for line in service.events("page.finished") if line["page"] == page])


def ends_once(service: Installed) -> None:
    """The document in hand is published, once, with all its pages, and nothing of it is left on the queue."""
    service.wait_for(lambda: service.events("message.deleted"))
    (manifest,) = service.manifests().values()
    assert (manifest["status"], len(manifest["pages"])) == ("converted", 5)
    assert [line["status"] for line in service.events("attempt.settled")] == ["converted"]
    assert service.depth() == 0


def kill(service: Installed, pid: int) -> None:
    """SIGKILL to a process of the lab."""
    os.kill(service.lab.pid_here(pid), signal.SIGKILL)


def back_after_s(service: Installed, pid: int) -> float:
    """Kill the parent; returns the seconds until the next one is ready, by the clock of both."""
    times = len(service.events("daemon.ready"))
    killed_at = datetime.now(UTC)
    kill(service, pid)
    ready = service.wait_for(lambda: service.events("daemon.ready")[times:])[0]
    return (datetime.fromisoformat(ready["at"]) - killed_at).total_seconds()


def test_a_killed_parent(service: Installed, samples: Path, record_property: Callable[[str, object], None]) -> None:
    """Receiving again in under 5 s, warm-up and canary included; the document in flight is finished, once."""
    service.configure(TALKATIVE, failpoints="child.page@page=3,attempt=1=sleep:100")
    before = service.start()
    in_mid_document(service, samples)
    took_s = [back_after_s(service, before)]
    assert service.main_pid() not in {0, before}
    ends_once(service)
    assert service.events("document.resumed")[0]["pages"] >= 2
    while min(took_s) >= RESTART_S and len(took_s) < TRIES:
        took_s.append(back_after_s(service, service.main_pid()))
    record_property("from_kill_to_ready_s", took_s)
    assert min(took_s) < RESTART_S, took_s


def test_a_killed_zygote_and_a_killed_child(service: Installed, samples: Path) -> None:
    """Neither is the daemon: its pid stays, and the document comes through both."""
    service.configure(TALKATIVE, failpoints="child.page@page=3,child=1=sleep:8")
    before = service.start()
    in_mid_document(service, samples)
    (zygote,) = [pid for pid, parent in service.below(before).items() if parent == before]
    kill(service, zygote)
    service.wait_for(lambda: service.events("message.received")[1:])
    again = service.events("message.received")[1]["at"]
    started = service.wait_for(lambda: [line for line in service.events("child.started") if line["at"] > again])
    kill(service, started[0]["pid"])
    ends_once(service)
    assert service.main_pid() == before
    assert service.lab.show(UNIT, "NRestarts") == "0"


def test_a_greedy_child_is_killed_alone(service: Installed, samples: Path) -> None:
    """The kernel ends the child that eats the unit's memory, and nothing else; the page is read another way."""
    service.configure(TALKATIVE, failpoints="child.page@page=3,child=1=oom")
    before = service.start()
    # Now, and not before the start: the daemon would size its children by it, and end the child itself.
    service.lab.systemctl("set-property", "--runtime", UNIT, "MemoryMax=2G")
    try:
        service.aws.upload(samples / "five-pages.pdf")
        ends_once(service)
        (died,) = [line for line in service.events("child.exited") if line["level"] == "warning"]
        assert died["signal"] == "SIGKILL"
        assert died["peak_rss_bytes"] < 2 * 2**30 < died["memory_limit_bytes"]
    finally:
        service.lab.systemctl("set-property", "--runtime", UNIT, "MemoryMax=infinity")
    assert service.main_pid() == before
    assert service.lab.systemctl("is-active", UNIT) == "active"


def test_a_daemon_that_stands_still(service: Installed, samples: Path) -> None:
    """All threads wait for one that holds the interpreter: the watchdog ends it, and the journal says where it was."""
    service.configure(TALKATIVE, drop_in=QUICK_WATCHDOG, failpoints="after_mark@attempt=1=hang")
    before = service.start()
    service.aws.upload(samples / "five-pages.pdf")
    service.wait_for(lambda: service.main_pid() not in {0, before})
    ends_once(service)
    journal = service.journal()
    assert "Watchdog timeout" in journal
    assert "Fatal Python error: Aborted" in journal
    assert int(service.lab.show(UNIT, "NRestarts")) >= 1


def test_a_stopped_daemon(service: Installed) -> None:
    """SIGSTOP, or a debugger that was forgotten: no ping, so a new daemon."""
    service.configure(drop_in=QUICK_WATCHDOG)
    before = service.start()
    os.kill(service.lab.pid_here(before), signal.SIGSTOP)
    service.wait_for(lambda: service.events("daemon.ready")[1:])
    assert service.main_pid() not in {0, before}


def test_a_configuration_error(service: Installed) -> None:
    """Not restarted for ever; `systemctl status` says which setting, from where, and not the secret's value."""
    service.configure()
    service.lab.write("/etc/bulkhead/credentials/sentry__dsn", "hush-hush", mode=0o600)
    try:
        service.lab.systemctl("start", UNIT, check=False, timeout_s=60)
        assert service.lab.show(UNIT, "ActiveState") == "failed"
        assert (service.lab.show(UNIT, "ExecMainStatus"), service.lab.show(UNIT, "NRestarts")) == ("10", "0")
        told = service.lab.systemctl("status", UNIT, check=False)
        assert 'Status: "ended: cannot read the settings: sentry.dsn (credential sentry__dsn)' in told
        assert "hush-hush" not in told + service.journal()
    finally:
        service.lab.run(["rm", "/etc/bulkhead/credentials/sentry__dsn"])


def test_a_restart_in_mid_document(service: Installed, samples: Path) -> None:
    """It drains past systemd's own patience, finishes what is in hand, and leaves the rest to the next daemon."""
    service.configure(
        TALKATIVE,
        drop_in="TimeoutStopSec=2\nEnvironment=BULKHEAD_DRAIN_S=60\n",
        failpoints="child.page@page=3=sleep:5",
    )
    before = service.start()
    in_mid_document(service, samples)
    after = service.start()
    assert after not in {0, before}
    ends_once(service)
    assert not service.events("document.resumed"), "the first daemon finished it"
    assert "State 'stop-sigterm' timed out" not in service.journal()
    assert service.lab.show(UNIT, "NRestarts") == "0"


def test_the_timer_sweeps(service: Installed) -> None:
    """The sweep has the daemon's secrets and ledger, and is not the daemon: it runs while that is stopped."""
    service.configure()
    service.start()
    service.stop()
    service.aws.sqs.send_message(QueueUrl=service.aws.dead_letter_url, MessageBody="what is this?")
    soon = "[Timer]\nOnBootSec=\nOnUnitInactiveSec=\nOnActiveSec=0\nRandomizedDelaySec=0\nAccuracySec=100ms\n"
    service.lab.write("/run/systemd/system/bulkhead-sweep.timer.d/soon.conf", soon)
    service.lab.systemctl("daemon-reload")
    service.lab.systemctl("start", "bulkhead-sweep.timer")
    try:
        service.wait_for(lambda: "sweep.finished" in service.journal("bulkhead-sweep"))
        assert '"parked": 1' in service.journal("bulkhead-sweep")
        assert service.lab.show("bulkhead-sweep", "Result") == "success"
    finally:
        service.lab.systemctl("stop", "bulkhead-sweep.timer")


def test_secrets_are_in_no_environment(service: Installed) -> None:
    """The daemon works with keys that only a credential holds; no process of the unit has them in its environment."""
    service.configure()
    main = service.start()
    assert service.events("daemon.ready")
    for pid in (main, *service.below(main)):
        environment = Path(f"/proc/{service.lab.pid_here(pid)}/environ").read_bytes()
        assert b"SECRET" not in environment
        assert b"testing" not in environment
        assert b"NOTIFY_SOCKET" not in environment or pid == main
    kept = service.lab.run(["stat", "-c", "%U %a", "/etc/bulkhead/credentials/aws", "/var/lib/bulkhead/ledger.db"])
    assert kept.stdout == "root 600\nbulkhead 600\n"


def by_hand(service: Installed, *arguments: str) -> list[dict[str, str]]:
    """What a command prints that is run as docs/operating.md says: as the daemon's user, with its secrets."""
    name = "bulkhead-by-hand"
    keys = f"AWS_SHARED_CREDENTIALS_FILE=/run/credentials/{name}.service/aws"
    given = ["User=bulkhead", "StateDirectory=bulkhead", "LoadCredential=aws:/etc/bulkhead/credentials/aws"]
    unit = ["systemd-run", "--pipe", "--wait", "--quiet", f"--unit={name}", *(f"--property={each}" for each in given)]
    command = [*unit, f"--setenv={keys}", "/opt/bulkhead/current/bin/bulkhead", *arguments]
    return [json.loads(line) for line in service.lab.run(command, timeout_s=NET_S).stdout.splitlines()]


def test_the_doctor_on_a_real_host(service: Installed) -> None:
    """Units, rights, clock, disk, engine: nothing that is bad, and a drop-in that takes something away is told."""
    service.configure(drop_in="KillMode=process\n")
    found = by_hand(service, "doctor", "--json")
    assert {line["check"] for line in found} >= {
        "unit",
        "limits",
        "disk",
        "rights",
        "clock",
        "locale",
        "engine",
        "store",
    }
    assert not [line for line in found if line["verdict"] == "bad"]
    warned = " ".join(line["detail"] for line in found if line["verdict"] == "warning" and line["check"] == "unit")
    assert "KillMode is process instead of mixed" in warned
    assert "bulkhead-sweep.timer is not active" in warned


#: Run in the unit's place: what a child can reach when it is made by a daemon below the real unit.
REACH = """#!/opt/bulkhead/current/bin/python
import json, os, tempfile
from contextlib import contextmanager
from pathlib import Path
from tests.process import aims
real, tried = aims.outside, ("secret", "secret_listed", "ledger", "shadow", "parent_environment", "parent_memory")
aims.ATTEMPTS = tried
@contextmanager
def outside(folder):
    with real(folder) as found:
        yield found | {"secret": os.environ["CREDENTIALS_DIRECTORY"] + "/aws"}
aims.outside = outside
for mode in ("required", "off"):
    print(json.dumps(aims.attempts_of("zygote", Path(tempfile.mkdtemp(dir="/var/lib/bulkhead")), mode)), flush=True)
"""


def test_a_child_cannot_reach_the_credentials(service: Installed) -> None:
    """Under the real unit too the sandbox is complete: its own user's secrets, ledger and parent are out of reach."""
    service.lab.write("/opt/bulkhead/current/bin/reach", REACH, mode=0o755)
    unit = (UNITS / "bulkhead.service").read_text(encoding="utf-8")
    unit = unit.replace("/current/bin/bulkhead run", "/current/bin/reach").replace("Type=notify", "Type=oneshot")
    unit = unit.replace("Restart=always", "Restart=no").replace("WatchdogSec=60", "")
    service.lab.write("/run/systemd/system/bulkhead-reach.service", unit)
    service.lab.systemctl("daemon-reload")
    service.lab.systemctl("start", "bulkhead-reach", check=False, timeout_s=NET_S)
    journal = service.journal("bulkhead-reach")
    assert service.lab.show("bulkhead-reach", "Result") == "success", journal
    kept, free = [json.loads(line) for line in journal.splitlines() if line.startswith('{"secret')]
    # A parent that hides is not even there for its own user, below ProtectProc=invisible.
    assert set(kept.values()) <= {"EACCES", "ENOENT"}, kept
    assert "EACCES" not in {free["secret"], free["secret_listed"]}, "without the sandbox it can: that is the proof"
