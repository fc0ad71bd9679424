"""Groups of the kernel's cgroup v2 tree: read, written, made, emptied, removed.

Edge: the kernel. `Tree` is the seam behind which a test has a tree of its own; nothing here decides whose a group is.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Processes that fork while they are being ended are met again in the next round.
_ROUNDS: Final = 5
#: A SIGKILLed process is gone in microseconds; one in uninterruptible sleep is not waited for longer.
_EMPTY_S: Final = 1.0


class Tree:
    """The cgroup tree as the kernel shows it. Every method raises OSError."""

    def read(self, path: Path) -> str:
        """A file's text, without white space around it."""
        return path.read_text(encoding="ascii").strip()

    def write(self, path: Path, text: str) -> None:
        """One write, as the kernel wants it; a file that is missing is never made."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)

    def make(self, folder: Path) -> None:
        """A new group."""
        folder.mkdir()

    def remove(self, folder: Path) -> None:
        """Remove a group without processes, and what was made below it; one that is gone is well."""
        for below, _, _ in os.walk(folder, topdown=False):
            os.rmdir(below)  # noqa: PTH106  os.walk gives names

    def groups(self, folder: Path) -> list[str]:
        """Names of the groups just below."""
        return [entry.name for entry in folder.iterdir() if entry.is_dir()]

    def kill(self, pid: int) -> None:
        """SIGKILL one process: for kernels without `cgroup.kill`."""
        os.kill(pid, signal.SIGKILL)

    def await_empty(self, folder: Path, timeout_s: float) -> None:
        """Wait a bounded time until no process is left; the kernel says so by POLLPRI, once for each change."""
        with (folder / "cgroup.events").open(encoding="ascii") as events:
            waiting = select.poll()
            waiting.register(events, select.POLLPRI)
            for _ in range(_ROUNDS):
                events.seek(0)
                if "populated 0" in events.read() or not waiting.poll(timeout_s * 1000):
                    return


def clear(tree: Tree, folder: Path) -> None:
    """SIGKILL all processes of a group and remove it; bounded. Raises OSError when it stays."""
    for _ in range(_ROUNDS):
        with suppress(OSError):  # it is not empty
            tree.remove(folder)
            return
        kill_all(tree, folder)
        tree.await_empty(folder, _EMPTY_S)
    tree.remove(folder)


def pids(tree: Tree, folder: Path) -> list[int]:
    """Processes of a group, without those of groups below it."""
    return [int(word) for word in tree.read(folder / "cgroup.procs").split()]


def kill_all(tree: Tree, folder: Path) -> None:
    """SIGKILL all processes of a group, and those that they fork meanwhile. Raises OSError."""
    try:
        tree.write(folder / "cgroup.kill", "1")
    except FileNotFoundError:  # before Linux 5.14
        for pid in pids(tree, folder):
            with suppress(ProcessLookupError):
                tree.kill(pid)
