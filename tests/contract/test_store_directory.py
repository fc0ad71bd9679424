"""What only the folder store must do: outlive kills at every step, full disks, rivals and odd folders."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from daemon import store_directory
from daemon.errors import ResourceError, WorldError
from daemon.model import MANIFEST, Cause
from daemon.store_directory import DirectoryStore
from tests.contract.store_contract import ID, attempt_of, publish

#: Publishes attempt 2 in one child per n that is killed at its n-th change to the file system, until one survives.
#: Prints the number of kills. Every child has a root of its own, ROOT/n, where attempt 1 may be published.
KILLER = """
import os, signal, sys
from pathlib import Path
from daemon.store_directory import DirectoryStore
from tests.contract.store_contract import publish

root, republish = Path(sys.argv[1]), sys.argv[2] == "republish"
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir"}

def kill_at(n):
    left = [n]
    def hook(event, args):
        if event in CHANGES and str(args[0]).startswith(str(root)):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

n = 0
while True:
    store = DirectoryStore(root / str(n))
    store.root.mkdir()
    if republish:
        publish(store, 1)
    child = os.fork()
    if child == 0:
        kill_at(n)
        publish(store, 2, preview=not republish)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    n += 1
print(n)
"""

#: Publishes 2 MB where no file may be larger than 1 MB.
FILLER = """
import resource, signal, sys
from pathlib import Path
from daemon.errors import WorldError
from daemon.store_directory import DirectoryStore

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
artefacts = {"document.md": b"x", "document.json": b"x" * 2**21}
try:
    DirectoryStore(Path(sys.argv[1])).put("report-1", fence=2, artefacts=artefacts, manifest={"fencing_token": 2})
except WorldError as error:
    print(error.cause, error)
"""


def run(script: str, *arguments: str) -> str:
    """What a Python of its own prints, run from the repository's root."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


def visible(root: Path) -> Mapping[str, bytes]:
    """What a reader finds of the document."""
    folder = root / ID
    paths = folder.iterdir() if folder.exists() else ()
    return {path.name: path.read_bytes() for path in paths if not path.name.startswith(".")}


@pytest.mark.process
@pytest.mark.parametrize(("before", "possible"), [("fresh", {None, 2}), ("republish", {1, None, 2})])
def test_killed_at_every_step(tmp_path: Path, before: str, possible: set[int | None]) -> None:
    """A writer killed anywhere leaves the old publication, none, or the new one; the next attempt succeeds."""
    kills = int(run(KILLER, str(tmp_path), before))
    assert kills >= 8
    found = []
    for n in range(kills + 1):
        root = tmp_path / str(n)
        found.append(attempt_of(visible(root)))
        publish(DirectoryStore(root), 3, preview=False)
        assert attempt_of(visible(root)) == 3
        assert {path.name for path in (root / ID).iterdir()} == {*visible(root), ".lock"}
    assert set(found) == possible
    assert found[-1] == 2


def test_full_disk(tmp_path: Path) -> None:
    """Without room, the old publication stays whole, nothing half written is left, and the cause is the disk's."""
    publish(DirectoryStore(tmp_path), 1)
    cause, _, message = run(FILLER, str(tmp_path)).partition(" ")
    assert cause == Cause.DISK_FULL
    assert str(tmp_path / ID) in message
    assert attempt_of(visible(tmp_path)) == 1
    assert {path.name for path in (tmp_path / ID).iterdir()} == {*visible(tmp_path), ".lock"}


def test_other_process_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process publishes the document we wait, and not for ever."""
    monkeypatch.setattr(store_directory, "LOCK_TRIES", 2)
    store = DirectoryStore(tmp_path)
    publish(store, 1)
    with (tmp_path / ID / ".lock").open("r+") as rival:
        fcntl.flock(rival, fcntl.LOCK_SH)  # even one who only reads under the lock is waited for
        with pytest.raises(WorldError, match="keeps it locked") as caught:
            publish(store, 2)
        assert caught.value.cause is Cause.STORE_UNAVAILABLE
    publish(store, 2)
    assert attempt_of(visible(tmp_path)) == 2


def test_root_that_is_gone(tmp_path: Path) -> None:
    """A folder that is not mounted is never made in its place: the world's problem at work, the operator's at start."""
    store = DirectoryStore(tmp_path / "unmounted")
    with pytest.raises(WorldError) as caught:
        publish(store, 1)
    assert caught.value.cause is Cause.STORE_UNAVAILABLE
    with pytest.raises(ResourceError, match=r"cannot publish to .*unmounted.*Create it, or mount it"):
        store.check()
    assert not (tmp_path / "unmounted").exists()


def test_root_that_is_a_file(tmp_path: Path) -> None:
    """What is no folder is said at start."""
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="no such folder"):
        DirectoryStore(tmp_path / "file").check()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_root_that_may_not_be_written(tmp_path: Path) -> None:
    """A missing right is named at start."""
    tmp_path.chmod(0o500)
    with pytest.raises(ResourceError, match="right to write"):
        DirectoryStore(tmp_path).check()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_manifest_that_is_none(tmp_path: Path, content: bytes) -> None:
    """Bytes that are no manifest are no result to a reader, and do not stand in the way of one."""
    store = DirectoryStore(tmp_path)
    publish(store, 1)
    (tmp_path / ID / MANIFEST).write_bytes(content)
    assert store.manifest(ID) is None
    publish(store, 1)
    assert attempt_of(visible(tmp_path)) == 1


def test_readable_manifest(tmp_path: Path) -> None:
    """A person can read the manifest as it lies there."""
    store = DirectoryStore(tmp_path)
    location = publish(store, 1)
    text = Path(location).read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert text == json.dumps(store.manifest(ID), ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def test_descriptors(tmp_path: Path) -> None:
    """A thousand documents leave no descriptor open."""
    store = DirectoryStore(tmp_path)
    publish(store, 1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for attempt in range(2, 12):
        publish(store, attempt)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
