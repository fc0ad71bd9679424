"""A host that stood still: a paused machine, a frozen cgroup, a snapshot. Nobody's document is slow for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.model import Cause
from tests.process.conftest import Ward

pytestmark = pytest.mark.process


class JumpingClock(SystemClock):
    """The host's monotonic clock, which a test lets jump as a paused machine's does."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """Later than it is."""
        return super().monotonic() + self.ahead_s


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    """One whose clock jumps."""
    made = Ward("zygote", tmp_path)
    made.clock = JumpingClock()
    made.children = made.with_clock(made.clock)
    made.children.start()
    yield made
    made.children.stop()


def frozen_amid(ward: Ward, text: str, *, for_s: float, deadline_s: float = 60.0) -> Cause:
    """Let the host stand still once the first page is done; how the child ends."""
    assert isinstance(ward.clock, JumpingClock)
    clock, gone_on = ward.clock, threading.Event()

    def freeze() -> None:
        gone_on.wait(1.0)  # by then the watch waits again; sooner, the jump would be seen at once, and the same
        clock.ahead_s += for_s

    thread = threading.Thread(target=freeze)

    def begin(*_: object) -> None:
        if not thread.is_alive() and clock.ahead_s == 0.0:
            thread.start()

    cause = ward.run(text, deadline_s=deadline_s, on_page=begin).outcome.cause
    thread.join()
    return cause


def test_a_frozen_host_is_no_slow_document(ward: Ward) -> None:
    """Eight hours in which nothing ran end neither at the deadline of a minute nor in a stall."""
    assert frozen_amid(ward, "first\nwait 3\nlast", for_s=8 * 3600.0) is Cause.CONVERTED


def test_a_slow_document_after_a_freeze_is_still_slow(ward: Ward) -> None:
    """What was lost is granted again, and no more."""
    assert frozen_amid(ward, "first\nwait 9999", for_s=8 * 3600.0, deadline_s=4.0) is Cause.TIMEOUT
