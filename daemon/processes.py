"""Other processes, looked at through pidfds and /proc.

Edge: the kernel. Nothing is signalled but through a pidfd that was opened before the process was recognised.
"""

from __future__ import annotations

import os
import select
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: A SIGKILLed process is gone in microseconds; one in uninterruptible sleep is not waited for longer.
_MARKED_END_S = 1.0
#: utime, stime, cutime and cstime among the fields of `stat` that follow the name (proc(5): 14 to 17).
_TICKS = slice(11, 15)
#: Where the link of a memfd's descriptor points.
_MEMFD = "/memfd:"
#: Unit of `st_blocks`, whatever the file system's own is.
_BLOCK_BYTES = 512


def await_end(pidfd: int, timeout_s: float) -> bool:
    """Wait at most `timeout_s` for the process to end; whether it has."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def end_marked(mark: bytes) -> int:
    """Kill every process whose environment holds `mark`; returns how many there were.

    Only those whose environment we may read are found; a process that wiped its own is not.
    """
    ended = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it ended while we looked, or is not ours to see
                pidfd = os.pidfd_open(int(folder.name))
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        await_end(pidfd, _MARKED_END_S)
                        ended += 1
                finally:
                    os.close(pidfd)
    return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process and its descendants have, and have used."""

    resident_bytes: int = 0
    #: What is held by descriptors alone: memfds beyond what is mapped of them.
    memfd_bytes: int = 0
    #: Files that were opened for writing and have no name any more; they take room on a disk until they are closed.
    unnamed_bytes: int = 0
    #: User and system, ended and reaped descendants included.
    cpu_s: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            resident_bytes=self.resident_bytes + other.resident_bytes,
            memfd_bytes=self.memfd_bytes + other.memfd_bytes,
            unnamed_bytes=self.unnamed_bytes + other.unnamed_bytes,
            cpu_s=self.cpu_s + other.cpu_s,
        )


def usage(pid: int) -> Usage:
    """Return the usage of a process and its descendants; nothing when it is gone."""
    total, waiting = Usage(), [pid]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            total += _own_usage(folder)
            waiting += _children(folder)
        except (OSError, IndexError):
            continue
    return total


def proportional_bytes_below(pid: int) -> int:
    """Memory of all descendants of a process together, without its own: what several of them share counts once.

    The kernel's "proportional set size". One that has ended meanwhile, or is not ours to look into, counts nothing.
    """
    total_bytes, waiting = 0, [pid]
    while waiting:
        number = waiting.pop()
        folder = Path(f"/proc/{number}")
        with suppress(OSError):  # it has ended
            waiting += _children(folder)
            total_bytes += 0 if number == pid else proportional_bytes(number)
    return total_bytes


def _children(folder: Path) -> list[int]:
    """Pids of the children that a process has now. Raises OSError when it is gone."""
    return [int(child) for task in (folder / "task").iterdir() for child in (task / "children").read_bytes().split()]


def proportional_bytes(pid: int) -> int:
    """The same of one process alone. Raises OSError when it is gone, or not ours to look into."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _own_usage(folder: Path) -> Usage:
    """Read one process's `statm` and `stat`; the name in `stat` may hold anything but a last parenthesis."""
    resident_pages = int((folder / "statm").read_bytes().split()[1])
    ticks = (folder / "stat").read_bytes().rpartition(b")")[2].split()[_TICKS]
    memfd_bytes, unnamed_bytes = _held_by_descriptors(folder)
    if memfd_bytes:
        memfd_bytes = max(0, memfd_bytes - _mapped_shared_bytes(folder))
    return Usage(
        resident_bytes=resident_pages * os.sysconf("SC_PAGE_SIZE"),
        memfd_bytes=memfd_bytes,
        unnamed_bytes=unnamed_bytes,
        cpu_s=sum(int(count) for count in ticks) / os.sysconf("SC_CLK_TCK"),
    )


def _held_by_descriptors(folder: Path) -> tuple[int, int]:
    """Bytes of a process's memfds, and of its other files without a name; only what it may write to."""
    sizes: dict[tuple[int, int], tuple[bool, int]] = {}
    with suppress(OSError), os.scandir(folder / "fd") as descriptors:
        for descriptor in descriptors:
            with suppress(OSError):  # closed while we looked
                # The link's own mode says how the file was opened: what is only read was put there by us.
                if descriptor.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
                    found = os.stat(descriptor.path)  # noqa: PTH116  a path would be made for each
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                        is_memfd = os.readlink(descriptor.path).startswith(_MEMFD)  # noqa: PTH115
                        sizes[found.st_dev, found.st_ino] = is_memfd, found.st_blocks * _BLOCK_BYTES
    held = sizes.values()
    return sum(size for is_memfd, size in held if is_memfd), sum(size for is_memfd, size in held if not is_memfd)


def _mapped_shared_bytes(folder: Path) -> int:
    """Shared memory that is mapped, and so counted as resident already."""
    for line in (folder / "status").read_bytes().splitlines():
        if line.startswith(b"RssShmem:"):
            return int(line.split()[1]) * 1024
    return 0
