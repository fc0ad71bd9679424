"""The contract's instants are those of one clock: what a ledger reads the time from shows each call's `now`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.ledger_sqlite import SqliteLedger
from tests.contract.ledger_contract import HERE, T0

#: Of the host, at the beginning of the story.
UPTIME_S = 1_000.0


class OnTime:
    """A ledger or recovery before each call of which `turn` is told the call's `now`."""

    def __init__(self, edge: object, turn: Callable[[datetime], None]) -> None:
        self.edge = edge
        self._turn = turn

    def beside(self, edge: object) -> Any:
        """Another edge on the same clocks."""
        return OnTime(edge, self._turn)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.edge, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if "now" in kwargs:
                self._turn(kwargs["now"].astimezone(UTC))
            return value(*args, **kwargs)

        return call if callable(value) else value


class StoryClock:
    """Both clocks of a host that booted `UPTIME_S` before the story begins, and whose wall clock is right."""

    def __init__(self) -> None:
        self._now = T0

    def turn(self, now: datetime) -> None:
        """It is this instant."""
        self._now = now

    def now(self) -> datetime:
        """The wall clock."""
        return self._now

    def monotonic(self) -> float:
        """The uptime."""
        return UPTIME_S + (self._now - T0).total_seconds()


@contextmanager
def sqlite_on_time(path: Path, *, notices: bool = False) -> Iterator[Any]:
    """An empty file for the contract, whose story takes place within one boot."""
    clock = StoryClock()
    with closing(SqliteLedger.open(path, notices=notices, clock=clock, boot_id=HERE.boot_id)) as ledger:
        yield OnTime(ledger, clock.turn)
