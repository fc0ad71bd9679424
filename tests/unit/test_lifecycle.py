"""The table of one child's life is total, ends, and keeps its promises in every phase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.frames import Kind
from daemon.lifecycle import (
    FRAME_EVENTS,
    KILL_EVENTS,
    KILL_REASONS,
    KILLS,
    SIGNS_OF_LIFE,
    TRANSITIONS,
    Action,
    Event,
    Phase,
    step,
)
from daemon.model import KillReason

ALIVE = [phase for phase in Phase if phase is not Phase.GONE]
FRAMES = sorted({event for kind, event in FRAME_EVENTS.items() if kind is not Kind.JOB})


def test_total() -> None:
    """Every phase has a row; every row but the last has every event, and the last has none."""
    assert set(TRANSITIONS) == set(Phase)
    for phase in ALIVE:
        assert set(TRANSITIONS[phase]) == set(Event), phase
    assert TRANSITIONS[Phase.GONE] == {}


@pytest.mark.parametrize("event", Event)
def test_nothing_happens_to_the_gone(event: Event) -> None:
    """An event after the end is a bug of ours, and said."""
    with pytest.raises(AssertionError, match="after gone"):
        step(Phase.GONE, event)


@pytest.mark.parametrize("phase", ALIVE)
def test_only_an_exit_ends_a_watch(phase: Phase) -> None:
    """Whatever was said or done, the child is awaited: no other event leads to GONE."""
    assert [event for event in Event if step(phase, event)[0] is Phase.GONE] == [Event.EXITED]
    assert step(phase, Event.EXITED)[1] is Action.FINISH


@given(st.lists(st.sampled_from([event for event in Event if event is not Event.EXITED]), max_size=30))
def test_one_kill_at_most(events: list[Event]) -> None:
    """The first reason stands, however many follow; and after a kill no result is recorded."""
    phase, actions = Phase.STARTING, []
    for event in events:
        phase, action = step(phase, event)
        actions.append((event, action))
    kills = [index for index, (_, action) in enumerate(actions) if action in KILLS]
    assert len(kills) <= 1
    if kills:
        assert phase is Phase.KILLING
        recorded = {event for event, action in actions[kills[0] :] if action in {Action.RECORD, Action.RECORD_LAST}}
        assert recorded <= {Event.STAGE, Event.LOG}


@given(st.lists(st.sampled_from(Event), max_size=40))
def test_one_last_word_at_most(events: list[Event]) -> None:
    """A child has one result or one failure, after one hello (or none, for a failure to load)."""
    phase, actions = Phase.STARTING, []
    for event in events:
        if phase is Phase.GONE:
            break
        phase, action = step(phase, event)
        actions.append(action)
    assert actions.count(Action.RECORD_LAST) <= 1
    assert actions.count(Action.SEND_JOB) <= 1


@pytest.mark.parametrize("event", FRAMES)
def test_nothing_after_the_last_word(event: Event) -> None:
    """Any frame after a result is a breach, even a log line."""
    assert step(Phase.LEAVING, event) == (Phase.KILLING, Action.KILL_PROTOCOL)


@pytest.mark.parametrize("event", sorted({*FRAMES} - {Event.HELLO, Event.LOG, Event.FAILURE}))
def test_hello_comes_first(event: Event) -> None:
    """Before its hello a child may log, fail or go; nothing else."""
    assert step(Phase.STARTING, event) == (Phase.KILLING, Action.KILL_PROTOCOL)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_a_log_line_changes_nothing(phase: Phase) -> None:
    """A line of a log is no hello."""
    assert step(phase, Event.LOG) == (phase, Action.RECORD)


@pytest.mark.parametrize("last", [Event.RESULT, Event.SLICED, Event.FAILURE, Event.EOF])
def test_after_the_last_word_it_must_leave(last: Event) -> None:
    """A result, a share, a failure or a hang-up: none of them lets a child stay."""
    phase, action = step(Phase.RUNNING, last)
    assert phase is Phase.LEAVING
    assert action in {Action.RECORD_LAST, Action.AWAIT_EXIT}


def test_talk_is_no_sign_of_life() -> None:
    """A library that logs for ever must not keep a stuck page alive; whatever else is sent is work."""
    assert set(FRAMES) - SIGNS_OF_LIFE == {Event.LOG, Event.FAILURE, Event.RESULT, Event.SLICED}


def test_a_child_sends_no_jobs() -> None:
    """The parent's own kind of frame, coming back, is a breach."""
    assert FRAME_EVENTS[Kind.JOB] is Event.PROTOCOL_ERROR


@pytest.mark.parametrize("reason", KillReason)
def test_every_reason_has_its_way(reason: KillReason) -> None:
    """A pulled switch leaves behind the reason that it was pulled for."""
    for phase in (Phase.STARTING, Phase.RUNNING, Phase.LEAVING):
        after, action = step(phase, KILL_EVENTS[reason])
        assert after is Phase.KILLING
        assert KILL_REASONS[action] is reason


def test_every_kind_has_an_event() -> None:
    """A new kind of frame cannot be forgotten."""
    assert set(FRAME_EVENTS) == set(Kind)
    assert set(KILL_EVENTS) == set(KillReason)
