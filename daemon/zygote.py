"""One clean process: everything loaded once, exactly one thread, forks on request.

Shell, started by exec as `python -m daemon.zygote`. It never opens a document and never converts: a used engine
leaves threads, and a process with threads must not fork. It loops over its control socket and the pidfds of
its children; nothing else wakes it.
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

from daemon import child, loading, sandbox
from daemon.engine.api import Engine
from daemon.errors import EngineError, ExitStatus
from daemon.reaper import Reaper

#: What a request carries: our supervision end, the child's frames end, the document, the finished pages, stdout/stderr
#: and the fault log.
REQUEST_DESCRIPTORS = 6
_REQUEST_BYTES = 4096
#: Something escaped from the child's own code.
_STATUS_BUG = 70


class Zygote:
    """Serves fork requests until its control socket closes."""

    def __init__(self, engine: Engine, control: socket.socket) -> None:
        self._engine = engine
        self._control = control
        self._pid = os.getpid()
        self._reaper = Reaper()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        #: Libraries' own descriptors (model files): a child keeps these, and nothing else that is open now.
        self._library_descriptors = sandbox.open_descriptors() - {0, 1, 2, control.fileno()}

    def serve(self) -> None:
        """Loop; returns when the parent has gone."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._reaper.live:
                    self._poll.unregister(fd)
                    self._reaper.conclude(self._reaper.live[fd])
                elif not self._take_request():
                    self._reaper.end_all()
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
        supervision_fd, *descriptors = received
        supervision = socket.socket(fileno=supervision_fd)
        limits = sandbox.Limits(**json.loads(data))
        try:
            pid = os.fork()
        except OSError as error:  # no memory or no process left: not this document's doing
            with supervision, suppress(OSError):
                supervision.send(json.dumps({"failed": str(error)}).encode())
        else:
            if pid == 0:
                self._become_child(descriptors, limits)
            self._poll.register(self._reaper.adopt(pid, supervision).pidfd, select.POLLIN)
        for fd in descriptors:
            os.close(fd)
        return True

    def _become_child(self, descriptors: Sequence[int], limits: sandbox.Limits) -> None:
        """Never returns: whatever happens, the process ends here. `descriptors` are in the order of `launch.Ends`."""
        frames_fd, document, finished, output, fault_log = descriptors
        status = _STATUS_BUG
        try:
            os.setpgid(0, 0)
            sandbox.die_with(self._pid)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sandbox.close_all_but({0, 1, 2, frames_fd, document, finished, fault_log, *self._library_descriptors})
            status = child.live(
                self._engine,
                connection=socket.socket(fileno=frames_fd),
                document=document,
                finished=finished,
                fault_log=fault_log,
                limits=limits,
            )
        except BaseException:  # noqa: BLE001  the last frame of this process: said in its stderr, and never returned from
            traceback.print_exc()
        finally:
            child.leave(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Lock, load, prove the single thread, serve; returns the exit status."""
    parser = argparse.ArgumentParser(prog="daemon.zygote")
    loading.add_arguments(parser)
    parser.add_argument("--control", type=int, required=True)
    arguments = parser.parse_args(argv)
    control = socket.socket(fileno=arguments.control)
    control.set_inheritable(False)
    sandbox.first_lock(parent_pid=arguments.parent)
    sandbox.adopt_orphans()
    try:
        engine = loading.load(arguments)
    except EngineError as error:
        control.send(json.dumps({"error": str(error)[:4000]}).encode())
        return int(ExitStatus.ENGINE)
    gc.collect()
    sandbox.give_back_free_memory()
    gc.freeze()
    threads = sandbox.thread_names()
    ready = {"ready": os.getpid(), "threads": threads, "engine": loading.plain(engine.manifest)}
    control.send(json.dumps(ready).encode())
    if len(threads) == 1:
        Zygote(engine, control).serve()
    return 0


if __name__ == "__main__":
    child.leave(main())
