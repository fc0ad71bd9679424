"""The systemd units say the same as the code."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from daemon import errors, parent
from daemon.config import Settings

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = UNITS / "bulkhead.service"


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    """The unit, by section."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def test_what_a_restart_does_not_cure_is_not_restarted(unit: configparser.ConfigParser) -> None:
    """Every status of the operator's errors but "already running", which ends by itself, and that of usage."""
    refused = {int(kind.status) for kind in errors.OperatorError.__subclasses__()} | {int(errors.ExitStatus.USAGE)}
    refused -= {int(errors.ExitStatus.ALREADY_RUNNING)}
    assert {int(word) for word in unit["Service"]["RestartPreventExitStatus"].split()} == refused


def test_a_drain_ends_before_systemd_loses_patience(unit: configparser.ConfigParser) -> None:
    """Documents in flight get `drain_s`, slots their last words, and only then would systemd shoot."""
    longest_s = Settings().drain_s + parent.LAST_WORDS_S
    assert float(unit["Service"]["TimeoutStopSec"]) > longest_s + 5


def test_the_children_do_not_die_first(unit: configparser.ConfigParser) -> None:
    """The defaults of systemd signal the whole group, stop for one greedy child, and give up after five starts."""
    assert unit["Service"]["KillMode"] == "mixed"
    assert unit["Service"]["OOMPolicy"] == "continue"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("name", ["bulkhead.service", "bulkhead-sweep.service", "bulkhead-sweep.timer"])
def test_systemd_reads_it(tmp_path: Path, name: str) -> None:
    """`systemd-analyze verify` says nothing: it leaves with 0 for a key that it does not know, so any word counts."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on this machine")
    for unit_file in UNITS.iterdir():
        # The program and the user are made by the deployment.
        text = unit_file.read_text(encoding="utf-8").replace("/opt/bulkhead/current/bin/bulkhead", "/bin/true")
        (tmp_path / unit_file.name).write_text(text.replace("User=bulkhead", "User=root"), encoding="utf-8")
    result = subprocess.run(
        [analyze, "verify", str(tmp_path / name)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
