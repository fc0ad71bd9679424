"""What a child can do and leave behind where no sandbox keeps it from it. Both ways to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.model import Cause
from tests.process.conftest import Ward, is_gone, standby

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture(scope="module", params=["zygote", "spawn"])
def ward(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """A parent on a kernel that has nothing to lock a child with."""
    made = Ward(request.param, tmp_path_factory.mktemp("scratch"), sandbox="off")
    made.children.start()
    if request.param == "zygote":
        standby(made.children)
    yield made
    made.children.stop()


@pytest.mark.parametrize("kind", ["grandchild", "grandchild-setsid"])
@pytest.mark.parametrize("ending", ["", "child.result=segv", "child.result=hang"])
def test_grandchild(ward: Ward, tmp_path: Path, kind: str, ending: str) -> None:
    """What a child started ends with it, in its group or out of it, however the child ended."""
    pid_file = tmp_path / "pid"
    result = ward.run(f"{kind} {pid_file}", failpoints=ending, deadline_s=ward.hang_s if "hang" in ending else 60)
    assert result.outcome.cause is {"": Cause.CONVERTED, "child.result=segv": Cause.CRASHED}.get(ending, Cause.TIMEOUT)
    assert is_gone(int(pid_file.read_text()))


def test_scratch_that_resists(ward: Ward) -> None:
    """A folder without modes is removed like any other."""
    assert ward.run("lock-scratch").outcome.cause is Cause.CONVERTED


def test_memory_without_an_address(ward: Ward) -> None:
    """Memory that only descriptors hold is counted, and the child is killed at its limit."""
    outcome = ward.run("a\nfill-memfds").outcome
    assert (outcome.cause, outcome.signal, outcome.page) == (Cause.MEMORY, "SIGKILL", 2)
    assert "killed at its memory limit in ocr of page 2" in outcome.detail
