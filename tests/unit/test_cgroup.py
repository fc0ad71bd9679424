"""The delegated cgroup, on a tree of files with the kernel's rules; `tests/deploy` asks a real kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from daemon import cgroup, host
from daemon.cgroup import Groups
from daemon.cgroup_find import Place, find
from daemon.cgroup_tree import Tree, pids
from tests.fakes.cgroups import FakeTree, Unplugged

UNIT = "sys/fs/cgroup/system.slice/bulkhead.service"
OURS = os.getpid()
DEAD = 4_000_001


@pytest.fixture(autouse=True)
def every_level() -> None:
    """Whatever level an earlier test has configured, everything is logged here."""
    structlog.reset_defaults()


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    """The unit's cgroup of a host below `tmp_path`, with this process in it."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/bulkhead.service\n")
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    made = FakeTree(tmp_path / UNIT)
    made.put(made.root, OURS)
    return made


def begun(tree: FakeTree) -> Groups:
    """The groups of this process."""
    groups = cgroup.claim(Place(base=tree.root), tree=tree)
    assert groups is not None
    return groups


def names(tree: FakeTree) -> set[str]:
    """Groups below the unit's."""
    return set(tree.groups(tree.root))


def refused(root: Path) -> str:
    """Why there is nothing to claim."""
    place = find(root=root)
    assert place.base is None
    return place.reason


def test_found(tree: FakeTree, tmp_path: Path) -> None:
    """A unit's cgroup that only we live in, with the memory controller, is ours; looking changes nothing."""
    assert find(root=tmp_path).base == tree.root
    assert tree.changes == 0


def test_found_from_below(tree: FakeTree, tmp_path: Path) -> None:
    """Whoever an earlier parent took along starts the next one in its group: the delegated one is above."""
    groups = begun(tree)
    below = groups.base / f"bulkhead-{OURS}"
    (tmp_path / "proc/self/cgroup").write_text(f"0::/system.slice/bulkhead.service/{below.name}\n")
    assert find(root=tmp_path).base == tree.root


def write(name: str, content: str) -> Callable[[Path], object]:
    """A host that differs in one file of the unit's cgroup."""
    return lambda root: (root / UNIT / name).write_text(content)


@pytest.mark.parametrize(
    ("differ", "words"),
    [
        (lambda root: (root / "proc/self/cgroup").write_text("4:memory:/x\n"), "in no cgroup v2"),
        (lambda root: (root / "proc/self/cgroup").write_text("0::/../other\n"), "in no cgroup v2"),
        (lambda root: (root / "proc/self/mountinfo").write_text(""), "in no cgroup v2"),
        (lambda root: (root / UNIT / "cgroup.controllers").unlink(), "cannot read the cgroup"),
        (write("cgroup.controllers", "cpu io pids"), "no memory controller"),
        (write("cgroup.type", "threaded"), "is threaded"),
        (write("cgroup.type", "domain invalid"), "is domain invalid"),
        (lambda root: (root / UNIT / "cgroup.type").unlink(), "the host's own root"),
        (write("cgroup.procs", f"{OURS}\n{os.getppid()}\n"), f"process {os.getppid()} lives there too"),
        (write("cgroup.procs", f"{OURS}\n0\n"), "process 0 lives there too"),
    ],
    ids=["v1", "outside", "no mount", "hidden", "no memory", "threaded", "invalid", "root", "shell", "namespace"],
)
def test_not_ours(tree: FakeTree, tmp_path: Path, differ: Callable[[Path], object], words: str) -> None:
    """What is not delegated is left alone, and the reason is a sentence."""
    differ(tmp_path)
    assert words in refused(tmp_path)


