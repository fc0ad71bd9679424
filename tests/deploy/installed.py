"""Bulkhead on a lab, with the real units: this tree and its packages bound read-only, nothing downloaded.

Rules: units, users and folders are made from `deploy/systemd` alone; what a test changes is a drop-in; the program is
this tree, run by the lab's own Python, which must be the version whose packages are bound.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from daemon import emulator
from daemon.emulator import CREDENTIALS, Emulated, emulated
from tests.deploy.lab import Lab

REPOSITORY = Path(__file__).parents[2]
UNITS = REPOSITORY / "deploy/systemd"
#: The lab's own (Debian 12).
LAB_PYTHON = (3, 11)
UNIT = "bulkhead"
#: A net for a hang: loading the engine takes seconds, on a busy machine many.
NET_S = 120.0
_POLL_S = 0.05
_PROGRAM = """#!/opt/bulkhead/current/bin/python
from daemon.cli import main
main()
"""
_Found = TypeVar("_Found")


def why_not() -> str:
    """One sentence that says why this tree cannot be bound into a lab; empty when it can."""
    if sys.version_info[:2] != LAB_PYTHON:
        return f"the lab's Python is 3.11 and this one's packages are for {sys.version_info[0]}.{sys.version_info[1]}"
    return ""


@dataclass(slots=True, kw_only=True)
class Installed:
    """The daemon on a lab, between the host's SQS and S3."""

    lab: Lab
    aws: Emulated
    #: When the story began that is told now; the lab's clock is this host's.
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def configure(self, toml: str = "", *, drop_in: str = "", failpoints: str = "") -> None:
        """Write settings, `toml` beside what every test needs, and one drop-in; the last ones are gone."""
        self.lab.write("/etc/bulkhead/bulkhead.toml", f"{_settings(self.aws)}{toml}")
        lines = drop_in
        if failpoints:
            lines += "Environment=BULKHEAD_ALLOW_FAILPOINTS=true\n"
            lines += f'Environment="BULKHEAD_FAILPOINTS={failpoints}"\n'
        self.lab.write(f"/etc/systemd/system/{UNIT}.service.d/90-test.conf", f"[Service]\n{lines}")
        self.lab.systemctl("daemon-reload")

    def start(self) -> int:
        """Start the daemon, or start it anew, and wait for READY; the pid of its parent, as the lab sees it."""
        self.lab.systemctl("restart", UNIT, timeout_s=NET_S)
        return self.main_pid()

    def stop(self) -> None:
        """Stop it, whatever it is doing."""
        self.lab.systemctl("stop", UNIT, check=False, timeout_s=NET_S)
        self.lab.systemctl("reset-failed", UNIT, check=False)

    def forget(self) -> None:
        """Begin a new story: what was published, what the ledger knows and what the journal told is gone."""
        reset = urllib.request.Request(f"{self.aws.endpoint_url}/moto-api/reset", method="POST")  # noqa: S310 - our own loopback
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(reset, timeout=NET_S):
            self.aws = emulator._made(self.aws.endpoint_url)
        self.lab.run(["rm", "-rf", "/var/lib/bulkhead"])
        self.began = datetime.now(UTC)

    def main_pid(self) -> int:
        """0 when it does not run."""
        return int(self.lab.show(UNIT, "MainPID"))

    def events(self, name: str) -> list[dict[str, Any]]:
        """The daemon's log lines of this event, oldest first, over all its lives in this story."""
        lines = (line for line in self.journal().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line.get("event") == name]

    def journal(self, unit: str = UNIT) -> str:
        """What the unit and systemd have said in this story."""
        return self.lab.journal(unit, since=self.began)

    def wait_for(self, what: Callable[[], _Found]) -> _Found:
        """The first true answer. Raises AssertionError, with the journal's end, when none comes."""
        pause = threading.Event()
        for _ in range(int(NET_S / _POLL_S)):
            found = what()
            if found:
                return found
            pause.wait(_POLL_S)
        raise AssertionError(f"it did not happen; the journal:\n{self.journal()[-4000:]}")

    def below(self, pid: int) -> dict[int, int]:
        """Every descendant of a process of the lab → the process that started it; pids as the lab sees them."""
        rows = self.lab.run(["ps", "-e", "-o", "pid=,ppid="]).stdout.splitlines()
        parents = {int(each): int(parent) for each, parent in (row.split() for row in rows)}

        def is_below(each: int) -> bool:
            parent = parents.get(each, 0)
            return parent == pid or (parent != 0 and is_below(parent))

        return {each: parent for each, parent in parents.items() if is_below(each)}

    def manifests(self) -> dict[str, dict[str, Any]]:
        """Every published manifest: its key → its content."""
        listed = self.aws.s3.list_objects_v2(Bucket=self.aws.bucket, Prefix="results/").get("Contents", [])
        keys = [entry["Key"] for entry in listed if entry["Key"].endswith("/manifest.json")]
        return {key: json.load(self.aws.s3.get_object(Bucket=self.aws.bucket, Key=key)["Body"]) for key in keys}

    def depth(self) -> int:
        """Messages on the queue, hidden ones included."""
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.aws.sqs.get_queue_attributes(QueueUrl=self.aws.queue_url, AttributeNames=wanted)
        return sum(int(answer["Attributes"][name]) for name in wanted)


