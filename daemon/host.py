"""What this process may use of its host, and who it is there.

Edge: `/proc`, `/sys/fs/cgroup` and the scheduler. Rules: the tighter of two limits counts; a limit of any enclosing
cgroup counts; a file that is missing or says something unknown is no limit. cgroup v1 and v2 are both read, since
one host can have both. `root` stands for `/`, so that tests can lay out other hosts.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from daemon.model import Holder

ROOT = Path("/")
#: v1's "no limit" is the largest multiple of the page size that fits 63 bits.
_V1_UNLIMITED_BYTES = 2**62


def usable_cpus(*, root: Path = ROOT, affinity: int | None = None) -> int:
    """CPUs that this process may use: its affinity, cut by the cgroups' quota, rounded down; at least 1.

    `affinity` is a number of CPUs, by default the kernel's answer.
    """
    allowed = len(os.sched_getaffinity(0)) if affinity is None else affinity
    quotas = [quota for folder in _cgroups(root, "cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, int(min([float(allowed), *quotas])))


def usable_memory_bytes(*, root: Path = ROOT) -> int:
    """Memory that this process and its children may use together: the host's, cut by the cgroups' limits."""
    limits = [limit for folder in _cgroups(root, "memory") for limit in _memory_limits(folder)]
    return min([_total_memory_bytes(root), *limits])


def own_cgroup2(*, root: Path = ROOT) -> Path | None:
    """The folder of this process's cgroup v2; None where there is no such tree, or where it hides our place."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            for kind, _, mount_root, mount_point in _cgroup_mounts(root):
                parts = _below(line.removeprefix("0::"), mount_root).strip("/").split("/")
                folder = (root / mount_point.lstrip("/")).joinpath(*parts)
                if kind == "cgroup2" and ".." not in parts and folder.is_dir():
                    return folder
    return None


def holder(*, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Holder:
    """Who this process is in the ledger; call it once per life, since the invocation may be drawn anew.

    systemd's INVOCATION_ID is taken only from the process that systemd itself started: everything that is started
    below it, such as a shell's commands, inherits the variable and is another life.
    """
    pid = os.getpid()
    ours = environ.get("SYSTEMD_EXEC_PID") == str(pid)
    return Holder(
        host=socket.gethostname(),
        boot_id=_text(root / "proc/sys/kernel/random/boot_id") or "unknown",
        invocation=(environ.get("INVOCATION_ID") if ours else None) or uuid.uuid4().hex,
        pid=pid,
    )


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the cgroups that bound this process for `controller`, innermost first, of v1 and v2."""
    mounts = list(_cgroup_mounts(root))
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for kind, options, mount_root, mount_point in mounts:
            v2 = controllers == "" and kind == "cgroup2"
            v1 = controller in controllers.split(",") and kind == "cgroup" and controller in options.split(",")
            if v1 or v2:
                yield from _upwards(root / mount_point.lstrip("/"), _below(path, mount_root))


def _cgroup_mounts(root: Path) -> Iterator[tuple[str, str, str, str]]:
    """File system type, super options, root within the hierarchy and mount point, of each cgroup mount."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mount, _, source = line.partition(" - ")
        fields, kind_and_options = mount.split(), source.split()
        if kind_and_options and kind_and_options[0] in {"cgroup", "cgroup2"}:
            yield kind_and_options[0], kind_and_options[-1], fields[3], fields[4]


def _below(path: str, mount_root: str) -> str:
    """`path` of a cgroup as seen from the mount; a container's mount may begin at the container's own cgroup."""
    if mount_root != "/" and (path == mount_root or path.startswith(f"{mount_root}/")):
        return path.removeprefix(mount_root)
    return path


def _upwards(mount_point: Path, path: str) -> Iterator[Path]:
    """The cgroup's folder and all that enclose it, up to the mount's own; those that are not visible are left out."""
    parts = [part for part in path.split("/") if part not in {"", ".."}]
    for length in range(len(parts), -1, -1):
        folder = mount_point.joinpath(*parts[:length])
        if folder.is_dir():
            yield folder


def _cpu_quota(folder: Path) -> float | None:
    """CPUs per period that the cgroup grants; None without a quota."""
    quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
    if quota == "max":
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
        return int(quota) / int(period)
    return None


def _memory_limits(folder: Path) -> Iterator[int]:
    """Bytes at which the cgroup throttles or kills; nothing without a limit."""
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        limit = _text(folder / name)
        if limit.isdecimal() and 0 < int(limit) < _V1_UNLIMITED_BYTES:
            yield int(limit)


def _total_memory_bytes(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _text(path: Path) -> str:
    """A small file's text without white space around it; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def lives(other: Holder, *, root: Path = ROOT) -> bool:
    """Whether a process of this host and this boot has the holder's pid; another host's is never known to live.

    A pid may have been given to somebody else since, so True is a reason to wait and no proof.
    """
    here = holder(root=root)
    same = (other.host, other.boot_id) == (here.host, here.boot_id)
    return same and (root / "proc" / str(other.pid)).exists()
