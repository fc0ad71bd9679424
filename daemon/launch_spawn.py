"""A fresh interpreter per child: the reference behaviour, and the fall-back.

Edge: processes. No shared memory and no shared fate, at the price of loading the engine each time. We are the
parent, so we reap, and end what the child left: its group while the leader is not reaped yet, then whatever
bears its mark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import uuid
from contextlib import suppress

from daemon import sandbox, wire
from daemon.clock import Clock
from daemon.errors import EngineError, ProtocolError
from daemon.frames import Failure, Hello
from daemon.launch import Ended, Ends, EngineSpec, await_end, dispose, end_marked

_READ_BYTES = 2**16
#: Marks what a spawned child started, so that it can be found when it has left the child's group.
_MARK_VARIABLE = "DAEMON_CHILD_MARK"


class SpawnLauncher:
    """A fresh interpreter per child: no shared memory, no shared fate, seconds slower."""

    def __init__(self, spec: EngineSpec, *, clock: Clock, start_timeout_s: float) -> None:
        self._spec = spec
        self._clock = clock
        self._start_timeout_s = start_timeout_s

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

    def launch(self, ends: Ends, limits: sandbox.Limits) -> SpawnHandle:
        """See `Launcher`."""
        frames, document, output, fault_log = ends.for_child()
        token = uuid.uuid4().hex
        try:
            process = subprocess.Popen(  # noqa: S603  our own interpreter with our own module
                [
                    *self._spec.command("daemon.child"),
                    *("--frames", str(frames), "--document", str(document), "--fault-log", str(fault_log)),
                    *("--memory-bytes", str(limits.memory_bytes), "--max-file-bytes", str(limits.max_file_bytes)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(frames, document, fault_log),
                env=sandbox.environment(os.environ) | {_MARK_VARIABLE: token},
                process_group=0,
            )
        except OSError as error:
            raise EngineError(f"cannot start a child: {error}; check memory and the limit of processes") from error
        return SpawnHandle(process, token)

    def stop(self) -> None:
        """See `Launcher`: every child ends with its own watch."""


class SpawnHandle:
    """A child of ours: we reap it."""

    def __init__(self, process: subprocess.Popen[bytes], token: str) -> None:
        self.pid: int | None = process.pid
        self._pid = process.pid
        self._process = process
        self._token = token
        self._pidfd = os.pidfd_open(process.pid)

    def fileno(self) -> int:
        """See `Handle`."""
        return self._pidfd

    def news(self) -> Ended | None:
        """See `Handle`."""
        if not self.ended_unreaped(0):
            return None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)  # the leader is not reaped yet, so the number is still its own
        _, status, usage = os.wait4(self._pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        orphans = end_marked(f"{_MARK_VARIABLE}={self._token}".encode())
        return Ended(wait_status=status, max_rss_bytes=usage.ru_maxrss * 1024, orphans=orphans)

    def ended_unreaped(self, timeout_s: float) -> bool:
        """See `Handle`."""
        return await_end(self._pidfd, timeout_s)

    def kill(self) -> None:
        """See `Handle`."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)

    def ask_traceback(self) -> None:
        """See `Handle`."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGUSR1)

    def give_up(self) -> None:
        """See `Handle`: we are the reporter ourselves."""

    def close(self) -> None:
        """See `Handle`."""
        os.close(self._pidfd)


def _tail(ends: Ends) -> str:
    with suppress(BlockingIOError):
        return os.read(ends.output, 4096).decode("utf-8", "replace").strip()[-500:]
    return "it printed nothing"
