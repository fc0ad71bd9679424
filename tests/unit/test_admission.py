"""Admission: never more than there is, nobody for ever, nothing idle, biggest first; for all lines and hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.admission import MOST_OVERTAKEN, Ask, Line, Pool, Waiting
from daemon.sizing import GIB

#: Two workers, as much memory as a host of 24 GiB has for them, and all of it for one if need be.
POOL = Pool(workers=2, share_bytes=11 * GIB, total_bytes=22 * GIB, most_bytes=22 * GIB)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Any pool; small figures, so that they often just fit."""
    workers, share = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    total = workers * share + draw(st.integers(0, 5))
    return Pool(workers=workers, share_bytes=share, total_bytes=total, most_bytes=draw(st.integers(share, total)))


#: What happens to a line: a place in it (among those that are there), and what it asks for; 0: it leaves.
EVENTS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30)), max_size=40)


def lines(pool: Pool, events: Sequence[tuple[int, int]]) -> Iterator[tuple[Line, Line]]:
    """Each line before and after everybody began who may."""
    line, number = Line(pool=pool), 0
    for place, need in events:
        there = sorted(line.waiting.keys() | line.granted.keys())
        if place < len(there):
            changed = line.asked(there[place], Ask(need_bytes=need)) if need else line.left(there[place])
        else:
            number += 1
            changed = line.asked(number, Ask(need_bytes=need))
        line = changed.admitted()
        yield changed, line


@given(pools(), EVENTS)
def test_never_more_than_there_is(pool: Pool, events: Sequence[tuple[int, int]]) -> None:
    """Limits are enforced, so those that run together must fit together; and each is what was needed, or the most."""
    for before, line in lines(pool, events):
        assert sum(line.granted.values()) <= pool.total_bytes
        assert len(line.granted) <= pool.workers
        assert all(granted <= pool.most_bytes for granted in line.granted.values())
        for number in line.granted.keys() - before.granted.keys():
            assert line.granted[number] >= before.waiting[number].ask.need_bytes


@given(pools(), EVENTS)
def test_nothing_idles(pool: Pool, events: Sequence[tuple[int, int]]) -> None:
    """A free worker and a document that fits meet, unless somebody has waited too long already; alone, all fit."""
    for _, line in lines(pool, events):
        if len(line.granted) == pool.workers or not line.waiting:
            continue
        assert line.granted, "nobody converts, and somebody waits"
        patient = any(waiting.overtaken >= MOST_OVERTAKEN for waiting in line.waiting.values())
        assert patient or all(waiting.ask.need_bytes > line.free_bytes for waiting in line.waiting.values())
        assert all(waiting.held_back for waiting in line.waiting.values())


@given(pools(), EVENTS)
def test_nobody_is_overtaken_for_ever(pool: Pool, events: Sequence[tuple[int, int]]) -> None:
    """Whoever came later and began first is counted, and there is an end to it."""
    for _, line in lines(pool, events):
        assert all(waiting.overtaken <= MOST_OVERTAKEN for waiting in line.waiting.values())


@given(pools(), EVENTS)
def test_the_same_line_goes_on_in_the_same_way(pool: Pool, events: Sequence[tuple[int, int]]) -> None:
    """No order depends on a dict's."""
    for before, line in lines(pool, events):
        mixed = replace(before, waiting=dict(reversed(list(before.waiting.items()))))
        assert mixed.admitted() == line


def waiting_for(line: Line, *needs_bytes: int, first: int = 1) -> Line:
    """The same line, and somebody for each of the needs, numbered from `first`."""
    for number, need_bytes in enumerate(needs_bytes, start=first):
        line = line.asked(number, Ask(need_bytes=need_bytes))
    return line


def test_everybody_ordinary_gets_a_share() -> None:
    """Where nothing is special, limits are what they were before memory was handed out."""
    line = waiting_for(Line(pool=POOL), GIB, GIB, GIB).admitted()
    assert line.granted == {1: 11 * GIB, 2: 11 * GIB}
    assert not any(waiting.held_back for waiting in line.waiting.values())


def test_biggest_first_by_memory_then_by_bytes_then_by_arrival() -> None:
    """One picked up last would set the time of all."""
    line = waiting_for(Line(pool=POOL), 11 * GIB, 11 * GIB).admitted()
    line = line.asked(3, Ask(need_bytes=GIB, size_bytes=5)).asked(4, Ask(need_bytes=GIB, size_bytes=9))
    line = line.asked(5, Ask(need_bytes=2 * GIB)).asked(6, Ask(need_bytes=GIB, size_bytes=9))
    order = []
    for _ in range(4):
        leaving = min(line.granted)
        line = line.left(leaving).admitted()
        order += [number for number in line.granted if number > 2 and number not in order]
    assert order == [5, 4, 6, 3]


