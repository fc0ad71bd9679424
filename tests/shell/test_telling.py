"""One alert for each problem, counted, and a digest instead of the four-hundredth: as Sentry's endpoint gets them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from daemon import alerts
from daemon import log as log_module
from daemon.config import LogSettings
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause
from daemon.recovery import Parked
from daemon.recovery_sqlite import SqliteRecovery
from daemon.telling import AGAIN_AFTER, DIGEST, DIGEST_EVERY, MOST_ALERTS, tell
from tests.fakes.clock import FakeClock
from tests.unit.test_alerts import Endpoint


class Told:
    """A ledger with parked documents, and what Sentry hears of them."""

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self.ledger = SqliteLedger.open(folder / "ledger.db")
        self.recovery = SqliteRecovery(self.ledger)
        self.clock = FakeClock()
        self._endpoint = endpoint
        self._number = 0

    def park(self, count: int, **fields: Any) -> None:
        """So many more."""
        for _ in range(count):
            self._number += 1
            parked = Parked(key=f"d{self._number:05}", body="b", cause=Cause.CRASHED, since=self.clock.now())
            self.recovery.park(replace(parked, **fields))

    def tell(self) -> list[dict[str, Any]]:
        """One sweep's telling, and the events that came of it."""
        alerts.configure(self._endpoint.settings)
        tell(self.recovery, clock=self.clock, note=lambda *_: True)
        alerts.flush(timeout_s=20)
        return [self._endpoint.event()[0] for _ in range(self._endpoint.received.qsize())]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """Nothing parked yet."""
    before = list(logging.getLogger().handlers)
    log_module.configure(LogSettings(), stream=io.StringIO())
    endpoint = Endpoint()
    told = Told(tmp_path, endpoint)
    yield told
    alerts.flush()
    endpoint.close()
    told.ledger.close()
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = before
    logging.captureWarnings(capture=False)


def names(events: list[dict[str, Any]]) -> list[str]:
    """Which events they are."""
    return [event["tags"]["event"] for event in events]


def test_four_hundred_of_one_problem_and_forty_problems(told: Told) -> None:
    """Eleven events: the ten largest problems each by itself, one digest for the other thirty-one; then silence."""
    told.park(400, signal="SIGSEGV")
    for number in range(40):
        told.park(1 + (number < 9), signal=f"S{number:02}")
    events = told.tell()
    assert names(events) == ["document.parked"] * MOST_ALERTS + ["parking.summed_up"]
    assert [event["tags"]["count"] for event in events] == ["400", *["2"] * 9, "31"]
    assert (events[-1]["tags"]["problems"], events[-1]["tags"]["causes"]) == ("31", "crashed 31")
    assert events[-1]["fingerprint"] == ["parking.summed_up"], "all digests are one issue"
    assert len({tuple(event["fingerprint"]) for event in events}) == 11
    assert all(each.alerted for each in told.recovery.parked())
    told.clock.advance(2 * AGAIN_AFTER.total_seconds())
    assert told.tell() == []


def test_four_hundred_one_after_the_other(told: Told) -> None:
    """One document every ten minutes: an alert a day, a digest an hour, and every document counted once."""
    told.park(1)
    assert names(told.tell()) == ["document.parked"]
    counted, events = 1, []
    for _ in range(400):
        told.clock.advance(600)
        told.park(1)
        events += (heard := told.tell())
        counted += sum(int(event["tags"]["count"]) for event in heard)
    kinds = names(events)
    assert (kinds.count("document.parked"), kinds.count("parking.summed_up")) == (2, 67), "of 4,000 minutes"
    assert counted == 401 - sum(not each.alerted for each in told.recovery.parked())
    told.clock.advance(DIGEST_EVERY.total_seconds())
    counted += sum(int(event["tags"]["count"]) for event in told.tell())
    assert counted == 401


def test_a_new_problem_is_told_at_once(told: Told) -> None:
    """Another signal, stage or engine is no news of the old one."""
    told.park(1, build="1")
    told.tell()
    told.park(1, build="1")
    told.park(1, build="2")
    assert [(event["tags"]["event"], event["tags"].get("build")) for event in told.tell()] == [
        ("document.parked", "2"),
        ("parking.summed_up", None),
    ]


@pytest.mark.parametrize("written", ["", "yesterday", "2026-01-01T00:00:00", "2099-01-01T00:00:00+00:00"])
def test_a_note_that_cannot_be_right_mutes_nothing(told: Told, written: str) -> None:
    """A clock that once was wrong must not silence a year of digests."""
    told.park(1)
    (entry,) = told.recovery.parked()
    told.recovery.write_note(f"told {entry.problem}", written)
    told.recovery.write_note(DIGEST, written)
    assert names(told.tell()) == ["document.parked"]
    told.park(1)
    assert names(told.tell()) == ["parking.summed_up"]


def test_what_is_on_its_way_back_is_not_told(told: Told) -> None:
    """A person has acted already."""
    told.park(1)
    told.recovery.retry("d00001", now=told.clock.now() + timedelta(seconds=1))
    assert told.tell() == []
