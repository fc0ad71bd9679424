"""How a child comes to be, and how its end is learned: the seam behind which zygote and spawn are the same.

Edge: processes. A launcher takes the child's ends and returns a handle; whoever watches the child polls the
handle's descriptor and asks it for news. A handle signals only a process that it can still name: by pidfd,
or by a group whose leader is not reaped. Here is what `launch_spawn.py` and `launch_zygote.py` share.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from daemon import sandbox
from daemon.config_engine import EngineSettings
from daemon.processes import await_end, end_marked
from daemon.sandbox_parts import Mode

#: What of faulthandler's traceback is kept; the memfd is exactly as large and cannot grow.
FAULT_LOG_BYTES = 32 * 2**10
#: Ten seconds for a child to go after SIGKILL, looked at often enough.
_DISPOSE_ROUNDS, _DISPOSE_ROUND_MS = 40, 250
#: How long a child that is about to be killed may take to write where it is.
_TRACEBACK_S = 0.5
_TRACEBACK_STEP_S = 0.02
#: How much of a child's output goes into the record.
_TAIL_CHARACTERS = 4000
#: From <linux/memfd.h> by way of fcntl: the size is final.
_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 0x2, 0x4
_READ_BYTES = 2**16
_NEWS_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
#: How long a supervisor may take to end.
_STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which engine a process loads. Set by code only: a factory is code that runs."""

    factory: str
    #: Folder put before `sys.path`, for a factory outside the package; empty for none.
    path: str
    settings: EngineSettings
    threads: int
    sandbox: Mode
    #: Exists; below it lies every child's scratch.
    scratch_root: Path

    def command(self, module: str) -> list[str]:
        """Return the start of a command line that runs `module` with this engine."""
        return [
            *(sys.executable, "-s", "-P", "-m", module),
            *("--parent", str(os.getpid())),
            *("--factory", self.factory),
            *("--path", self.path),
            *("--settings", self.settings.model_dump_json()),
            *("--threads", str(self.threads)),
            *("--sandbox", self.sandbox, "--scratch-root", str(self.scratch_root)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The child was reaped."""

    #: As `wait4` returns it; `classify.exit_of` reads it.
    wait_status: int
    max_rss_bytes: int
    #: Descendants that outlived it and were ended.
    orphans: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """Whoever would have told us of the child's end is gone."""


class Supervisor(Protocol):
    """The process that reaps a child and reports its end: the zygote, or a spawned child's first process."""

    #: `NAME=value` in the environment of everything below it.
    mark: bytes

    def kill(self) -> None:
        """SIGKILL; its children follow by themselves."""
        ...

    def await_end(self, timeout_s: float) -> bool:
        """Wait a bounded time for it to end and to be reaped; whether it was."""
        ...

    def release(self) -> None:
        """Let it go: this child has ended."""
        ...


class Handle:
    """One child that was asked for; its supervisor reports on the child's own socket."""

    def __init__(self, supervision: socket.socket, supervisor: Supervisor) -> None:
        #: None until it is known to run.
        self.pid: int | None = None
        self._supervision = supervision
        self._supervisor = supervisor
        self._pidfd = -1
        self._condemned = False

    def fileno(self) -> int:
        """Return the descriptor that is readable when `news` has something to say."""
        return self._supervision.fileno()

    def news(self) -> Ended | Abandoned | None:
        """Read what there is without waiting."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._supervision, 4096, 1, _NEWS_FLAGS)
        except BlockingIOError:
            return None
        except OSError:
            data, descriptors = b"", []
        if not data:
            return self._abandoned()
        report = json.loads(data)
        if "started" in report:
            if not descriptors:  # we had none left for its pidfd; without a job it leaves when we hang up
                return Abandoned()
            self.pid, self._pidfd = report["started"], descriptors[0]
            if self._condemned:
                self.kill()
            return None
        if "failed" in report:
            return Abandoned()
        return Ended(wait_status=report["exited"], max_rss_bytes=report["max_rss_bytes"], orphans=report["orphans"])

    def _abandoned(self) -> Abandoned:
        """Its end also ended its children; what those left is found by its mark."""
        self.kill()
        if self._supervisor.await_end(_STOP_S):
            end_marked(self._supervisor.mark)
        return Abandoned()

    def ended_unreaped(self, timeout_s: float) -> bool:
        """Wait a bounded time for the process to end; True also when it was never known to run."""
        return self._pidfd < 0 or await_end(self._pidfd, timeout_s)

    def kill(self) -> None:
        """SIGKILL the child's group and the child; one that is not known to run yet dies as soon as it is."""
        self._condemned = True
        if self.pid is None or self.ended_unreaped(0):
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def ask_traceback(self) -> None:
        """Ask faulthandler where the child is."""
        with suppress(OSError):  # it has ended, or is not known to run
            signal.pidfd_send_signal(self._pidfd, signal.SIGUSR1)

    def give_up(self) -> None:
        """End the supervisor: one that should have reported the child's end, and does not, is stuck."""
        self._supervisor.kill()

    def close(self) -> None:
        """Give the descriptors back."""
        self._supervision.close()
        self._supervisor.release()
        if self._pidfd >= 0:
            os.close(self._pidfd)


class Output:
    """What a child printed: the first of it kept, the rest counted."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self.dropped_bytes = 0

    def read(self) -> int | None:
        """Read once; returns how many bytes came, 0 at the end, None when there is nothing yet."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return None
        room = self._max_bytes - len(self._kept)
        self._kept += data[:room]
        self.dropped_bytes += max(0, len(data) - room)
        return len(data)

    def tail(self) -> str:
        """Return the end of what was kept, for the record."""
        return self._kept.decode("utf-8", "replace")[-_TAIL_CHARACTERS:]


class Launcher(Protocol):
    """Makes children."""

    def begin(self) -> None:
        """Begin to load the engine where that can be done ahead, and return at once. Raises EngineError."""
        ...

    def start(self) -> dict[str, object]:
        """After `begin`: prove that the engine loads and return its manifest. Raises EngineError, after `stop` too."""
        ...

    def launch(self, ends: Ends, limits: sandbox.Limits) -> Handle:
        """Ask for one child; the caller closes the child's ends afterwards. Raises EngineError."""
        ...

    def stop(self) -> None:
        """End everything that was started."""
        ...


class Ends:
    """Both sides' descriptors of one child. All are closed by `close`, the child's sides earlier."""

    def __init__(self, document: BinaryIO, finished: BinaryIO | None = None) -> None:
        """`finished` is a pack of pages (`pack.py`); None for none. Raises OSError, with nothing left open."""
        self.output = self.child_output = self.fault_log = self.document = self.finished = -1
        self.frames, self.child_frames = socket.socketpair()
        self.frames.setblocking(False)
        try:
            self._open(document, finished)
        except BaseException:
            self.close()  # no descriptor or no memory was left in the middle
            raise

    def _open(self, document: BinaryIO, finished: BinaryIO | None) -> None:
        self.output, self.child_output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.child_output, True)
        self.fault_log = os.memfd_create("fault-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fault_log, FAULT_LOG_BYTES)
        fcntl.fcntl(self.fault_log, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
        # Opened anew: read-only and with an offset of its own, so that no child can change what the next one reads.
        self.document = os.open(f"/proc/self/fd/{document.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        pack = os.devnull if finished is None else f"/proc/self/fd/{finished.fileno()}"
        self.finished = os.open(pack, os.O_RDONLY | os.O_CLOEXEC)

    def for_child(self) -> list[int]:
        """Return the child's sides: frames, document, finished pages, output, fault log."""
        return [self.child_frames.fileno(), self.document, self.finished, self.child_output, self.fault_log]

    def close_child_side(self) -> None:
        """Close our copies, so that the child's end is an end."""
        self.child_frames.close()
        for name in ("child_output", "document", "finished"):
            self._close(name)

    def close(self) -> None:
        """Close everything that is still open."""
        self.close_child_side()
        self.frames.close()
        for name in ("output", "fault_log"):
            self._close(name)

    def traceback(self) -> str:
        """Return what faulthandler wrote, if anything."""
        return os.pread(self.fault_log, FAULT_LOG_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace")

    def _close(self, name: str) -> None:
        descriptor: int = getattr(self, name)
        if descriptor >= 0:
            os.close(descriptor)
            setattr(self, name, -1)


def await_traceback(handle: Handle, ends: Ends) -> None:
    """Ask a child where it is; wait until the answer stops growing, and not for long."""
    before = ""
    handle.ask_traceback()
    for _ in range(int(_TRACEBACK_S / _TRACEBACK_STEP_S)):
        if handle.ended_unreaped(_TRACEBACK_STEP_S):
            return
        now = ends.traceback()
        if now and now == before:
            return
        before = now


def dispose(handle: Handle) -> None:
    """End a child that nobody watches any more, and reap it; bounded."""
    waiting = select.poll()
    waiting.register(handle.fileno(), select.POLLIN)
    handle.kill()
    for _ in range(_DISPOSE_ROUNDS):
        waiting.poll(_DISPOSE_ROUND_MS)
        if handle.news() is not None:
            return
    handle.give_up()
