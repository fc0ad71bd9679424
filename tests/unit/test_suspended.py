"""The note of a suspended host: there while it is, and never a reason to stop."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon.suspended import notes, suspension
from tests.fakes.clock import FakeClock


def test_from_the_first_failed_canary_to_the_one_that_converts(tmp_path: Path) -> None:
    """Since when does not move with each canary; why does; afterwards there is nothing."""
    clock = FakeClock()
    note = notes(tmp_path, clock=clock, pid=7)
    assert suspension(tmp_path, now=clock.now()) is None
    began = clock.now()
    note("the canary died")
    clock.advance(60)
    note("x" * 100_000)
    told = suspension(tmp_path, now=clock.now())
    assert told == {"since": began.isoformat(), "suspended_s": 60.0, "pid": 7, "detail": "x" * 1_000}
    note(None)
    note(None)
    assert suspension(tmp_path, now=clock.now()) is None
    assert list(tmp_path.iterdir()) == []
    clock.advance(60)
    note("again")
    told = suspension(tmp_path, now=clock.now() + timedelta(seconds=1))
    assert told is not None
    assert told["suspended_s"] == 1.0


def test_what_a_dead_parent_left(tmp_path: Path) -> None:
    """A new life begins unsuspended."""
    notes(tmp_path, clock=FakeClock(), pid=1)("died of it")
    notes(tmp_path, clock=FakeClock(), pid=2)
    assert suspension(tmp_path, now=FakeClock().now()) is None


def test_no_room_for_a_note(tmp_path: Path) -> None:
    """It is said, and the daemon goes on: a folder that is gone stands for every OSError."""
    folder = tmp_path / "state"
    folder.mkdir()
    note = notes(folder, clock=FakeClock(), pid=1)
    folder.rmdir()
    with capture_logs() as logs:
        note("the canary died")
    assert [line["event"] for line in logs] == ["host.not_noted"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"since": "yesterday"}', '{"since": 1, "detail": 2, "pid": 3}'])
def test_a_damaged_note(tmp_path: Path, text: str) -> None:
    """`bulkhead status` shows everything else."""
    (tmp_path / "suspended.json").write_text(text)
    assert suspension(tmp_path, now=FakeClock().now()) is None
