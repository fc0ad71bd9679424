"""One child's life as a table: (phase, event) → (phase, action).

Core. Every transition stands in TRANSITIONS and nowhere else; `supervise.py` turns what it sees into events
and does what the actions say. Every phase has a row with every event, except GONE, which has none. The
first reason to kill stands: in KILLING nothing is a reason any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from daemon.frames import Kind
from daemon.model import KillReason


class Phase(StrEnum):
    """Where a child is, as the parent sees it."""

    #: Started, and not heard of.
    STARTING = "starting"
    #: It said hello and has its job.
    RUNNING = "running"
    #: It said its last (a result, a share, a failure, or it closed its end) and must leave within the linger time.
    LEAVING = "leaving"
    #: SIGKILL is on its way; what is still read is only kept for the record.
    KILLING = "killing"
    #: Ended and reaped, all frames read.
    GONE = "gone"


class Event(StrEnum):
    """What can happen to a child."""

    HELLO = "hello"
    STAGE = "stage"
    OPENED = "opened"
    BLOB = "blob"
    PAGE = "page"
    LOG = "log"
    ARTEFACT = "artefact"
    FAILURE = "failure"
    RESULT = "result"
    SLICED = "sliced"
    #: Its end of the frames socket is closed.
    EOF = "eof"
    #: The kernel says so, and everything that it sent was read.
    EXITED = "exited"
    DEADLINE = "deadline"
    #: No sign of life for too long.
    STALL = "stall"
    MEMORY = "memory"
    #: Its scratch folder is larger than allowed.
    SCRATCH = "scratch"
    DRAIN = "drain"
    LEASE_LOST = "lease_lost"
    #: Bytes that are no frame, a frame that contradicts others, or more than the limit.
    PROTOCOL_ERROR = "protocol_error"
    LINGER_EXPIRED = "linger_expired"
    #: It did not say hello in time, so it has not seen its document.
    START_EXPIRED = "start_expired"
    #: Whoever would reap it and tell us (the zygote) is gone.
    SUPERVISOR_GONE = "supervisor_gone"


class Action(StrEnum):
    """What the parent does about it."""

    NOTHING = "nothing"
    #: Give the child its job.
    SEND_JOB = "send_job"
    #: Keep what the frame says.
    RECORD = "record"
    #: Keep it, and start the linger time.
    RECORD_LAST = "record_last"
    #: Start the linger time.
    AWAIT_EXIT = "await_exit"
    #: Ask for a traceback, then SIGKILL the group; remember that the deadline was the reason.
    KILL_DEADLINE = "kill_deadline"
    #: The same for a stall.
    KILL_STALL = "kill_stall"
    KILL_MEMORY = "kill_memory"
    KILL_SCRATCH = "kill_scratch"
    KILL_DRAIN = "kill_drain"
    KILL_LEASE_LOST = "kill_lease_lost"
    KILL_PROTOCOL = "kill_protocol"
    KILL_LINGERED = "kill_lingered"
    #: SIGKILL the group for something that is not the document's doing: its supervisor is gone, or it never began.
    KILL_ABANDONED = "kill_abandoned"
    #: Conclude.
    FINISH = "finish"


#: The reason that an action to kill leaves behind. KILL_ABANDONED has none.
KILL_REASONS: Final[Mapping[Action, KillReason]] = {
    Action.KILL_DEADLINE: KillReason.DEADLINE,
    Action.KILL_STALL: KillReason.STALL,
    Action.KILL_MEMORY: KillReason.MEMORY,
    Action.KILL_SCRATCH: KillReason.SCRATCH,
    Action.KILL_DRAIN: KillReason.DRAIN,
    Action.KILL_LEASE_LOST: KillReason.LEASE_LOST,
    Action.KILL_PROTOCOL: KillReason.PROTOCOL,
    Action.KILL_LINGERED: KillReason.LINGERED,
}
KILLS: Final[frozenset[Action]] = frozenset({*KILL_REASONS, Action.KILL_ABANDONED})
#: Before these, the child is asked where it is: nothing else would tell.
ASK_WHERE: Final[frozenset[Action]] = frozenset({Action.KILL_DEADLINE, Action.KILL_STALL})

#: A frame's event; a job never comes from a child.
FRAME_EVENTS: Final[Mapping[Kind, Event]] = {
    Kind.HELLO: Event.HELLO,
    Kind.STAGE: Event.STAGE,
    Kind.OPENED: Event.OPENED,
    Kind.BLOB: Event.BLOB,
    Kind.PAGE: Event.PAGE,
    Kind.LOG: Event.LOG,
    Kind.ARTEFACT: Event.ARTEFACT,
    Kind.FAILURE: Event.FAILURE,
    Kind.RESULT: Event.RESULT,
    Kind.SLICED: Event.SLICED,
    Kind.JOB: Event.PROTOCOL_ERROR,
}
#: Frames that only work can cause. A line of a log is none: a library may complain for ever.
SIGNS_OF_LIFE: Final[frozenset[Event]] = frozenset(
    {Event.HELLO, Event.STAGE, Event.OPENED, Event.BLOB, Event.PAGE, Event.ARTEFACT}
)
#: What a pulled switch, or our own watch, asks for.
KILL_EVENTS: Final[Mapping[KillReason, Event]] = {
    KillReason.DEADLINE: Event.DEADLINE,
    KillReason.STALL: Event.STALL,
    KillReason.MEMORY: Event.MEMORY,
    KillReason.SCRATCH: Event.SCRATCH,
    KillReason.DRAIN: Event.DRAIN,
    KillReason.LEASE_LOST: Event.LEASE_LOST,
    KillReason.PROTOCOL: Event.PROTOCOL_ERROR,
    KillReason.LINGERED: Event.LINGER_EXPIRED,
}

_Row = dict[Event, tuple[Phase, Action]]

_BREACH: Final = (Phase.KILLING, Action.KILL_PROTOCOL)
#: The same in every phase in which the child may still do something.
_ALIVE: Final[_Row] = {
    Event.EXITED: (Phase.GONE, Action.FINISH),
    Event.DEADLINE: (Phase.KILLING, Action.KILL_DEADLINE),
    Event.STALL: (Phase.KILLING, Action.KILL_STALL),
    Event.MEMORY: (Phase.KILLING, Action.KILL_MEMORY),
    Event.SCRATCH: (Phase.KILLING, Action.KILL_SCRATCH),
    Event.DRAIN: (Phase.KILLING, Action.KILL_DRAIN),
    Event.LEASE_LOST: (Phase.KILLING, Action.KILL_LEASE_LOST),
    Event.PROTOCOL_ERROR: _BREACH,
    Event.LINGER_EXPIRED: (Phase.KILLING, Action.KILL_LINGERED),
    Event.START_EXPIRED: (Phase.KILLING, Action.KILL_ABANDONED),
    Event.SUPERVISOR_GONE: (Phase.KILLING, Action.KILL_ABANDONED),
}

TRANSITIONS: Final[Mapping[Phase, _Row]] = {
    Phase.STARTING: _ALIVE
    | {
        Event.HELLO: (Phase.RUNNING, Action.SEND_JOB),
        Event.LOG: (Phase.STARTING, Action.RECORD),
        Event.FAILURE: (Phase.LEAVING, Action.RECORD_LAST),
        Event.EOF: (Phase.LEAVING, Action.AWAIT_EXIT),
        Event.STAGE: _BREACH,
        Event.OPENED: _BREACH,
        Event.BLOB: _BREACH,
        Event.PAGE: _BREACH,
        Event.ARTEFACT: _BREACH,
        Event.RESULT: _BREACH,
        Event.SLICED: _BREACH,
    },
    Phase.RUNNING: _ALIVE
    | {
        Event.STAGE: (Phase.RUNNING, Action.RECORD),
        Event.OPENED: (Phase.RUNNING, Action.RECORD),
        Event.BLOB: (Phase.RUNNING, Action.RECORD),
        Event.PAGE: (Phase.RUNNING, Action.RECORD),
        Event.LOG: (Phase.RUNNING, Action.RECORD),
        Event.ARTEFACT: (Phase.RUNNING, Action.RECORD),
        Event.FAILURE: (Phase.LEAVING, Action.RECORD_LAST),
        Event.RESULT: (Phase.LEAVING, Action.RECORD_LAST),
        Event.SLICED: (Phase.LEAVING, Action.RECORD_LAST),
        Event.EOF: (Phase.LEAVING, Action.AWAIT_EXIT),
        Event.HELLO: _BREACH,
    },
    Phase.LEAVING: _ALIVE
    | {
        Event.EOF: (Phase.LEAVING, Action.NOTHING),
        Event.HELLO: _BREACH,
        Event.STAGE: _BREACH,
        Event.OPENED: _BREACH,
        Event.BLOB: _BREACH,
        Event.PAGE: _BREACH,
        Event.LOG: _BREACH,
        Event.ARTEFACT: _BREACH,
        Event.FAILURE: _BREACH,
        Event.RESULT: _BREACH,
        Event.SLICED: _BREACH,
    },
    Phase.KILLING: dict.fromkeys(Event, (Phase.KILLING, Action.NOTHING))
    | {
        # Where it was when it died is worth knowing; what it claims is not.
        Event.STAGE: (Phase.KILLING, Action.RECORD),
        Event.LOG: (Phase.KILLING, Action.RECORD),
        Event.EXITED: (Phase.GONE, Action.FINISH),
    },
    Phase.GONE: {},
}


def step(phase: Phase, event: Event) -> tuple[Phase, Action]:
    """Return the next phase and what to do. Asking about a child that is GONE is a bug, and asserted."""
    row = TRANSITIONS[phase]
    assert event in row, f"{event} after {phase}"
    return row[event]