@contextmanager
def installed(folder: Path, *, memory_limits: bool = False) -> Iterator[Installed]:
    """A lab on which everything is installed and nothing is started; `folder` holds the emulator's log."""
    binds = {REPOSITORY: "/opt/bulkhead/bound/tree"}
    packages = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    binds |= {path: f"/opt/bulkhead/bound/{number}/site-packages" for number, path in enumerate(packages)}
    with emulated(folder / "emulator.log") as aws, Lab(binds=binds, memory_limits=memory_limits) as lab:
        _install(lab, list(binds.values()))
        daemon = Installed(lab=lab, aws=aws)
        daemon.configure()
        yield daemon


def _install(lab: Lab, bound: list[str]) -> None:
    lab.copy(UNITS / "sysusers.conf", "/usr/lib/sysusers.d/bulkhead.conf")
    lab.copy(UNITS / "tmpfiles.conf", "/usr/lib/tmpfiles.d/bulkhead.conf")
    lab.run(["systemd-sysusers"])
    lab.run(["systemd-tmpfiles", "--create", "bulkhead.conf"])
    lab.run(["python3", "-m", "venv", "--without-pip", "/opt/bulkhead/versions/bound"])
    lab.run(["ln", "-s", "versions/bound", "/opt/bulkhead/current"])
    lab.write("/opt/bulkhead/current/lib/python3.11/site-packages/bound.pth", "\n".join(bound))
    lab.write("/opt/bulkhead/current/bin/bulkhead", _PROGRAM, mode=0o755)
    for unit in ("bulkhead.service", "bulkhead-sweep.service", "bulkhead-sweep.timer", "bulkhead.slice"):
        lab.copy(UNITS / unit, f"/etc/systemd/system/{unit}")
    keys = {name.lower(): value for name, value in CREDENTIALS.items() if name != "AWS_DEFAULT_REGION"}
    lines = "\n".join(f"{name} = {value}" for name, value in keys.items())
    lab.write("/etc/bulkhead/credentials/aws", f"[default]\n{lines}\n", mode=0o600)


def _settings(aws: Emulated) -> str:
    region = CREDENTIALS["AWS_DEFAULT_REGION"]
    return f"""workers = 1
[queue]
url = "{aws.queue_url}"
dead_letter_url = "{aws.dead_letter_url}"
endpoint_url = "{aws.endpoint_url}"
region = "{region}"
wait_s = 1
visibility_s = 10
[store]
url = "s3://{aws.bucket}/results"
endpoint_url = "{aws.endpoint_url}"
region = "{region}"
"""