def test_two_bombs_are_never_side_by_side_and_small_ones_fill_the_rest() -> None:
    """The second one waits for the first, and costs the other worker nothing."""
    line = waiting_for(Line(pool=POOL), POOL.raised_bytes, POOL.raised_bytes, GIB).admitted()
    assert line.granted == {1: 21 * GIB, 3: GIB}
    line = line.left(3).admitted()
    assert line.granted == {1: 21 * GIB}
    assert line.waiting[2].held_back
    line = waiting_for(line, GIB, first=4).admitted()
    assert line.granted == {1: 21 * GIB, 4: GIB}
    assert line.left(1).admitted().granted == {4: GIB, 2: 21 * GIB}


def test_who_begins_while_another_waits_for_memory_takes_what_it_needs() -> None:
    """A whole share for each that passes by would keep the memory from whoever waits for it."""
    pool = Pool(workers=4, share_bytes=4 * GIB, total_bytes=16 * GIB, most_bytes=16 * GIB)
    line = waiting_for(waiting_for(Line(pool=pool), 4 * GIB).admitted(), 13 * GIB, GIB, first=2).admitted()
    assert line.granted == {1: 4 * GIB, 3: GIB}
    assert line.left(1).admitted().granted == {2: 13 * GIB, 3: GIB}


def test_who_did_not_fit_is_held_back_though_another_took_the_worker() -> None:
    """It waits for memory and not for a worker, and whoever asks is told so."""
    line = waiting_for(waiting_for(Line(pool=POOL), GIB).admitted(), POOL.raised_bytes, GIB, first=2).admitted()
    assert line.granted.keys() == {1, 3}
    assert line.waiting[2].held_back
    assert not waiting_for(line, GIB, first=4).admitted().waiting[4].held_back


def test_who_was_overtaken_too_often_goes_next() -> None:
    """A bomb among small ones gets its room: from then on nobody begins before it."""
    line = waiting_for(waiting_for(Line(pool=POOL), 8 * GIB, 8 * GIB).admitted(), 22 * GIB, first=3).admitted()
    number = 3
    for _ in range(MOST_OVERTAKEN):
        number += 1
        line = waiting_for(line.left(min(line.granted)), 8 * GIB, first=number).admitted()
        assert number in line.granted
    line = waiting_for(line.left(min(line.granted)), GIB, first=number + 1).admitted()
    assert len(line.granted) == 1
    assert line.left(min(line.granted)).admitted().granted == {3: 22 * GIB}


def test_as_many_begin_at_once_as_the_largest_host_has_workers() -> None:
    """One that had everything leaves, and everybody else begins."""
    many = 1_024
    pool = Pool(workers=many, share_bytes=GIB, total_bytes=many * GIB, most_bytes=many * GIB)
    waiting = {number: Waiting(ask=Ask(need_bytes=GIB)) for number in range(many)}
    assert Line(pool=pool, waiting=waiting).admitted().granted == dict.fromkeys(range(many), GIB)


def test_a_need_beyond_the_host_runs_alone() -> None:
    """Predicted larger than everything: it gets everything, and does not wait for ever."""
    assert waiting_for(Line(pool=POOL), 100 * GIB, GIB).admitted().granted == {1: 22 * GIB}


def test_a_grant_that_is_enough_stays() -> None:
    """Asking again costs no place where what was granted is enough; what is beyond a share goes back unneeded."""
    line = waiting_for(Line(pool=POOL), POOL.raised_bytes).admitted()
    assert line.asked(1, Ask(need_bytes=20 * GIB)).granted == {1: 20 * GIB}
    assert line.asked(1, Ask(need_bytes=GIB)).granted == {1: 11 * GIB}
    line = waiting_for(Line(pool=POOL), GIB).admitted()
    assert line.asked(1, Ask(need_bytes=2 * GIB)).granted == {1: 11 * GIB}


def test_who_needs_more_gives_back_first() -> None:
    """Two that wait for each other's memory would wait for ever."""
    line = waiting_for(Line(pool=POOL), GIB, GIB).admitted()
    line = line.asked(1, Ask(need_bytes=POOL.raised_bytes)).admitted()
    assert line.granted == {2: 11 * GIB}
    line = line.asked(2, Ask(need_bytes=POOL.raised_bytes)).admitted()
    assert line.granted == {1: 21 * GIB}
    assert line.left(1).admitted().granted == {2: 21 * GIB}


@pytest.mark.parametrize(
    ("pool", "raised_bytes"),
    [
        (POOL, 21 * GIB),
        (Pool(workers=8, share_bytes=2 * GIB, total_bytes=16 * GIB, most_bytes=16 * GIB), 9 * GIB),
        (Pool(workers=2, share_bytes=GIB, total_bytes=2 * GIB, most_bytes=2 * GIB), 2 * GIB),
        (Pool(workers=1, share_bytes=3 * GIB, total_bytes=3 * GIB, most_bytes=3 * GIB), 3 * GIB),
        (Pool.of_shares(4, 2 * GIB), 2 * GIB),
    ],
    ids=["two workers", "eight workers", "little memory: alone", "one worker", "the operator's limit"],
)
def test_what_a_raised_limit_is(pool: Pool, raised_bytes: int) -> None:
    """All but what ordinary ones need beside it; everything on a small host; never more than an operator allows."""
    assert pool.raised_bytes == raised_bytes