def test_not_writable(tree: FakeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit without Delegate= cannot write its own cgroup, and hears which setting is missing."""
    monkeypatch.setattr(os, "access", lambda *_: False)  # these tests run as root, whom no mode refuses
    assert "Delegate=memory pids" in refused(tmp_path)


def test_roots_unit_without_delegation(tree: FakeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What systemd started as root can write its cgroup, and must not: systemd has not given it away."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(OURS))
    assert "systemd, which has not delegated it" in refused(tmp_path)


def test_marked_by_systemd(tree: FakeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systemd's mark is proof, whoever lives there."""
    monkeypatch.setattr(os, "getxattr", lambda _path, _name: b"1")
    tree.put(tree.root, OURS, os.getppid())
    assert find(root=tmp_path).base == tree.root


def test_begin(tree: FakeTree) -> None:
    """All of the unit goes into the parent's own group; then groups have limits, and the zygote one of its own."""
    tree.put(tree.root, OURS, 17)
    with capture_logs() as logs:
        groups = begun(tree)
    assert pids(tree, tree.root) == []
    assert pids(tree, tree.root / f"bulkhead-{OURS}") == [OURS, 17]
    assert tree.read(tree.root / "cgroup.subtree_control") == "memory pids"
    groups.enter_zygote(18)
    assert pids(tree, tree.root / f"bulkhead-{OURS}-zygote") == [18]
    assert logs == [{"event": "cgroup.claimed", "folder": str(tree.root), "log_level": "info"}]


def test_without_pids(tmp_path: Path) -> None:
    """The memory controller is enough."""
    tree = FakeTree(tmp_path, controllers="memory")
    child = begun(tree).for_child(memory_bytes=2**20, tasks=50)
    child.place(20)
    assert child.holds


def test_child(tree: FakeTree) -> None:
    """A child's group has its limits before the child enters; leaving takes everything with it."""
    child = begun(tree).for_child(memory_bytes=512, tasks=50)
    folder = tree.root / f"bulkhead-{OURS}-child-1"
    limits = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.max.descendants")
    assert [tree.read(folder / name) for name in limits] == ["512", "0", "1", "50", "0"]
    before = child.holds
    child.place(20)
    assert (before, child.holds) == (False, True)
    assert pids(tree, folder) == [20]
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n")
    (folder / "memory.peak").write_text("4096\n")
    assert (child.oom_kills(), child.peak_bytes()) == (2, 4096)
    child.remove()
    assert names(tree) == {f"bulkhead-{OURS}", f"bulkhead-{OURS}-zygote"}
    assert (child.oom_kills(), child.peak_bytes()) == (0, None)


def test_old_kernel(tmp_path: Path) -> None:
    """Without `cgroup.kill` and `memory.peak` processes are killed one by one, and the peak is not known."""
    tree = FakeTree(tmp_path, kill_file=False)
    groups = begun(tree)
    child = groups.for_child(memory_bytes=512, tasks=50)
    folder = tree.root / f"bulkhead-{OURS}-child-1"
    (folder / "memory.peak").unlink()
    (folder / "memory.swap.max").unlink()
    tree.put(folder, 21, 22)
    assert child.peak_bytes() is None
    child.remove()
    assert not folder.exists()


@pytest.mark.parametrize("missing", ["memory.swap.max", "pids.max", "cgroup.max.descendants", "memory.oom.group"])
def test_file_that_a_kernel_lacks(tree: FakeTree, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Swap accounting and the like may be off; the memory limit stands all the same."""
    groups = begun(tree)
    make = tree.make

    def without(folder: Path) -> None:
        make(folder)
        (folder / missing).unlink()

    monkeypatch.setattr(tree, "make", without)
    child = groups.for_child(memory_bytes=512, tasks=50)
    child.place(20)
    assert child.holds


def test_no_group_to_be_had(tree: FakeTree) -> None:
    """A tree that takes no more groups costs the group: the child goes without, and that is told once."""
    groups = begun(tree)
    (tree.root / "cgroup.subtree_control").write_text("")
    with capture_logs() as logs:
        child = groups.for_child(memory_bytes=512, tasks=50)
        child.place(20)
    assert not child.holds
    assert [line["event"] for line in logs] == ["cgroup.failed"]
    assert names(tree) == {f"bulkhead-{OURS}", f"bulkhead-{OURS}-zygote"}


def test_child_that_cannot_enter(tree: FakeTree) -> None:
    """A child outside its group is not held, so samples hold it."""
    child = begun(tree).for_child(memory_bytes=512, tasks=50)
    (tree.root / f"bulkhead-{OURS}-child-1/cgroup.subtree_control").write_text("memory")
    with capture_logs() as logs:
        child.place(20)
    assert not child.holds
    assert [line["event"] for line in logs] == ["cgroup.failed"]


def test_child_that_has_ended(tree: FakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ended before it could be placed is no failure of the cgroup's."""
    child = begun(tree).for_child(memory_bytes=512, tasks=50)

    def gone(_path: Path, _text: str) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(tree, "write", gone)
    with capture_logs() as logs:
        child.place(20)
    assert (child.holds, logs) == (False, [])


def test_cannot_be_divided(tree: FakeTree) -> None:
    """When the kernel refuses, the daemon starts without groups and says why."""
    (tree.root / "cgroup.controllers").write_text("pids")
    with capture_logs() as logs:
        assert cgroup.claim(Place(base=tree.root), tree=tree) is None
    assert [line["event"] for line in logs] == ["cgroup.unavailable"]
    assert "cannot be divided" in logs[0]["reason"]


def test_nothing_to_claim(tree: FakeTree) -> None:
    """Said once, with the reason; nothing is touched."""
    with capture_logs() as logs:
        assert cgroup.claim(Place(reason="this host has v1"), tree=tree) is None
    assert (logs[0]["event"], logs[0]["reason"]) == ("cgroup.unavailable", "this host has v1")
    assert tree.changes == 0


def laid_out_by_a_dead_parent(tree: FakeTree) -> None:
    """What a SIGKILLed parent leaves: its groups, and processes that outlived it."""
    tree.put(tree.root)
    tree.write(tree.root / "cgroup.subtree_control", "+memory")
    for name, left in {"": [], "-zygote": [], "-child-1": [31, 32], "-child-12": []}.items():
        tree.make(tree.root / f"bulkhead-{DEAD}{name}")
        tree.put(tree.root / f"bulkhead-{DEAD}{name}", *left)
    tree.make(tree.root / "not-ours")
    tree.put(tree.root / "not-ours", 40)


def test_leftovers(tree: FakeTree) -> None:
    """Groups of a dead parent are removed with what lives in them; others are left alone."""
    laid_out_by_a_dead_parent(tree)
    begun(tree)
    assert names(tree) == {"not-ours", f"bulkhead-{OURS}", f"bulkhead-{OURS}-zygote"}


def test_parent_that_lives(tree: FakeTree) -> None:
    """Two parents below one cgroup: the second leaves the first one's children alone."""
    laid_out_by_a_dead_parent(tree)
    tree.put(tree.root / f"bulkhead-{DEAD}", DEAD)
    begun(tree)
    assert f"bulkhead-{DEAD}-child-1" in names(tree)
    assert pids(tree, tree.root / f"bulkhead-{DEAD}-child-1") == [31, 32]


def test_company_that_outlived_a_parent(tree: FakeTree) -> None:
    """A shell that a dead parent took along keeps its group; the dead one's children go."""
    laid_out_by_a_dead_parent(tree)
    tree.put(tree.root / f"bulkhead-{DEAD}", 50)
    begun(tree)
    assert f"bulkhead-{DEAD}" in names(tree)
    assert f"bulkhead-{DEAD}-child-1" not in names(tree)


def life(tree: FakeTree) -> None:
    """A parent's whole life, with two children, one of which is still there at its end."""
    groups = begun(tree)
    groups.enter_zygote(60)
    first, second = (groups.for_child(memory_bytes=512, tasks=50) for _ in range(2))
    first.place(61)
    second.place(62)
    first.remove()
    tree.put(tree.root / f"bulkhead-{OURS}-zygote")
    groups.close()


def steps_of_a_life(tmp_path: Path) -> int:
    """How many changes a life makes."""
    tree = FakeTree(tmp_path / "counted")
    tree.put(tree.root, OURS)
    life(tree)
    return tree.changes


def test_killed_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever change a parent dies before, the next parent of the cgroup begins, and nothing of the first is left."""
    steps = steps_of_a_life(tmp_path)
    assert steps > 15
    for step in range(steps + 1):
        tree = FakeTree(tmp_path / str(step))
        tree.put(tree.root, OURS)
        tree.steps_left = step
        try:
            life(tree)
        except Unplugged:
            assert step < steps
        tree.steps_left = None
        # systemd starts the next one in the unit's own cgroup; the kernel has taken the dead one out of all groups.
        for folder in [tree.root, *tree.root.glob("*/")]:
            tree.put(folder, *(pid for pid in pids(tree, folder) if pid != OURS))
        if not tree.read(tree.root / "cgroup.subtree_control"):
            tree.put(tree.root, DEAD)
        Groups(tree, tree.root, pid=DEAD).begin()
        assert names(tree) == {f"bulkhead-{DEAD}", f"bulkhead-{DEAD}-zygote"}, step
        assert pids(tree, tree.root) == [], step


def test_this_host(tmp_path: Path) -> None:
    """Wherever the tests run, the question has an answer, and asking changes nothing."""
    place = find()
    assert (place.base is None) == bool(place.reason)
    assert host.own_cgroup2(root=tmp_path) is None


def test_no_tree_at_all() -> None:
    """A folder that is no cgroup is refused by the tree itself, and no file is made in it."""
    with pytest.raises(FileNotFoundError):
        Tree().write(Path("/nonexistent/cgroup.procs"), "1")
