"""The cgroup that was delegated to us: a group for the parent, one for the zygote, one for each child.

Edge: the kernel's cgroup v2 tree. Rules: what is not delegated is only read. A group's name holds the pid of the parent
that made it, so two parents below one cgroup leave each other alone, and what a dead one left is known. A group that
cannot be made or entered costs the group and never the document: RLIMIT_DATA and samples remain.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from daemon.cgroup_find import NAME, Place
from daemon.cgroup_tree import Tree, clear, pids

log = structlog.get_logger()

#: Processes that fork while they are being moved are met again in the next round.
_ROUNDS: Final = 100


class Group:
    """What holds one child from outside. This one holds nothing: of a host without a delegated cgroup."""

    #: Whether the kernel bounds the child's memory here, so that samples need not.
    holds = False

    def place(self, pid: int) -> None:
        """Put the child in; to be called before it has its document. Never raises."""

    def oom_kills(self) -> int:
        """How many processes of the child the kernel has killed for want of memory."""
        return 0

    def peak_bytes(self) -> int | None:
        """Most memory that was charged to the child; None where the kernel (before 5.19) does not say."""
        return None

    def remove(self) -> None:
        """End whatever is left in it, and remove it. Never raises; what cannot be removed is left to the next start."""


class Leaf(Group):
    """A group without groups below it, made by us."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self._tree = tree
        self.folder = folder

    def place(self, pid: int) -> None:
        """See `Group`."""
        try:
            self._tree.write(self.folder / "cgroup.procs", str(pid))
        except ProcessLookupError:
            return  # it has ended, and will be seen to have
        except OSError as error:
            log.warning("cgroup.failed", doing="place a child", folder=str(self.folder), pid=pid, error=str(error))
        else:
            self.holds = True

    def oom_kills(self) -> int:
        """See `Group`."""
        try:
            words = self._tree.read(self.folder / "memory.events").split()
        except OSError:
            return 0
        figures = dict(zip(words[::2], words[1::2], strict=False))
        return int(figures.get("oom_kill", 0))

    def peak_bytes(self) -> int | None:
        """See `Group`."""
        try:
            return int(self._tree.read(self.folder / "memory.peak"))
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """See `Group`."""
        try:
            clear(self._tree, self.folder)
        except OSError as error:
            log.warning("cgroup.failed", doing="remove a group", folder=str(self.folder), error=str(error))


class Groups:
    """The groups of this parent. One instance for each life; `claim` makes it."""

    def __init__(self, tree: Tree, base: Path, *, pid: int) -> None:
        self._tree = tree
        self.base = base
        self._pid = pid
        self._own = base / f"bulkhead-{pid}"
        self._numbers = itertools.count(1)
        self._zygote = Leaf(tree, base / f"bulkhead-{pid}-zygote")

    def begin(self) -> None:
        """Move what is in the delegated cgroup into a group of its own, and let groups have limits. Raises OSError.

        To be called before anything else is started here: a group with processes of its own cannot give its
        controllers to others.
        """
        remove_leftovers(self._tree, self.base)
        _made(self._tree, self._own)
        self._tree.write(self._own / "cgroup.procs", str(self._pid))
        for _ in range(_ROUNDS):
            others = pids(self._tree, self.base)
            if not others:
                break
            for pid in others:
                with suppress(ProcessLookupError):
                    self._tree.write(self._own / "cgroup.procs", str(pid))
        self._tree.write(self.base / "cgroup.subtree_control", "+memory")
        if "pids" in self._tree.read(self.base / "cgroup.controllers").split():
            self._tree.write(self.base / "cgroup.subtree_control", "+pids")
        _made(self._tree, self._zygote.folder)

    def enter_zygote(self, pid: int) -> None:
        """Put a zygote into its own group, where its children begin. Never raises."""
        self._zygote.place(pid)

    def for_child(self, *, memory_bytes: int, tasks: int) -> Group:
        """A group for one child, which it has not entered; none where none can be made. Never raises.

        `tasks` bounds its processes and threads.
        """
        leaf = Leaf(self._tree, self.base / f"{self._own.name}-child-{next(self._numbers)}")
        limits = {
            "memory.max": str(memory_bytes),
            "memory.swap.max": "0",
            # All of it or nothing: a child whose helper was killed would wait for it.
            "memory.oom.group": "1",
            "pids.max": str(tasks),
            "cgroup.max.descendants": "0",
        }
        try:
            self._tree.make(leaf.folder)
            self._limit(leaf.folder, limits)
        except OSError as error:
            log.warning("cgroup.failed", doing="make a group", folder=str(leaf.folder), error=str(error))
            leaf.remove()
            return Group()
        return leaf

    def _limit(self, folder: Path, limits: Mapping[str, str]) -> None:
        for name, value in limits.items():
            try:
                self._tree.write(folder / name, value)
            except FileNotFoundError:
                if name == "memory.max":
                    raise

    def close(self) -> None:
        """Remove what is empty by now. Our own group is left to systemd or the next start: we are in it."""
        self._zygote.remove()


def claim(place: Place, *, tree: Tree | None = None) -> Groups | None:
    """Take the delegated cgroup, and say once whether there is one. Never raises: without one, nothing else changes."""
    reason = place.reason
    if place.base is not None:
        groups = Groups(tree or Tree(), place.base, pid=os.getpid())
        try:
            groups.begin()
        except OSError as error:
            reason = f"the cgroup {place.base} cannot be divided: {error}"
        else:
            log.info("cgroup.claimed", folder=str(place.base))
            return groups
    log.info("cgroup.unavailable", reason=reason, instead="RLIMIT_DATA and samples hold a child's memory")
    return None


def remove_leftovers(tree: Tree, base: Path) -> None:
    """Remove the groups of parents that have died, and end what lives in them. Raises OSError only for `base` itself.

    A parent lives while its pid is in its own group; 0 stands there for processes of other pid namespaces.
    """
    for name in sorted(tree.groups(base), reverse=True):  # a parent's own group comes after the others of its pid
        match = NAME.fullmatch(name)
        if match is None:
            continue
        own = base / f"bulkhead-{match['pid']}"
        try:
            if _parent_lives(tree, own, int(match["pid"])):
                continue
            if match["part"]:
                clear(tree, base / name)
            elif not pids(tree, own):  # else whoever it took along still lives there
                tree.remove(own)
        except OSError as error:
            log.warning("cgroup.failed", doing="remove a leftover", folder=str(base / name), error=str(error))


def _parent_lives(tree: Tree, own: Path, pid: int) -> bool:
    try:
        return not {pid, 0}.isdisjoint(pids(tree, own))
    except FileNotFoundError:
        return False


def _made(tree: Tree, folder: Path) -> None:
    with suppress(FileExistsError):
        tree.make(folder)
