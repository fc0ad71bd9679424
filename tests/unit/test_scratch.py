"""Scratch folders and packs: gone, or decided, whatever was made of them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from daemon import kept_pages
from daemon.model import Cause
from daemon.scratch import remove_tree
from tests.shell.test_parent import Bench, running


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is gone after the test even when the test fails.

    Pytest's own clean-up of `tmp_path` is not safe against a deep tree: one that is left behind breaks a later run.
    """
    made = Path(tempfile.mkdtemp(prefix="bulkhead-scratch-"))
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def test_a_tree_too_deep_for_python(folder: Path) -> None:
    """1,500 folders inside each other: removed, and nothing is raised."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    remove_tree(folder)
    assert not folder.exists()


def test_a_full_disk_under_the_pack_releases_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finished page does not fit: the message goes back as `disk_full`, and closing the pack does not hide that."""

    def full(**_: object) -> BinaryIO:
        return Path("/dev/full").open("r+b", buffering=1024)

    monkeypatch.setattr(kept_pages, "_IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    bench = Bench(workers=1)
    bench.send("big")
    with running(bench):
        bench.wait_for_news(1)
    assert bench.released[:1] == [Cause.DISK_FULL]
