"""The note of who waits for memory: there while somebody does, and never a reason to stop."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from daemon.admission import Ask, Pool
from daemon.cli import app
from daemon.held_back import held_back, notes
from daemon.ledger_sqlite import SqliteLedger
from daemon.sizing import GIB
from daemon.standing import Phase, Standing
from daemon.turns import HeldBack, Turns
from tests.fakes.clock import FakeClock


def test_while_somebody_waits(tmp_path: Path) -> None:
    """What was noted last is read; when nobody waits any more, there is no file."""
    note = notes(tmp_path, clock=FakeClock(), pid=1)
    note((("a", 7 * GIB), ("b", 5)))
    assert held_back(tmp_path) == [{"document_id": "a", "need_bytes": 7 * GIB}, {"document_id": "b", "need_bytes": 5}]
    note(())
    note(())
    assert held_back(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_parent_left(tmp_path: Path) -> None:
    """A new life begins with nobody waiting."""
    notes(tmp_path, clock=FakeClock(), pid=1)((("a", 1),))
    notes(tmp_path, clock=FakeClock(), pid=2)
    assert held_back(tmp_path) == []


def test_no_room_for_a_note(tmp_path: Path) -> None:
    """It is said, and the daemon goes on."""
    folder = tmp_path / "state"
    folder.mkdir()
    note = notes(folder, clock=FakeClock(), pid=1)
    folder.rmdir()
    with capture_logs() as logs:
        note((("a", 1),))
    assert [line["event"] for line in logs] == ["host.not_noted"]


def test_status_shows_who_waits_and_for_how_much(tmp_path: Path) -> None:
    """For a person and for a program, from beside the daemon."""
    SqliteLedger.open(tmp_path / "ledger.db").close()
    arguments = ["status", "--state-dir", str(tmp_path)]
    nobody = CliRunner().invoke(app, arguments)
    assert nobody.exit_code == 0
    assert "waiting for memory" not in nobody.stdout
    notes(tmp_path, clock=FakeClock(), pid=1)((("a", 7 * GIB),))
    told_a_person = " ".join(CliRunner().invoke(app, arguments).stdout.split())
    assert "waiting for memory, which others have: a needs 7.0 GiB" in told_a_person
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert told["held_back"] == [{"document_id": "a", "need_bytes": 7 * GIB}]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"documents": 1}', '{"documents": [{}]}', '{"documents": [{"document_id": 1}]}']
)
def test_a_damaged_note(tmp_path: Path, text: str) -> None:
    """`bulkhead status` shows everything else."""
    (tmp_path / "held_back.json").write_text(text)
    assert held_back(tmp_path) == []


def test_turns_note_each_change_once() -> None:
    """Who waits for a worker is not noted; who waits for memory is, from its asking to its turn."""
    noted: list[HeldBack] = []
    turns = Turns(Pool(workers=2, share_bytes=4, total_bytes=8, most_bytes=8), note=noted.append)
    with turns.line_up(Ask(need_bytes=4)), turns.line_up(Ask(need_bytes=4)) as second:
        third = turns.line_up()
        third.ask(Ask(need_bytes=4, name="for a worker"))
        assert noted == []
        third.end()
        big = turns.line_up()
        big.ask(Ask(need_bytes=7, name="big"))
        assert noted == []
        second.end()
        assert noted == [(("big", 7),)]
    assert noted == [(("big", 7),), ()]
    assert big.memory_bytes == 7
    big.end()
    assert noted == [(("big", 7),), ()]


def test_the_units_sentence_says_it() -> None:
    """`systemctl status` of a host whose worker idles says why."""
    now = datetime(2026, 12, 1, tzinfo=UTC)
    standing = Standing(phase=Phase.RECEIVING, in_hand=2, oldest_received_s=0.0, held_back=1)
    assert standing.sentence(now=now, monotonic_s=0.0).endswith("UTC; 1 waiting for memory")


def test_a_turn_that_asks_again_is_not_called_before_its_time() -> None:
    """What called it first must not call it a second time; nothing is left open."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as the kernel lists them
    turns = Turns(Pool(workers=2, share_bytes=4, total_bytes=8, most_bytes=8))
    called = []
    with turns.line_up() as first, turns.line_up() as second:
        called.append(first.called)
        first.ask(Ask(need_bytes=7))
        called.append(first.called)
        second.end()
        called.append(first.called)
        assert first.memory_bytes == 7
    assert called == [True, False, True]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - the same
