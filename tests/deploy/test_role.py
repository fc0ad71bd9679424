"""The role, as its users run it: over ssh, on a host with a real systemd, against an SQS and S3 on loopback.

The tests follow one host through its life, in the order of this file: nothing is there, first deployment, the same
again, a refused setting, a broken version, a good one. Each promises something of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from daemon.emulator import CREDENTIALS, Emulated, emulated
from daemon.samples import write
from tests.deploy.controller import BIN, PLAYBOOKS, ROOT, Controller, Played
from tests.deploy.lab import Lab

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

SECRET = "0123456789abcdef0123456789abcdef"  # noqa: S105 - looks like a DSN's key and opens nothing
WHEELHOUSE = ROOT / "dist" / "wheelhouse"
#: Polls of the store, and the pause between two.
POLLS, PAUSE_S = 240, 0.5
QUICK, SLOW_ONE = "letter.pdf", "five-pages.pdf"
#: Keeps `SLOW_ONE` in flight until a drain ends it; no other document is touched.
SLOW = "child.page@doc=five-pages*=sleep:100"
DRILL = {"allow_failpoints": True, "failpoints": SLOW}


class Host:
    """The lab, the way into it, and what the daemon on it talks to; and a second one, deployed after it."""

    def __init__(self, lab: Lab, second: Lab, controller: Controller, aws: Emulated, samples: Path) -> None:
        self.lab, self.second = lab, second
        self.controller, self.aws, self.samples = controller, aws, samples

    def variables(self, settings: Mapping[str, Any] | None = None, **others: Any) -> dict[str, Any]:
        """What an inventory would say; `settings` are the strongest."""
        endpoint = {"endpoint_url": self.aws.endpoint_url}
        return {
            "bulkhead_wheelhouse": "/opt/wheelhouse",
            "bulkhead_packages": [],
            "bulkhead_queue_url": self.aws.queue_url,
            "bulkhead_dead_letter_url": self.aws.dead_letter_url,
            "bulkhead_store_url": f"s3://{self.aws.bucket}/results",
            "bulkhead_region": CREDENTIALS["AWS_DEFAULT_REGION"],
            "bulkhead_workers": 1,
            "bulkhead_drain_s": 1,
            "bulkhead_settle_s": 2,
            "bulkhead_aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "bulkhead_aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "bulkhead_sentry_dsn": f"https://{SECRET}@127.0.0.1:9/1",
            "bulkhead_settings": {
                "queue": endpoint | {"wait_s": 1, "visibility_s": 30},
                "store": endpoint,
                "log": {"format": "json"},
                "retry": {"max_attempts": 1},  # an attempt that is counted is one too many
                **(settings or {}),
            },
            **others,
        }

    def main_pid(self) -> str:
        """Of the daemon."""
        return self.lab.show("bulkhead.service", "MainPID")

    def current(self) -> str:
        """The name of the environment that runs."""
        return self.lab.run(["readlink", "/opt/bulkhead/current"]).stdout.strip()

    def versions(self) -> set[str]:
        """Names of all environments."""
        return set(self.lab.run(["ls", "/opt/bulkhead/versions"]).stdout.split())

    def events(self, name: str) -> list[dict[str, Any]]:
        """All log lines of this event, of every run of the daemon."""
        lines = self.lab.journal("bulkhead.service").splitlines()
        return [line for text in lines if text.startswith("{") and (line := json.loads(text))["event"] == name]

    def uri(self, sample: str) -> str:
        """Where an uploaded sample lies."""
        return f"s3://{self.aws.bucket}/inbox/{sample}"

    def wait_for(self, event: str, *, times: int = 1, **fields: object) -> dict[str, Any]:
        """The `times`-th such line; waits for it."""
        pause = threading.Event()
        for _ in range(POLLS):
            found = [line for line in self.events(event) if fields.items() <= line.items()]
            if len(found) >= times:
                return found[times - 1]
            pause.wait(PAUSE_S)
        raise AssertionError(f"no {event}: {self.lab.journal('bulkhead.service')[-3000:]}")

    def markdown(self, sample: str) -> str:
        """What became of an uploaded sample; waits for it."""
        settled = self.wait_for("attempt.settled", uri=self.uri(sample), status="converted")
        key = settled["manifest"].removeprefix(f"s3://{self.aws.bucket}/").replace("manifest.json", "document.md")
        body = self.aws.s3.get_object(Bucket=self.aws.bucket, Key=key)["Body"].read()
        assert isinstance(body, bytes)
        return body.decode()


@pytest.fixture(scope="module")
def host(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A bare host with sshd, and wheels where a host without network would have them."""
    if not (BIN / "ansible-playbook").exists() or not WHEELHOUSE.is_dir():
        pytest.skip("not deployed: `make ansible wheelhouse` makes what this needs, and `make test-deploy` calls it")
    folder = tmp_path_factory.mktemp("role")
    samples = folder / "samples"
    write(samples)
    with emulated(folder / "moto.log") as aws, _lab() as lab, _lab() as second:
        controller = Controller(folder, {"lab": lab, "second": second})
        controller.inventory("lab")
        yield Host(lab, second, controller, aws, samples)


