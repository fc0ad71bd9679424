"""When this process has no descriptor left: by the kernel's own limit, at every point where one is needed."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from daemon import sandbox
from daemon.children import Deadlines, KillSwitch
from daemon.errors import EngineError
from daemon.launch import Ends
from daemon.model import Cause, Plan
from tests.process.conftest import Ward, job_of

pytestmark = pytest.mark.process


@pytest.fixture
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BinaryIO]:
    """A document of one page."""
    path = tmp_path_factory.mktemp("documents") / "document"
    path.write_bytes(b"a")
    with path.open("rb") as file:
        yield file


@pytest.fixture
def leave(document: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Lets this process open so many descriptors more and no others; as many as before, afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(sandbox.open_descriptors())
    gaps = [os.open(os.devnull, os.O_RDONLY)]
    while gaps[-1] < top:
        gaps.append(os.open(os.devnull, os.O_RDONLY))
    full = max(*gaps, top) + 1
    yield lambda number: resource.setrlimit(resource.RLIMIT_NOFILE, (full + number, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for descriptor in gaps:
        os.close(descriptor)


def test_ends(document: BinaryIO, leave: Callable[[int], None]) -> None:
    """However many ends of a child could be opened: when one cannot, all the others are given back."""
    refused = 0
    before = sandbox.open_descriptors()
    for spare in range(12):
        leave(spare)
        try:
            Ends(document).close()
        except OSError:
            refused += 1
        leave(100)
        assert sandbox.open_descriptors() == before, spare
    assert refused == 7


def test_run(tmp_path: Path, document: BinaryIO, leave: Callable[[int], None]) -> None:
    """With any number of descriptors to spare a document converts, or nobody pays for it; and nothing is left."""
    ward = Ward("zygote", tmp_path)
    ward.children.start()
    switch = KillSwitch()
    before = ward.census()
    ended: list[object] = []
    for spare in range(20):
        leave(spare)
        try:
            result = ward.children.run(
                job_of(Plan(), ""),
                document,
                finished=None,
                deadlines=Deadlines(started=ward.clock.monotonic(), base_s=60, per_page_s=0, longest_s=60),
                switch=switch,
                on_page=lambda _record, _pages: None,
            )
            ended.append(result.outcome.cause)
        except (OSError, EngineError) as error:
            ended.append(type(error))
    leave(100)
    assert set(ended) <= {Cause.CONVERTED, Cause.ZYGOTE_DIED, OSError, EngineError}
    assert (ended[0], ended[-1]) == (OSError, Cause.CONVERTED)
    after = ward.census()
    ward.children.stop()
    assert (after.descriptors, after.processes, after.scratch) == (before.descriptors, before.processes, before.scratch)
