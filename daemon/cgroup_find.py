"""Where this process is in the cgroup v2 tree, and whether that cgroup was delegated to it.

Edge: the cgroup tree and /proc. Rules: nothing is changed to find out; a cgroup that may be somebody else's is not
ours. It is ours when systemd marked it so, or when nobody but us and what we started lives in it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon import host
from daemon.cgroup_tree import Tree, pids

#: A parent's own group is `bulkhead-PID`; `bulkhead-PID-zygote` and `bulkhead-PID-child-N` lie beside it.
NAME: Final = re.compile(r"bulkhead-(?P<pid>[0-9]+)(?P<part>-zygote|-child-[0-9]+)?")
#: systemd (251 and later) marks what it delegates; the second can be read by root only.
_MARKS: Final = ("user.delegate", "trusted.delegate")
_ADVICE: Final = "a unit needs Delegate=memory pids and OOMPolicy=continue, and no ProtectControlGroups="


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where we are in the tree, and whether it is ours. Nothing was changed to find out."""

    #: The delegated cgroup; None when there is none, and then `reason` says why, as a sentence for a person.
    base: Path | None = None
    reason: str = ""


def find(*, root: Path = host.ROOT, tree: Tree | None = None) -> Place:
    """Say whether a cgroup was delegated to this process, with the memory controller. Changes nothing."""
    tree = tree or Tree()
    folder = host.own_cgroup2(root=root)
    if folder is None:
        return Place(reason=f"this process is in no cgroup v2 that it can see; {_ADVICE}")
    if NAME.fullmatch(folder.name):
        folder = folder.parent  # we were started by somebody whom an earlier parent took along
    try:
        refusal = _refusal(tree, folder)
    except OSError as error:
        return Place(reason=f"cannot read the cgroup {folder}: {error.strerror or error}")
    return Place(base=folder) if refusal is None else Place(reason=f"the cgroup {folder} {refusal}")


def _refusal(tree: Tree, folder: Path) -> str | None:
    """Why a cgroup is not for us to divide; None when it is."""
    if "memory" not in tree.read(folder / "cgroup.controllers").split():
        return f"has no memory controller; {_ADVICE}"
    needed = (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control")
    if not all(os.access(path, os.W_OK) for path in needed):
        return f"is not ours to write; {_ADVICE}"
    if not (folder / "cgroup.type").exists():
        return "is the host's own root"
    if (kind := tree.read(folder / "cgroup.type")) != "domain":
        return f"is {kind}, which cannot be divided"
    return None if _is_marked(folder) else _doubt(tree, folder)


def _doubt(tree: Tree, folder: Path) -> str | None:
    """Why a cgroup that we could write is not known to be ours; None when nobody else is seen to use it."""
    if strangers := [pid for pid in pids(tree, folder) if not _is_ours(pid)]:
        return f"is not delegated: process {strangers[0]} lives there too; {_ADVICE}"
    if os.geteuid() == 0 and os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
        return f"belongs to systemd, which has not delegated it; {_ADVICE}"
    return None


def _is_marked(folder: Path) -> bool:
    for name in _MARKS:
        with suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _is_ours(pid: int) -> bool:
    """Whether a process is this one, or descends from it."""
    ours = os.getpid()
    while pid not in {0, 1, ours}:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return True  # it has ended
        pid = int(stat.rpartition(b")")[2].split()[1])
    return pid == ours
