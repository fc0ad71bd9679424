"""What a process may use, on hosts that are laid out as files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from daemon import host
from daemon.build import build

V2 = "0::/system.slice/bulkhead.service\n"
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
MEMINFO = "MemTotal:        8388608 kB\nMemFree:          100 kB\n"
GIB = 2**30


def lay_out(root: Path, files: dict[str, str]) -> Path:
    """Write `files` below `root`; a host with 8 GiB unless they say otherwise."""
    for name, content in {"proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def v2(root: Path, **files: str) -> Path:
    """A host with cgroup v2; names are `level_file`, with levels `unit` and `slice`."""
    folders = {"unit": "sys/fs/cgroup/system.slice/bulkhead.service", "slice": "sys/fs/cgroup/system.slice"}
    named = {}
    for name, content in files.items():
        level, _, file = name.partition("_")
        named[f"{folders[level]}/{file.replace('_', '.')}"] = content
    return lay_out(root, {"proc/self/cgroup": V2, "proc/self/mountinfo": V2_MOUNT, **named})


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 4),
        ({"unit_cpu_max": "max 100000\n"}, 4),
        ({"unit_cpu_max": "200000 100000\n"}, 2),
        ({"unit_cpu_max": "150000 100000\n"}, 1),
        ({"unit_cpu_max": "20000 100000\n"}, 1),
        ({"unit_cpu_max": "max 100000\n", "slice_cpu_max": "300000 100000\n"}, 3),
        ({"unit_cpu_max": "800000 100000\n"}, 4),
        ({"unit_cpu_max": "garbage\n"}, 4),
    ],
    ids=["no file", "no quota", "two", "rounded down", "at least one", "of the slice", "beyond affinity", "garbage"],
)
def test_cpu_quota_v2(tmp_path: Path, files: dict[str, str], cpus: int) -> None:
    """A quota of the unit or of its slice bounds us, and never to nothing."""
    assert host.usable_cpus(root=v2(tmp_path, **files), affinity=4) == cpus


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({}, 8),
        ({"unit_memory_max": "max\n"}, 8),
        ({"unit_memory_max": f"{2 * GIB}\n"}, 2),
        ({"unit_memory_max": f"{4 * GIB}\n", "unit_memory_high": f"{3 * GIB}\n"}, 3),
        ({"unit_memory_max": "max\n", "slice_memory_max": f"{GIB}\n"}, 1),
        ({"unit_memory_max": f"{64 * GIB}\n"}, 8),
    ],
    ids=["no file", "no limit", "limit", "throttled before", "of the slice", "beyond the host"],
)
def test_memory_v2(tmp_path: Path, files: dict[str, str], gib: int) -> None:
    """The tightest of the host's memory and the limits on the way up."""
    assert host.usable_memory_bytes(root=v2(tmp_path, **files)) == gib * GIB


def v1(root: Path, *, path: str, mount_root: str, folder: str) -> Path:
    """A host with cgroup v1 and both controllers in one hierarchy, limits in `folder`."""
    base = f"sys/fs/cgroup/cpu{folder}"
    return lay_out(
        root,
        {
            "proc/self/cgroup": f"5:devices:/elsewhere\n4:cpu,cpuacct,memory:{path}\n1:name=systemd:/\n0::/\n",
            "sys/fs/cgroup/cpu/elsewhere/memory.limit_in_bytes": "1000\n",
            "proc/self/mountinfo": f"32 31 0:29 {mount_root} /sys/fs/cgroup/cpu rw - cgroup cg rw,cpu,cpuacct,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            f"{base}/cpu.cfs_quota_us": "250000\n",
            f"{base}/cpu.cfs_period_us": "100000\n",
            f"{base}/memory.limit_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us" if folder else "unused/quota": "-1\n",
            "sys/fs/cgroup/cpu/memory.limit_in_bytes" if folder else "unused/limit": "9223372036854771712\n",
        },
    )


@pytest.mark.parametrize(
    ("path", "mount_root", "folder"),
    [
        ("/jobs/7", "/", "/jobs/7"),
        ("/docker/abc", "/docker/abc", ""),
        ("/docker/abc/job", "/docker/abc", "/job"),
        ("/docker/abc", "/", ""),
    ],
    ids=["on the host", "in a container", "below a container's own", "in a container whose mount hides its path"],
)
def test_v1(tmp_path: Path, path: str, mount_root: str, folder: str) -> None:
    """Hosts with cgroup v1 are still about; its root says -1 and 2**63 for no limit."""
    root = v1(tmp_path, path=path, mount_root=mount_root, folder=folder)
    assert host.usable_cpus(root=root, affinity=4) == 2
    assert host.usable_memory_bytes(root=root) == 3 * GIB


def test_host_without_cgroups(tmp_path: Path) -> None:
    """Where nothing can be read, affinity and the kernel's own figure remain."""
    assert host.usable_cpus(root=tmp_path, affinity=3) == 3
    assert host.usable_memory_bytes(root=tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_this_host() -> None:
    """The real files can be read, whatever they say."""
    assert 1 <= host.usable_cpus() <= len(os.sched_getaffinity(0))
    assert 2**20 < host.usable_memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_holder_started_by_systemd(tmp_path: Path) -> None:
    """The unit's own process bears systemd's id, so that its journal and the ledger agree."""
    lay_out(tmp_path, {"proc/sys/kernel/random/boot_id": "c66ff4b0\n"})
    environ = {"INVOCATION_ID": "unit-life", "SYSTEMD_EXEC_PID": str(os.getpid())}
    holder = host.holder(root=tmp_path, environ=environ)
    assert (holder.invocation, holder.boot_id, holder.pid) == ("unit-life", "c66ff4b0", os.getpid())


def test_holder_that_inherited_an_id() -> None:
    """Two commands from one shell are two lives; else the second would spare the dead leases of the first."""
    environ = {"INVOCATION_ID": "the terminal's", "SYSTEMD_EXEC_PID": "1"}
    one, two = host.holder(environ=environ), host.holder(environ=environ)
    assert len({one.invocation, two.invocation, "the terminal's"}) == 3


def test_who_lives(tmp_path: Path) -> None:
    """A pid counts on the same host and boot only: after a reboot it is somebody else's."""
    lay_out(tmp_path, {"proc/sys/kernel/random/boot_id": "c66ff4b0\n", "proc/77/stat": ""})
    here = replace(host.holder(root=tmp_path), pid=77)
    assert host.lives(here, root=tmp_path)
    assert not host.lives(replace(here, pid=78), root=tmp_path)
    assert not host.lives(replace(here, boot_id="other"), root=tmp_path)
    assert not host.lives(replace(here, host="other"), root=tmp_path)


def test_the_build_names_the_engine() -> None:
    """Alerts about one engine are one problem; those about the next one are another."""
    assert build().startswith("bulkheadd ")
    assert "pymupdf 2.0" in build()
    assert "missing" not in build()
