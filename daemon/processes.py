"""Other processes, looked at through pidfds and /proc.

Edge: the kernel. Nothing is signalled but through a pidfd that was opened before the process was recognised.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

#: A SIGKILLed process is gone in microseconds; one in uninterruptible sleep is not waited for longer.
_MARKED_END_S = 1.0


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


def resident(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; 0 when it is gone."""
    total, waiting = 0, [pid]
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            total += int((folder / "statm").read_bytes().split()[1]) * page_bytes
            for task in (folder / "task").iterdir():
                waiting += [int(child) for child in (task / "children").read_bytes().split()]
        except (OSError, IndexError):
            continue
    return total
