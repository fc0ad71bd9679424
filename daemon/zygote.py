"""One clean process: everything loaded once, exactly one thread, forks its children one ahead.

Shell, started by exec as `python -m daemon.zygote`. It never opens a document and never converts: a used engine
leaves threads, and a process with threads must not fork. It loops over its control socket and the pidfds of
its children; nothing else wakes it. One child always stands by, forked before it is asked for; it takes one job and
lives one life like any other, and has seen no document before. A scout, once, tells it what to copy while it waits.
When the control socket closes, it ends everything below it and leaves.
"""

from __future__ import annotations

import argparse
import array
import gc
import hashlib
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daemon import child, frames, loading, sandbox, wire
from daemon.canary import canary_pdf
from daemon.engine.api import Engine
from daemon.errors import EngineError, ExitStatus
from daemon.heap import give_back_free_memory
from daemon.model import MediaType, PageRecord, PageState, Plan, Stage
from daemon.reaper import Live, Reaper
from daemon.rehearsal import Range, Rehearsal, copy_ahead

#: What a request carries: our supervision end, the child's frames end, the document, the finished pages, stdout/stderr
#: and the fault log.
REQUEST_DESCRIPTORS = 6
_REQUEST_BYTES = 4096
#: A scout that has not ended by then is ended; a canary takes a second.
_REHEARSAL_S = 60
#: Something escaped from the child's own code.
_STATUS_BUG = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A child that was forked ahead: it has locked itself in, and waits for its job."""

    live: Live
    #: Its job goes in here; closed, it leaves.
    entrance: socket.socket


class Unheard:
    """The progress of a conversion that nobody follows."""

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See Progress."""

    def opened(self, pages: int) -> None:
        """See Progress."""

    def page_done(self, record: PageRecord) -> None:
        """See Progress."""


