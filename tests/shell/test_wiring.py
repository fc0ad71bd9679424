"""What `assembled` opens is given back in reverse, whatever happens; the ledger is real, the children only tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from daemon.children import Children
from daemon.clock import SystemClock
from daemon.config import Settings, StoreSettings
from daemon.errors import EngineError
from daemon.ledger_sqlite import SqliteLedger
from daemon.queue_local import LocalQueue
from daemon.warming import Warming, sizing_of
from daemon.wiring import assembled, ledger_path
from tests.fakes.store import MemoryStore


class Watched:
    """Children of which somebody is still watching one when they are stopped: that is when its end is written down."""

    def __init__(self, write_down: Callable[[], object], *, starts: bool) -> None:
        self._write_down = write_down
        self._starts = starts
        self.stopped = 0

    def start(self) -> Mapping[str, object]:
        """See `Children.start`."""
        if not self._starts:
            raise EngineError("cannot load the engine")
        return {"engine": "none"}

    def stop(self) -> None:
        """See `Children.stop`."""
        self._write_down()
        self.stopped += 1


@pytest.mark.parametrize("how", ["left", "raised", "never started"])
def test_children_are_stopped_before_the_ledger_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Else a child's end could not be written down, and the next life would blame the document for it."""
    settings = Settings(state_dir=tmp_path, store=StoreSettings(url=str(tmp_path / "out")))
    ledger = SqliteLedger.open(ledger_path(settings))
    monkeypatch.setattr("daemon.wiring.open_ledger", lambda *_, **__: ledger)
    children = Watched(ledger.counts, starts=how != "never started")
    warm = Warming(children=cast("Children", children), sizing=sizing_of(settings))
    queue = LocalQueue(clock=SystemClock())
    with suppress(EngineError), assembled(settings, queue=queue, store=MemoryStore(), warm=warm):
        if how == "raised":
            raise EngineError("cannot go on")
    assert children.stopped == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        ledger.counts()
