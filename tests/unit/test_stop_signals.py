"""SIGINT and SIGTERM, raised in this process: told while somebody listens, and as they were before and afterwards."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import cast

import pytest

from daemon.parent import Parent
from daemon.serve import drain_or_end
from daemon.stop_signals import on_stop_signal

BOTH = (signal.SIGINT, signal.SIGTERM)


class Drains:
    """A parent that only remembers how it was told to stop."""

    def __init__(self) -> None:
        self.at_once: list[bool] = []

    def request_stop(self, *, at_once: bool) -> None:
        """See `Parent.request_stop`."""
        self.at_once.append(at_once)


def test_both_signals_are_told() -> None:
    """And neither ends the process, nor raises in the middle of something."""
    told: list[signal.Signals] = []
    with on_stop_signal(told.append):
        for number in (*BOTH, signal.SIGINT):
            signal.raise_signal(number)
    assert told == [*BOTH, signal.SIGINT]


@pytest.mark.parametrize("ended", ["left", "raised"])
def test_afterwards_they_do_what_they_did(ended: str) -> None:
    """A caller of `convert` can be interrupted again, however that ended."""
    outer: list[signal.Signals] = []
    with on_stop_signal(outer.append):
        with suppress(OSError), on_stop_signal(lambda _: None):
            if ended == "raised":
                raise OSError
        for number in BOTH:
            signal.raise_signal(number)
    assert outer == list(BOTH)


def test_the_daemon_drains_until_it_is_interrupted_twice() -> None:
    """Systemd may repeat its SIGTERM; a person who presses Ctrl+C again does not want to wait."""
    parent = Drains()
    with on_stop_signal(drain_or_end(cast("Parent", parent))):
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            signal.raise_signal(number)
    assert parent.at_once == [False, False, False, True]
