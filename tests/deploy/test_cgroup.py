"""A real kernel with cgroup v2, a real systemd, the real unit: a greedy child is killed alone, and it is known why."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import machine

pytestmark = pytest.mark.deploy

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"
#: Where every Python of the machine finds modules: a child's environment names no other place.
APP = "usr/lib/python3/dist-packages"
#: Everything else is the unit as it is deployed, with its drop-in for cgroup v2.
DROP_IN = f"""
[Service]
Type=exec
Restart=no
WatchdogSec=0
ExecStart=
ExecStart=/usr/bin/python3 /{APP}/cgroup_guest.py
StandardOutput=file:/run/told
StandardError=journal
"""
#: Starts the unit, says on the console what became of it, and turns the machine off.
PROOF = """
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=-/bin/sh -c 'systemctl start bulkhead; while systemctl -q is-active bulkhead; do sleep 0.2; done; \
  journalctl -b -u bulkhead --no-pager -o cat | tail -40; systemctl show bulkhead -p Result -p ExecMainStatus; \
  echo; echo TOLD; cat /run/told; echo; echo END'
ExecStopPost=systemctl poweroff -ff
"""


def third_party() -> dict[str, Path]:
    """The packages that a parent and its fake child import, as files of the machine."""
    script = (
        "import sys, json, daemon.children, daemon.zygote, daemon.child, daemon.launch_spawn; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    wanted = {*json.loads(said)} - {"daemon"}
    found: dict[str, Path] = {}
    for folder in [Path(path) for path in sys.path if path.endswith("site-packages")]:
        for name in wanted:
            for path in (folder / name, folder / f"{name}.py"):
                if path.exists():
                    found[f"{APP}/{path.name}"] = path
    return found


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the guest said."""
    reason = machine.why_not()
    if not reason and sysconfig.get_python_version() != "3.11":
        reason = "the machine's Python is 3.11, and this one's packages are for another"
    if reason:
        pytest.skip(f"not tried on a kernel with cgroup v2: {reason}")
    unit = "etc/systemd/system"
    files: dict[str, Path | str] = {
        f"{unit}/bulkhead.service": UNITS / "bulkhead.service",
        f"{unit}/bulkhead.slice": UNITS / "bulkhead.slice",
        f"{unit}/bulkhead.service.d/cgroup2-delegate.conf": UNITS / "bulkhead.service.d" / "cgroup2-delegate.conf",
        f"{unit}/bulkhead.service.d/proof.conf": DROP_IN,
        f"{unit}/proof.service": PROOF,
        "usr/lib/sysusers.d/bulkhead.conf": UNITS / "sysusers.conf",
        "opt/bulkhead/none": "the unit's ExecPaths= must exist",
        f"{APP}/daemon": ROOT / "daemon",
        f"{APP}/cgroup_guest.py": ROOT / "tests" / "deploy" / "cgroup_guest.py",
        f"{APP}/fake_engine.py": ROOT / "tests" / "process" / "fake_engine.py",
        f"{APP}/tests/process/greed.py": ROOT / "tests" / "process" / "greed.py",
    }
    with machine.image_of(files | third_party()) as image:
        console = machine.run(image, unit="proof.service")
    assert "Result=success" in console, console[-4000:]
    words = console.partition("TOLD")[2].partition("END")[0].strip()
    assert words.startswith("{"), console[-4000:]
    said: dict[str, Any] = json.loads(words)
    return said


def test_divided(told: dict[str, Any]) -> None:
    """The hardened unit, unprivileged, divides its own cgroup: parent and zygote each in a group, the unit's empty."""
    assert told["uid"] != 0
    assert told["base"].endswith("/bulkhead.slice/bulkhead.service")
    own = f"bulkhead-{told['pid']}"
    assert told["tree"][""] == []
    assert told["tree"][own] == [told["pid"]]
    assert told["zygote"] in told["tree"][f"{own}-zygote"]
    assert {"memory", "pids"} <= set(told["limits"][0].split())


@pytest.mark.parametrize("text", ["a\nburst", "a\nburst-memfd", "a\nburst-below"])
def test_greedy_child(told: dict[str, Any], text: str) -> None:
    """The kernel kills it at its limit, alone and whole; the outcome is memory, and says who did it."""
    (life,) = [each for each in told["lives"] if each["text"] == text]
    assert (life["cause"], life["signal"], life["page"]) == ("memory", "SIGKILL", 2)
    assert life["oom_kills"] >= 1
    assert "from the kernel, for want of memory" in life["detail"]
    assert 100 * 2**20 < life["cgroup_peak_bytes"] <= 128 * 2**20
    (group,) = [pids for name, pids in life["tree"].items() if "-child-" in name]
    assert life["pid"] in group


def test_everybody_else_lives(told: dict[str, Any]) -> None:
    """The same parent and the same zygote convert before and after, and the groups of ended children are gone."""
    assert [life["cause"] for life in told["lives"] if "burst" not in life["text"]] == ["converted", "converted"]
    assert {life["oom_kills"] for life in told["lives"] if "burst" not in life["text"]} == {0}
    own = f"bulkhead-{told['pid']}"
    assert set(told["tree_after"]) == {"", own, f"{own}-zygote"}
    assert told["zygote"] in told["tree_after"][f"{own}-zygote"]
    assert set(told["tree_at_end"]) == {"", own}