class Zygote:
    """Serves requests for children until its control socket closes."""

    def __init__(self, engine: Engine, control: socket.socket, confinement: sandbox.Confinement) -> None:
        self._engine = engine
        self._control = control
        self._confinement = confinement
        self._pid = os.getpid()
        self._reaper = Reaper()
        self._standby: Standby | None = None
        self._scout: tuple[Live, Rehearsal] | None = None
        #: What every child copies while it waits.
        self._written: tuple[Range, ...] = ()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        #: Libraries' own descriptors (model files): a child keeps these, and nothing else that is open now.
        self._library_descriptors = sandbox.open_descriptors() - {0, 1, 2, control.fileno()}
        self._send_scout()

    def serve(self) -> None:
        """Loop; returns when the parent has gone."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._reaper.live:
                    self._conclude(self._reaper.live[fd])
                elif not self._take_request():
                    self._reaper.end_all()
                    return

    def _conclude(self, live: Live) -> None:
        """A child has ended. A standby that has is replaced with the next request: a fork that fails must not loop."""
        self._poll.unregister(live.pidfd)
        if self._standby is not None and self._standby.live.pidfd == live.pidfd:
            self._standby.entrance.close()
            self._standby = None
        self._reaper.conclude(live)
        if self._scout is not None and self._scout[0].pidfd == live.pidfd:
            self._written, self._scout = self._scout[1].take(), None
            self._stand_one_by()

    def _take_request(self) -> bool:
        """Read one request and give it to a child; False when the control socket has closed."""
        request, received = receive_with_descriptors(self._control)
        if not request:
            return False
        assert len(received) == REQUEST_DESCRIPTORS, "the parent sends all descriptors with its request"
        supervision_fd, *descriptors = received
        supervision = socket.socket(fileno=supervision_fd)
        try:
            live = self._hand_over(request, descriptors)
        except OSError as error:  # no memory or no process left: not this document's doing
            with supervision, suppress(OSError):
                supervision.send(json.dumps({"failed": str(error)}).encode())
        else:
            self._reaper.assign(live, supervision)
        for fd in descriptors:
            os.close(fd)
        self._stand_one_by()
        return True

    def _hand_over(self, request: bytes, descriptors: Sequence[int]) -> Live:
        """Give the job to the standby, or to a new child where there is none or it has just died. Raises OSError."""
        for standby in (self._standby, None):
            child_, self._standby = standby or self._fork(), None
            with child_.entrance:
                try:
                    socket.send_fds(child_.entrance, [request], descriptors)
                except OSError:
                    if standby is None:
                        raise
                else:
                    return child_.live
        raise AssertionError("the second turn returns or raises")

    def _stand_one_by(self) -> None:
        """Fork the next child ahead, so that a request need not wait for it; not before it can copy ahead."""
        if self._standby is None and self._scout is None:
            with suppress(OSError):  # the next request will meet the same, and tell
                self._standby = self._fork()

    def _send_scout(self) -> None:
        """Let a child convert the canary, to learn what conversions write; everything works without it too."""
        try:
            rehearsal = Rehearsal()
            pid = os.fork()
        except OSError:
            self._stand_one_by()
            return
        if pid == 0:
            self._rehearse(rehearsal)
        live = self._reaper.adopt(pid)
        self._poll.register(live.pidfd, select.POLLIN)
        self._scout = (live, rehearsal)

    def _rehearse(self, rehearsal: Rehearsal) -> None:
        """Never returns. Ends by itself however the engine behaves."""
        status = _STATUS_BUG
        try:
            os.setpgid(0, 0)
            sandbox.die_with(self._pid)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_REHEARSAL_S)
            sandbox.close_all_but({0, 1, 2, *self._library_descriptors})
            self._engine.convert(
                canary_pdf(painted=False),
                media_type=MediaType.PDF,
                plan=Plan(),
                finished={},
                scratch=Path("/nonexistent"),
                progress=Unheard(),
            )
            rehearsal.note()
            status = 0
        except BaseException:  # noqa: BLE001  the last frame of this process: said in its stderr, and never returned from
            traceback.print_exc()
        finally:
            child.leave(status)

    def _fork(self) -> Standby:
        """Raises OSError when there is no memory or no process left."""
        entrance, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with inside:
            try:
                pid = os.fork()
            except OSError:
                entrance.close()
                raise
            if pid == 0:
                self._become_child(inside)
        live = self._reaper.adopt(pid)
        self._poll.register(live.pidfd, select.POLLIN)
        return Standby(live=live, entrance=entrance)

    def _become_child(self, inside: socket.socket) -> None:
        """Never returns: whatever happens, the process ends here."""
        status = _STATUS_BUG
        try:
            os.setpgid(0, 0)
            sandbox.die_with(self._pid)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sandbox.close_all_but({0, 1, 2, inside.fileno(), *self._library_descriptors})
            copy_ahead(self._written)
            request, descriptors = receive_with_descriptors(inside)
            inside.close()
            status = self._live(request, descriptors) if request else 0
        except BaseException:  # noqa: BLE001  the last frame of this process: said in its stderr, and never returned from
            traceback.print_exc()
        finally:
            child.leave(status)

    def _live(self, request: bytes, descriptors: Sequence[int]) -> int:
        """Take what was handed over and live; returns the exit status. `descriptors`: in the order of `launch.Ends`."""
        frames_fd, document, finished, output, fault_log = descriptors
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        return child.live(
            self._engine,
            connection=socket.socket(fileno=frames_fd),
            document=document,
            finished=finished,
            fault_log=fault_log,
            limits=sandbox.Limits(**json.loads(request)),
            confinement=self._confinement,
        )


def receive_with_descriptors(source: socket.socket) -> tuple[bytes, list[int]]:
    """Wait for one message with its descriptors; no bytes: the other side has gone."""
    space = socket.CMSG_SPACE(REQUEST_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = source.recvmsg(_REQUEST_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    received = array.array("i")
    for _, _, payload in ancillary:
        received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
    return data, list(received)


def _use_the_wire_once() -> None:
    """Encode and decode a job and a page's account.

    What Python and pydantic make at first use is then shared by all children, and not made in each of them.
    """
    job = frames.Job(
        document_id="none",
        attempt=1,
        child=1,
        plan=frames.WorkPlan.of(Plan()),
        media_type=MediaType.PDF,
        scratch="",
        max_output_bytes=0,
    )
    account = frames.PageAccount(page=1, state=PageState.TEXT, engine="")
    done = frames.PageDone(account=account, size_bytes=0, sha256=hashlib.sha256().hexdigest())
    for frame in (job, done):
        list(wire.Decoder(max_total_bytes=wire.MAX_FRAME_BYTES).feed(wire.encode(frame)))


def main(argv: Sequence[str] | None = None) -> int:
    """Lock, load, prove the single thread, serve; returns the exit status."""
    parser = argparse.ArgumentParser(prog="daemon.zygote")
    loading.add_arguments(parser)
    parser.add_argument("--control", type=int, required=True)
    arguments = parser.parse_args(argv)
    control = socket.socket(fileno=arguments.control)
    control.set_inheritable(False)
    confinement = loading.confinement(arguments)
    try:
        sandbox.adopt_orphans()
        sandbox.first_lock(parent_pid=arguments.parent, confinement=confinement)
        engine = loading.load(arguments)
    except EngineError as error:
        control.send(json.dumps({"error": str(error)[:4000]}).encode())
        return int(ExitStatus.ENGINE)
    _use_the_wire_once()
    gc.collect()
    give_back_free_memory()
    gc.freeze()
    threads = sandbox.thread_names()
    ready = {"ready": os.getpid(), "threads": threads, "engine": loading.plain(engine.manifest)}
    zygote = Zygote(engine, control, confinement) if len(threads) == 1 else None
    control.send(json.dumps(ready).encode())
    if zygote is not None:
        zygote.serve()
    return 0


if __name__ == "__main__":
    child.leave(main())