def _lab() -> Lab:
    # An environment is 20,000 files: made and removed in memory, in a fraction of the time.
    return Lab(binds={WHEELHOUSE: "/opt/wheelhouse"}, in_memory="6g")


def passed(played: Played) -> Played:
    """The play, which must have gone through."""
    assert played.status == 0, played.output[-6000:]
    return played


def test_lint() -> None:
    """The strictest profile of the field's linter has nothing to say."""
    if not (BIN / "ansible-lint").exists():
        pytest.skip("not linted: `make ansible` makes the linter's environment")
    result = subprocess.run(
        [BIN / "ansible-lint", "--offline", "--profile=production", "--strict", "."],
        cwd=PLAYBOOKS, env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_check_mode_on_an_empty_host(host: Host) -> None:
    """Whoever asks first what would happen gets an answer, and nothing happens."""
    played = passed(host.controller.play(host.variables(), "--check"))
    assert played.changed() > 0
    assert host.lab.run(["ls", "/opt/bulkhead", "/etc/bulkhead.next"], check=False).returncode != 0


def test_a_wrong_variable_ends_the_run_before_the_next_host(host: Host) -> None:
    """Variables are checked on the first of several hosts; those after it are not even looked at."""
    host.controller.inventory("first", "second", names={"first": "lab"})
    try:
        played = host.controller.play(host.variables(bulkhead_threads="many"))
    finally:
        host.controller.inventory("lab")
    assert played.status != 0
    assert "bulkhead_threads" in played.output
    assert played.changed("first") == 0
    with pytest.raises(KeyError):
        played.changed("second")


def test_deploys_from_nothing(host: Host) -> None:
    """A message on the queue becomes Markdown in the store; no secret is where somebody could read it.

    On two hosts, one after the other: the second is not touched before the first one receives.
    """
    host.controller.inventory("lab", "second")
    played = passed(host.controller.play(host.variables(DRILL), "-vvv"))
    host.controller.inventory("lab")
    assert host.second.systemctl("is-active", "bulkhead.service") == "active"
    assert max(played.places("lab")) < min(played.places("second"))
    host.second.systemctl("stop", "bulkhead.service")  # what follows is one host's story
    host.aws.upload(host.samples / QUICK)
    assert "lighthouse keeper" in host.markdown(QUICK)
    assert SECRET not in played.output
    assert SECRET not in host.lab.systemctl("show", "bulkhead.service") + host.lab.journal("bulkhead.service")
    places = ["/etc", "/opt/bulkhead/current/", "/run", "/tmp", "/var", "/root", "/home"]  # noqa: S108 - to look into
    found = host.lab.run(["grep", "-rlF", "-f", "-", *places], check=False, stdin=SECRET).stdout.split()
    assert {name.rpartition("/")[2] for name in found} == {"sentry__dsn"}
    modes = host.lab.run(["stat", "-c", "%a %U", *found]).stdout.splitlines()
    assert set(modes) <= {"600 root", "400 bulkhead"}, modes


def test_the_same_again_changes_nothing(host: Host) -> None:
    """A second run, and one that only checks, leave a deployed host as it is: nothing is restarted."""
    before = host.main_pid()
    assert passed(host.controller.play(host.variables(DRILL))).changes() == []
    checked = host.controller.play(host.variables(DRILL), "--check", "--diff")
    assert passed(checked).changes() == []
    assert host.main_pid() == before


def test_a_setting_that_does_not_exist(host: Host) -> None:
    """It is refused by the new version's doctor, by name, before anything that runs was touched."""
    before = host.main_pid()
    played = host.controller.play(host.variables({"retry": {"max_atempts": 4}}))
    assert played.status != 0
    assert "did you mean retry.max_attempts?" in played.output
    assert host.main_pid() == before
    assert "max_atempts" not in host.lab.read("/etc/bulkhead/bulkhead.toml")


def test_a_broken_version_rolls_back(host: Host, tmp_path: Path) -> None:
    """It passes its doctor and does not come up: the version before serves again, and the play says why it failed.

    The host after it is not even looked at.
    """
    before = host.current()
    host.aws.upload(host.samples / SLOW_ONE)
    host.wait_for("attempt.marked", uri=host.uri(SLOW_ONE))
    broken = wheel_with(tmp_path, "0.1.1", in_run='    raise RuntimeError("this version cannot run")\n')
    host.controller.inventory("lab", "second")
    played = host.controller.play(host.variables(bulkhead_wheel=str(broken)))
    host.controller.inventory("lab")
    assert played.status != 0
    with pytest.raises(KeyError):
        played.changed("second")
    assert "cannot switch to 0.1.1" in played.output
    assert "the previous version runs again and receives" in played.output
    assert "this version cannot run" in played.output
    assert host.current() == before
    assert host.lab.systemctl("is-active", "bulkhead.service") == "active"
    assert "sleep:100" in host.lab.read("/etc/bulkhead/bulkhead.toml")


def test_documents_in_flight_survive_the_switch(host: Host) -> None:
    """What the old version was converting when it was told to go, the new one finishes: once, at no cost."""
    before = host.versions()
    host.wait_for("attempt.marked", times=2, uri=host.uri(SLOW_ONE))
    passed(host.controller.play(host.variables(bulkhead_keep_versions=1)))
    assert "This is page five of five" in host.markdown(SLOW_ONE)
    assert len([line for line in host.events("attempt.settled") if line["uri"] == host.uri(SLOW_ONE)]) == 1
    letters = host.aws.sqs.receive_message(QueueUrl=host.aws.dead_letter_url)
    assert "Messages" not in letters
    assert len(before) == 2
    assert host.versions() == {host.current().rpartition("/")[2]}


def wheel_with(folder: Path, version: str, *, in_run: str) -> Path:
    """A wheel of this checkout that calls itself `version` and does `in_run` first in `bulkhead run`."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "daemon", folder / "daemon", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "daemon/__init__.py"):
        file = folder / name
        file.write_text(file.read_text().replace('"0.1.0"', f'"{version}"'))
    run = folder / "daemon" / "run.py"
    text = run.read_text()
    assert text.count('    settings.require("queue.url"') == 1
    run.write_text(text.replace('    settings.require("queue.url"', f'{in_run}    settings.require("queue.url"'))
    subprocess.run(
        [sys.executable, "-m", "flit_core.wheel", str(folder), "--outdir", str(folder / "dist")],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return next((folder / "dist").glob("*.whl"))
