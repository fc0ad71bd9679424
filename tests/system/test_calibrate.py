"""`bulkhead calibrate` as a person runs it, with the real engine; held to one CPU, so that there is one combination."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.config import load
from daemon.errors import ExitStatus
from tests.system.daemon_process import NET_S, alive, processes_below
from tests.system.test_convert import clean_environment

pytestmark = [pytest.mark.engine, pytest.mark.process]


def calibrating(*arguments: str | Path, folder: Path, **settings: str) -> subprocess.Popen[str]:
    """The command, on one CPU, with `folder` for whatever is temporary."""
    folder.mkdir()
    one = str(min(os.sched_getaffinity(0)))
    return subprocess.Popen(
        ["taskset", "-c", one, sys.executable, "-m", "daemon", "calibrate", *map(str, arguments)],
        env=clean_environment(**settings) | {"TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_setting_is_measured_and_written(samples: Path, tmp_path: Path) -> None:
    """Figures of real children, the settings in a file that loads, a bad document named, and nothing left behind."""
    out = tmp_path / "calibrated.toml"
    names = ("letter.pdf", "encrypted.pdf")
    process = calibrating(
        *(samples / name for name in names), "--rounds", "1", "--json", "--out", out, folder=tmp_path / "temporary"
    )
    stdout, stderr = process.communicate(timeout=NET_S)
    assert process.returncode == ExitStatus.DOCUMENT_FAILED, stderr
    told = [json.loads(line) for line in stdout.splitlines()]
    assert [next(iter(line)) for line in told] == ["sampled", "sampled", "measured", "failed", "recommended"]
    assert {Path(line["sampled"]["path"]).name for line in told[:2]} == set(names)
    measured = told[2]["measured"]
    assert (measured["workers"], measured["threads"], measured["children"]) == (1, 1, "forked")
    assert (measured["rounds"], measured["failed"]) == (1, 2), "each document is there twice, for one worker"
    assert 1 < measured["documents_per_minute"] < 2_000
    assert 100 * 2**20 < measured["largest_child_bytes"] < 2**31
    assert 100 * 2**20 < measured["peak_memory_bytes"] < 2**31
    assert Path(told[3]["failed"]["path"]).name == "encrypted.pdf"
    assert "encrypted" in told[3]["failed"]["why"]
    assert told[4]["recommended"] == {"workers": 1, "threads": 1, "pages_per_child": 40}
    settings = load(out, environ={})
    assert (settings.workers, settings.threads, settings.child.pages_per_child) == (1, 1, 40)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_interruption_leaves_nothing(samples: Path, tmp_path: Path) -> None:
    """SIGTERM while a child hangs: the command leaves with its own status, without processes, folders or a file."""
    out = tmp_path / "calibrated.toml"
    process = calibrating(
        samples / "letter.pdf",
        "--json",
        "--out",
        out,
        folder=tmp_path / "temporary",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page=hang",
        LOG__LEVEL="debug",
        LOG__FORMAT="json",
    )
    assert process.stderr is not None
    for line in process.stderr:
        if '"child.started"' in line:
            break
    below = processes_below(process.pid)
    assert below
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=NET_S)
    assert process.returncode == ExitStatus.INTERRUPTED
    last = json.loads(stdout.splitlines()[-1])
    assert last["interrupted"]
    assert last["recommended"] is None
    assert not out.exists()
    assert not any(alive(pid) for pid in below)
    assert list((tmp_path / "temporary").iterdir()) == []
