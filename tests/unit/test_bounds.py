"""Deadlines that grow with pages, and silences that are measured."""

from __future__ import annotations

import os

import pytest

from daemon.bounds import Deadlines, Silence, doing
from daemon.processes import usage


@pytest.mark.parametrize(
    ("pages", "base_s", "per_page_s", "longest_s", "allowed_s"),
    [
        (None, 900, 15, 14_400, 900),
        (1, 900, 15, 14_400, 915),
        (100, 900, 15, 14_400, 2400),
        (5000, 900, 15, 14_400, 14_400),
        # An operator who asks for a long base and forgets the longest gets the base.
        (5000, 20_000, 15, 14_400, 20_000),
        (None, 20_000, 15, 14_400, 20_000),
        (5000, 900, 0, 14_400, 900),
    ],
)
def test_deadline(pages: int | None, base_s: float, per_page_s: float, longest_s: float, allowed_s: float) -> None:
    """The base is never cut; what pages add is."""
    deadlines = Deadlines(started=1000.0, base_s=base_s, per_page_s=per_page_s, longest_s=longest_s)
    assert deadlines.allowed_s(pages) == allowed_s
    assert deadlines.at(pages) == 1000.0 + allowed_s


def test_a_late_child_is_not_late_for_a_long_document() -> None:
    """What an earlier child counted holds until this one has opened the document; then its own count does."""
    deadlines = Deadlines(started=0.0, base_s=900, per_page_s=15, longest_s=14_400, pages=100)
    assert deadlines.at(None) == 2400
    assert deadlines.at(10) == 1050


def test_nothing_is_expected_before_the_job() -> None:
    """A child that has no job yet cannot be silent."""
    silence = Silence(10.0)
    assert silence.ends_at() is None
    assert not silence.is_stall(10**6)
    assert not silence.is_worth_a_warning(10**6)


def test_a_silence() -> None:
    """It is worth one warning at half, a stall at the whole, and over with the next sign of life."""
    silence = Silence(10.0)
    silence.end(100.0)
    assert silence.ends_at() == 110.0
    assert [silence.is_worth_a_warning(now) for now in (104.9, 105.0, 106.0)] == [False, True, False]
    assert [silence.is_stall(now) for now in (109.9, 110.0)] == [False, True]
    silence.end(110.0)
    assert not silence.is_stall(119.9)
    assert silence.is_worth_a_warning(115.0)


def test_a_frozen_host_is_no_silence() -> None:
    """When the watch itself was stopped for an hour, the child has not been silent for an hour."""
    silence = Silence(10.0)
    silence.end(100.0)
    silence.sample(1.0, late_s=3600.0)
    assert not silence.is_stall(3705.0)
    assert silence.is_stall(3710.0)
    silence.sample(1.0, late_s=1.9)
    assert silence.is_stall(3710.0)


def test_cpu_of_a_silence() -> None:
    """Only what was used since the last sign of life counts."""
    silence = Silence(10.0)
    silence.end(100.0)
    assert silence.cpu_s == 0.0
    silence.sample(7.0)
    silence.sample(9.5)
    assert silence.cpu_s == 2.5
    silence.end(103.0)
    assert silence.cpu_s == 0.0
    silence.sample(9.6)
    silence.sample(0.0)  # it is gone: what it used is not given back
    assert silence.cpu_s == 0.0


@pytest.mark.parametrize(
    ("silent_s", "cpu_s", "words"),
    [(60.0, 58.9, "busy: 58.9 s of CPU"), (60.0, 3.0, "busy: 3.0 s of CPU"), (60.0, 2.9, "idle"), (0.0, 0.0, "idle")],
)
def test_doing(silent_s: float, cpu_s: float, words: str) -> None:
    """A loop is told from a wait, also on a host where it gets a twentieth of a CPU."""
    assert doing(silent_s, cpu_s) == words


def test_usage() -> None:
    """A process has memory and has used CPU; one that is gone has and did neither."""
    before = usage(os.getpid())
    assert before.resident_bytes > 2**20
    while usage(os.getpid()).cpu_s == before.cpu_s:
        sum(range(10**5))
    assert usage(2**22 + 1).resident_bytes == 0
