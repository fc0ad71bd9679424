"""Forked children, reaped by the one process that may: what they leave is ended, and their end is reported.

Edge: processes. Used by the zygote for all its children, and by the first process of a spawned child for its one.
The caller has one thread, and is the adoptive parent of every orphan below it (`sandbox.adopt_orphans`), so
a child's descendants cannot get away, whatever groups and sessions they make. It alone reaps, so a pid that
is signalled here is always the one that is meant.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, replace

from daemon import sandbox

#: A SIGKILLed orphan is gone in microseconds; one in uninterruptible sleep is left to the next round.
_END_MS = 1000
#: Orphans may have children of their own, which come up in the next round.
_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A child that was not reaped yet."""

    pid: int
    pidfd: int
    #: Where its end is reported; closed with the report. None while nobody has asked for this child.
    supervision: socket.socket | None = None


class Reaper:
    """The children of this process."""

    def __init__(self) -> None:
        #: By pidfd, which is readable when the child has ended.
        self.live: dict[int, Live] = {}

    def adopt(self, pid: int) -> Live:
        """Remember a child that was forked just now."""
        with suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(pid, pid)
        live = Live(pid=pid, pidfd=os.pidfd_open(pid))
        self.live[live.pidfd] = live
        return live

    def assign(self, live: Live, supervision: socket.socket) -> None:
        """Tell of this child on `supervision` from now on, beginning with its pidfd."""
        self.live[live.pidfd] = replace(live, supervision=supervision)
        with suppress(OSError):  # the parent hung up, and will be seen to have
            socket.send_fds(supervision, [json.dumps({"started": live.pid}).encode()], [live.pidfd])

    def conclude(self, live: Live) -> None:
        """End what a dead child left behind, reap it, and report to whoever asked for it."""
        with suppress(ProcessLookupError):
            os.killpg(live.pid, signal.SIGKILL)  # the dead leader is not reaped yet, so the number is still its own
        orphans = self._end_orphans()
        _, status, usage = os.wait4(live.pid, 0)
        del self.live[live.pidfd]
        os.close(live.pidfd)
        if live.supervision is None:
            return
        report = {"exited": status, "max_rss_bytes": usage.ru_maxrss * 1024, "orphans": orphans}
        with suppress(OSError):
            live.supervision.send(json.dumps(report).encode())
        live.supervision.close()

    def end_all(self) -> None:
        """End every child and everything below."""
        for live in self.live.values():
            with suppress(ProcessLookupError):
                os.killpg(live.pid, signal.SIGKILL)
            signal.pidfd_send_signal(live.pidfd, signal.SIGKILL)
        for live in list(self.live.values()):
            _await_end(live.pidfd)
            self.conclude(live)

    def _end_orphans(self) -> int:
        """Kill and reap every process that was adopted; returns how many there were."""
        ended = 0
        for _ in range(_ROUNDS):
            orphans = sandbox.own_children() - {live.pid for live in self.live.values()}
            reaped = sum(_end(pid) for pid in orphans)
            ended += reaped
            if not reaped:
                break
        return ended


def _await_end(pidfd: int) -> bool:
    """Wait a bounded time for a process to end; whether it did."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(_END_MS))


def _end(pid: int) -> bool:
    """Kill one adopted process and reap it; whether it is gone."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not _await_end(pidfd):
            return False
        os.waitpid(pid, 0)
    finally:
        os.close(pidfd)
    return True
