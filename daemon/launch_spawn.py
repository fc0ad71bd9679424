"""A fresh interpreter per child: the reference behaviour, and the fall-back.

Edge: processes. No shared memory and no shared fate, at the price of loading the engine each time. A small first
process stands between us and the child: it adopts, ends and reaps what the child leaves, as a zygote does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import uuid
from contextlib import suppress

from daemon import sandbox, wire
from daemon.clock import Clock
from daemon.errors import EngineError, ProtocolError
from daemon.frames import Failure, Hello
from daemon.launch import Ends, EngineSpec, Handle, dispose

_READ_BYTES = 2**16
#: How long the first process may take to leave after its report.
_STOP_S = 5.0
#: Marks what a spawned child started, so that it can be found when it has left the child's group.
_MARK_VARIABLE = "DAEMON_CHILD_MARK"


class SpawnLauncher:
    """A fresh interpreter per child: no shared memory, no shared fate, seconds slower."""

    def __init__(self, spec: EngineSpec, *, clock: Clock, start_timeout_s: float) -> None:
        self._spec = spec
        self._clock = clock
        self._start_timeout_s = start_timeout_s

    def begin(self) -> None:
        """See `Launcher`: nothing is kept that could be loaded ahead."""

    def start(self) -> dict[str, object]:
        """See `Launcher`: one child without a document is started, says hello and is let go."""
        with tempfile.TemporaryFile() as nothing:
            ends = Ends(nothing)
        try:
            handle = self.launch(ends, sandbox.Limits(memory_bytes=2**40, max_file_bytes=2**20))
            try:
                ends.close_child_side()
                return self._first_words(ends)
            finally:
                dispose(handle)
                handle.close()
        finally:
            ends.close()

    def _first_words(self, ends: Ends) -> dict[str, object]:
        decoder = wire.Decoder(max_total_bytes=wire.MAX_FRAME_BYTES)
        deadline = self._clock.monotonic() + self._start_timeout_s
        ends.frames.settimeout(self._start_timeout_s)
        try:
            while self._clock.monotonic() < deadline and (received := ends.frames.recv(_READ_BYTES)):
                for frame in decoder.feed(received):
                    if isinstance(frame, Hello):
                        return dict(frame.engine or {})
                    if isinstance(frame, Failure):
                        raise EngineError(frame.detail)
        except (OSError, ProtocolError) as error:
            raise EngineError(f"cannot start a child: {error}; {_tail(ends)}") from error
        raise EngineError(f"cannot start a child: it left without a word; {_tail(ends)}")

    def launch(self, ends: Ends, limits: sandbox.Limits) -> Handle:
        """See `Launcher`."""
        frames, document, finished, output, fault_log = ends.for_child()
        token = uuid.uuid4().hex
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            *self._spec.command("daemon.child"),
            *("--frames", str(frames), "--document", str(document), "--fault-log", str(fault_log)),
            *("--finished", str(finished), "--supervision", str(its.fileno())),
            *("--memory-bytes", str(limits.memory_bytes), "--max-file-bytes", str(limits.max_file_bytes)),
        ]
        try:
            with its:
                process = subprocess.Popen(  # noqa: S603  our own interpreter with our own module
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(frames, document, finished, fault_log, its.fileno()),
                    env=sandbox.environment(os.environ) | {_MARK_VARIABLE: token},
                    process_group=0,
                )
        except OSError as error:
            ours.close()
            raise EngineError(f"cannot start a child: {error}; check memory and the limit of processes") from error
        return Handle(ours, FirstProcess(process, f"{_MARK_VARIABLE}={token}".encode()))

    def stop(self) -> None:
        """See `Launcher`: every child ends with its own watch."""


class FirstProcess:
    """The parent of one spawned child; we are its parent."""

    def __init__(self, process: subprocess.Popen[bytes], mark: bytes) -> None:
        self._process = process
        self.mark = mark

    def kill(self) -> None:
        """See `Supervisor`."""
        self._process.kill()

    def await_end(self, timeout_s: float) -> bool:
        """See `Supervisor`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def release(self) -> None:
        """See `Supervisor`: it leaves by itself right after its report; one that does not is ended."""
        if not self.await_end(_STOP_S):
            self.kill()
            self.await_end(_STOP_S)


def _tail(ends: Ends) -> str:
    with suppress(BlockingIOError):
        return os.read(ends.output, 4096).decode("utf-8", "replace").strip()[-500:]
    return "it printed nothing"
