"""One contract for the cgroup tree, on files and on this host's kernel; limits are not part of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import host
from daemon.cgroup import Leaf, remove_leftovers
from daemon.cgroup_tree import Tree, clear, pids
from tests.fakes.cgroups import FakeTree

#: Waits until it is killed, or its test has ended.
COMPANY = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture(params=["files", "kernel"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Tree, Path]]:
    """A tree, and a group in it that is gone afterwards."""
    if request.param == "files":
        yield FakeTree(tmp_path), tmp_path
        return
    above = host.own_cgroup2()
    if above is None or not os.access(above / "cgroup.procs", os.W_OK):
        pytest.skip("no cgroup v2 that this user may write")
    tree, folder = Tree(), above / f"test-{os.getpid()}"
    tree.make(folder)
    yield tree, folder
    clear(tree, folder)
    assert not folder.exists()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """A process that has nothing to do."""
    running = subprocess.Popen(
        [sys.executable, "-c", COMPANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running
        running.kill()


def test_move_and_clear(made: tuple[Tree, Path], process: subprocess.Popen[str]) -> None:
    """A process is in one group at a time; a group with processes stays until they are killed."""
    tree, base = made
    tree.make(base / "a")
    tree.make(base / "b")
    tree.write(base / "a" / "cgroup.procs", str(process.pid))
    assert pids(tree, base / "a") == [process.pid]
    tree.write(base / "b" / "cgroup.procs", str(process.pid))
    assert (pids(tree, base / "a"), pids(tree, base / "b")) == ([], [process.pid])
    with pytest.raises(OSError, match=r"usy|processes are in it") as raised:
        tree.remove(base / "b")
    assert raised.value.errno == errno.EBUSY
    assert sorted(tree.groups(base)) == ["a", "b"]
    clear(tree, base / "a")
    clear(tree, base / "b")
    assert tree.groups(base) == []
    if not isinstance(tree, FakeTree):
        assert process.wait(10) == -9


def test_what_is_not_there(made: tuple[Tree, Path]) -> None:
    """A file that the kernel lacks is missing, a group that is there is not made twice, one that is gone stays gone."""
    tree, base = made
    with pytest.raises(FileNotFoundError):
        tree.write(base / "memory.no-such-limit", "1")
    tree.make(base / "a")
    with pytest.raises(FileExistsError):
        tree.make(base / "a")
    clear(tree, base / "a")
    clear(tree, base / "a")
    assert tree.groups(base) == []


def test_process_that_has_ended(made: tuple[Tree, Path]) -> None:
    """To place it is no failure, and holds nothing."""
    tree, base = made
    if isinstance(tree, FakeTree):
        pytest.skip("files know no processes")
    tree.make(base / "a")
    leaf = Leaf(tree, base / "a")
    leaf.place(2**22 + 1)
    assert not leaf.holds
    leaf.remove()


def test_leftovers(made: tuple[Tree, Path], process: subprocess.Popen[str]) -> None:
    """A dead parent's child that is still there is ended with its group."""
    tree, base = made
    tree.make(base / "bulkhead-4000001-child-1")
    tree.write(base / "bulkhead-4000001-child-1" / "cgroup.procs", str(process.pid))
    remove_leftovers(tree, base)
    assert tree.groups(base) == []
    if not isinstance(tree, FakeTree):
        assert process.wait(10) == -9
