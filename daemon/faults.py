"""What a failpoint's action does to the process that fires it.

Edge. The only code that dies on purpose. Used by the child and, at its own points, by the parent; called
only with failpoints that the settings allowed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn

from daemon.failpoints import Action, Failpoint

#: Nothing that our protocol starts with.
GARBAGE = b"%PDF-1.7 these bytes are no frame\n" * 64
#: A header of the right form that announces far more than any limit.
_FLOOD_HEADER = b"\xb1\x05\xff\xff\xff\xff"
_OOM_STEP_BYTES = 16 * 2**20


class InjectedError(RuntimeError):
    """The exception that `raise` raises: a stand-in for one that nobody expects."""


def fire(failpoint: Failpoint, *, frames: socket.socket | None = None) -> None:
    """Do what `failpoint` says; returns only after `sleep`, `garbage` or a flood that was cut.

    `frames` is the child's own socket to its parent; without one, `garbage` and `flood` do nothing.
    Raises InjectedError for `raise`, and MemoryError when `oom` meets a limit that says so.
    """
    if failpoint.action is Action.RAISE:
        raise InjectedError(f"failpoint {failpoint.point}")
    if failpoint.action is Action.SLEEP:
        threading.Event().wait(failpoint.seconds)
    elif failpoint.action in _ENDS:
        _ENDS[failpoint.action]()
    elif frames is not None:
        _misbehave(failpoint.action, frames)


def _hang() -> NoReturn:
    """Sleep in native code without giving up the GIL; signals only interrupt one of the sleeps."""
    holding_the_gil = ctypes.PyDLL(None)
    while True:
        holding_the_gil.sleep(86_400)


def _exhaust_memory() -> NoReturn:
    held: list[bytes] = []
    while True:
        held.append(b"\x01" * _OOM_STEP_BYTES)


def _misbehave(action: Action, frames: socket.socket) -> None:
    """Send what no honest child sends, until the parent hangs up."""
    try:
        if action is Action.GARBAGE:
            frames.sendall(GARBAGE)
            return
        frames.sendall(_FLOOD_HEADER)
        block = bytes(2**16)
        while True:
            frames.sendall(block)
    except OSError:
        return


_ENDS: Mapping[Action, Callable[[], object]] = {
    Action.SEGV: partial(ctypes.string_at, 0),
    Action.ABORT: os.abort,
    Action.KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    Action.EXIT0: partial(os._exit, 0),
    Action.HANG: _hang,
    Action.OOM: _exhaust_memory,
}
