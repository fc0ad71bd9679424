"""The lab itself: what the other tests of this folder take for granted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.deploy.lab import Lab

pytestmark = pytest.mark.deploy


def test_a_host_boots_runs_units_and_is_gone(lab_possible: None, tmp_path: Path) -> None:
    """Commands run under its own systemd, see what is bound and copied, and nothing of it is left."""
    (tmp_path / "said").write_text("hello")
    tmp_path.chmod(0o755)
    with Lab(binds={tmp_path: "/opt/bound"}) as lab:
        lab.copy(tmp_path, "/srv/copied")
        lab.write("/srv/written", "there")
        told = lab.run(
            ["sh", "-c", "cat /opt/bound/said /srv/copied/said /srv/written; id -un"], properties=["User=nobody"]
        )
        assert told.stdout == "hellohellotherenobody\n"
        assert lab.run(["false"], check=False).returncode == 1
        with pytest.raises(subprocess.CalledProcessError, match="non-zero"):
            lab.run(["false"])
        assert lab.pid_here(1) == lab.leader
        assert int(lab.run(["nproc"]).stdout) >= 1
    assert not Path(f"/proc/{lab.leader}").exists()
    assert lab.name not in Path("/proc/self/mountinfo").read_text()
    assert lab.name not in str([*Path("/sys/fs/cgroup").iterdir()])
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{lab.name}"))


def test_two_hosts_at_once_are_two(lab_possible: None) -> None:
    """What one writes, starts or stops, the other does not see."""
    with Lab() as one, Lab() as other:
        one.run(["systemd-run", "--unit=sleeper", "sleep", "1000"])
        one.write("/etc/only-here", "")
        assert one.systemctl("is-active", "sleeper") == "active"
        assert other.systemctl("is-active", "sleeper", check=False) == "inactive"
        assert other.run(["test", "-e", "/etc/only-here"], check=False).returncode == 1


def test_a_greedy_unit_is_ended_by_its_limit(lab_possible: None) -> None:
    """Where the host has a memory controller, `MemoryMax=` counts in the lab, and for that unit alone."""
    eats = ["sh", "-c", "python3 -c 'bytearray(400 * 2**20)'; echo $?"]
    limit = ["MemoryMax=64M", "MemorySwapMax=0", "OOMPolicy=continue"]
    with Lab(memory_limits=True) as lab:
        assert lab.run(eats).stdout == "0\n"
        assert lab.run(eats, properties=limit).stdout == "137\n"


def test_a_sandbox_can_be_built_inside(lab_possible: None) -> None:
    """The container's own filter lets a process ask for Landlock, and for a filter of its own."""
    asks = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))"  # landlock_create_ruleset: which ABI?
    with Lab() as lab:
        assert int(lab.run(["python3", "-c", asks], properties=["User=nobody"]).stdout) >= 1
