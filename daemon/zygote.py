"""One clean process: everything loaded once, exactly one thread, forks on request.

Shell, started by exec as `python -m daemon.zygote`. It never opens a document and never converts: a used engine
leaves threads, and a process with threads must not fork. It loops over its control socket and the pidfds of
its children; nothing else wakes it. It alone reaps, so a pid that it signals is always the one it means.
When the control socket closes, it ends everything below it and leaves.
"""

from __future__ import annotations

import argparse
import array
import gc
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from daemon import child, sandbox
from daemon.engine.api import Engine
from daemon.errors import EngineError, ExitStatus

#: What a request carries: the child's frames end, our supervision end, the document, stdout/stderr, the fault log.
REQUEST_DESCRIPTORS = 5
_REQUEST_BYTES = 4096
#: A SIGKILLed orphan is gone in microseconds; one in uninterruptible sleep is left to the next round.
_ORPHAN_WAIT_MS = 1000
#: Orphans may have children of their own, which come up in the next round.
_ORPHAN_ROUNDS = 100
#: Something escaped from the child's own code.
_STATUS_BUG = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """A child that was not reaped yet."""

    pid: int
    pidfd: int
    #: Where its end is reported; closed with the report.
    supervision: socket.socket


class Zygote:
    """Serves fork requests until its control socket closes."""

    def __init__(self, engine: Engine, control: socket.socket) -> None:
        self._engine = engine
        self._control = control
        self._pid = os.getpid()
        #: By pidfd.
        self._live: dict[int, _Live] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        #: Libraries' own descriptors (model files): a child keeps these, and nothing else that is open now.
        self._library_descriptors = sandbox.open_descriptors() - {0, 1, 2, control.fileno()}

    def serve(self) -> None:
        """Loop; returns when the parent has gone."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._live:
                    self._conclude(self._live[fd])
                elif not self._take_request():
                    self._end_all()
                    return

    def _take_request(self) -> bool:
        """Read one request and fork for it; False when the control socket has closed."""
        space = socket.CMSG_SPACE(REQUEST_DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = self._control.recvmsg(_REQUEST_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        received = array.array("i")
        for _, _, payload in ancillary:
            received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
        assert len(received) == REQUEST_DESCRIPTORS, "the parent sends all descriptors with its request"
        frames_fd, supervision_fd, document, output, fault_log = received
        supervision = socket.socket(fileno=supervision_fd)
        limits = sandbox.Limits(**json.loads(data))
        try:
            pid = os.fork()
        except OSError as error:  # no memory or no process left: not this document's doing
            with supervision, suppress(OSError):
                supervision.send(json.dumps({"failed": str(error)}).encode())
        else:
            if pid == 0:
                self._become_child(frames_fd, document, output, fault_log, limits)
            self._adopt(pid, supervision)
        for fd in (frames_fd, document, output, fault_log):
            os.close(fd)
        return True

    def _become_child(self, frames_fd: int, document: int, output: int, fault_log: int, limits: sandbox.Limits) -> None:
        """Never returns: whatever happens, the process ends here."""
        status = _STATUS_BUG
        try:
            os.setpgid(0, 0)
            sandbox.die_with(self._pid)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sandbox.close_all_but({0, 1, 2, frames_fd, document, fault_log, *self._library_descriptors})
            status = child.live(
                self._engine,
                connection=socket.socket(fileno=frames_fd),
                document=document,
                fault_log=fault_log,
                limits=limits,
            )
        except BaseException:  # noqa: BLE001  the last frame of this process: said in its stderr, and never returned from
            traceback.print_exc()
        finally:
            child.leave(status)

    def _adopt(self, pid: int, supervision: socket.socket) -> None:
        """Remember a child, and send its pidfd."""
        with suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(pid, pid)
        pidfd = os.pidfd_open(pid)
        self._live[pidfd] = _Live(pid=pid, pidfd=pidfd, supervision=supervision)
        self._poll.register(pidfd, select.POLLIN)
        with suppress(OSError):  # the parent hung up: the control socket will say so
            socket.send_fds(supervision, [json.dumps({"started": pid}).encode()], [pidfd])

    def _conclude(self, live: _Live) -> None:
        """End what a dead child left behind, reap it, report."""
        with suppress(ProcessLookupError):
            os.killpg(live.pid, signal.SIGKILL)  # the dead leader is not reaped yet, so the number is still its own
        orphans = self._end_orphans()
        _, status, usage = os.wait4(live.pid, 0)
        self._poll.unregister(live.pidfd)
        del self._live[live.pidfd]
        os.close(live.pidfd)
        report = {"exited": status, "max_rss_bytes": usage.ru_maxrss * 1024, "orphans": orphans}
        with suppress(OSError):
            live.supervision.send(json.dumps(report).encode())
        live.supervision.close()

    def _end_orphans(self) -> int:
        """Kill and reap every process that was adopted; returns how many there were."""
        ended = 0
        for _ in range(_ORPHAN_ROUNDS):
            orphans = sandbox.own_children() - {live.pid for live in self._live.values()}
            reaped = sum(_end(pid) for pid in orphans)
            ended += reaped
            if not reaped:
                break
        return ended

    def _end_all(self) -> None:
        """The parent is gone: nothing below us outlives it."""
        for live in self._live.values():
            with suppress(ProcessLookupError):
                os.killpg(live.pid, signal.SIGKILL)
            signal.pidfd_send_signal(live.pidfd, signal.SIGKILL)
        for live in list(self._live.values()):
            _await_exit(live.pidfd)
            self._conclude(live)


def _await_exit(pidfd: int) -> bool:
    """Wait a bounded time for a process to end; whether it did."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(_ORPHAN_WAIT_MS))


def _end(pid: int) -> bool:
    """Kill one adopted process and reap it; whether it is gone."""
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not _await_exit(pidfd):
            return False
        os.waitpid(pid, 0)
    finally:
        os.close(pidfd)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Lock, load, prove the single thread, serve; returns the exit status."""
    parser = argparse.ArgumentParser(prog="daemon.zygote")
    child.add_engine_arguments(parser)
    parser.add_argument("--control", type=int, required=True)
    arguments = parser.parse_args(argv)
    control = socket.socket(fileno=arguments.control)
    control.set_inheritable(False)
    sandbox.first_lock(parent_pid=arguments.parent)
    sandbox.adopt_orphans()
    try:
        engine = child.load(arguments)
    except EngineError as error:
        control.send(json.dumps({"error": str(error)[:4000]}).encode())
        return int(ExitStatus.ENGINE)
    gc.collect()
    gc.freeze()
    threads = sandbox.thread_names()
    ready = {"ready": os.getpid(), "threads": threads, "engine": child.plain(engine.manifest)}
    control.send(json.dumps(ready).encode())
    if len(threads) == 1:
        Zygote(engine, control).serve()
    return 0


if __name__ == "__main__":
    child.leave(main())
