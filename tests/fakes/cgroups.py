"""A cgroup v2 tree as files, with the kernel's rules about who may be where, and a plug to be pulled at any step.

Verified against the kernel's own tree by `tests/contract/test_cgroup_tree.py`.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from daemon.cgroup_tree import Tree


class Unplugged(BaseException):
    """The parent died here: not an error that anybody handles."""


class FakeTree(Tree):
    """Below `root`; a group is a folder, and its files are there because the kernel would have them there."""

    def __init__(self, root: Path, *, controllers: str = "memory pids", kill_file: bool = True) -> None:
        self.root = root
        self._kill_file = kill_file
        #: After so many changes the parent is dead; None: it lives.
        self.steps_left: int | None = None
        self.changes = 0
        self._populate(root, controllers)

    def _populate(self, folder: Path, controllers: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        files = {"cgroup.procs": "", "cgroup.type": "domain", "cgroup.controllers": controllers}
        files |= {"cgroup.subtree_control": "", "cgroup.events": "populated 0", "cgroup.max.descendants": "max"}
        if self._kill_file:
            files["cgroup.kill"] = ""
        if "memory" in controllers:
            files |= {"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "memory.peak": "0"}
            files |= {"memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0"}
        if "pids" in controllers:
            files["pids.max"] = "max"
        for name, content in files.items():
            (folder / name).write_text(content)

    def _step(self) -> None:
        self.changes += 1
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise Unplugged
            self.steps_left -= 1

    def put(self, folder: Path, *pids: int) -> None:
        """Let processes be in a group, as if they had been forked there."""
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def _pids(self, folder: Path) -> list[int]:
        return [int(word) for word in (folder / "cgroup.procs").read_text().split()]

    def write(self, path: Path, text: str) -> None:
        """See `Tree`."""
        self._step()
        folder = path.parent
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        if path.name == "cgroup.procs":
            if (folder / "cgroup.subtree_control").read_text():
                raise OSError(errno.EBUSY, "it gives its controllers to others", str(path))
            for group in [self.root, *self.root.glob("**/")]:
                self.put(group, *(pid for pid in self._pids(group) if pid != int(text)))
            self.put(folder, *self._pids(folder), int(text))
        elif path.name == "cgroup.subtree_control":
            if self._pids(folder):
                raise OSError(errno.EBUSY, "processes are in it", str(path))
            given = {*path.read_text().split(), text.removeprefix("+")}
            if not given <= set((folder / "cgroup.controllers").read_text().split()):
                raise FileNotFoundError(errno.ENOENT, "no such controller", str(path))
            path.write_text(" ".join(sorted(given)))
        elif path.name == "cgroup.kill":
            self.put(folder)
        else:
            path.write_text(text)

    def make(self, folder: Path) -> None:
        """See `Tree`."""
        self._step()
        if folder.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(folder))
        self._populate(folder, (folder.parent / "cgroup.subtree_control").read_text())

    def remove(self, folder: Path) -> None:
        """See `Tree`."""
        self._step()
        if not folder.exists():
            return
        if any(self._pids(group) for group in folder.glob("**/")):
            raise OSError(errno.EBUSY, "processes are in it", str(folder))
        shutil.rmtree(folder)

    def kill(self, pid: int) -> None:
        """See `Tree`."""
        self._step()
        for group in self.root.glob("**/"):
            self.put(group, *(each for each in self._pids(group) if each != pid))

    def await_empty(self, folder: Path, timeout_s: float) -> None:
        """See `Tree`: here a killed process is gone at once."""
