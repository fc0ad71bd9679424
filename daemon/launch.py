"""How a child comes to be, and how its end is learned: the seam behind which zygote and spawn are the same.

Edge: processes. A launcher takes the child's ends and returns a handle; whoever watches the child polls the
handle's descriptor and asks it for news. A handle signals only a process that it can still name: by pidfd,
or by a group whose leader is not reaped. Here is what `launch_spawn.py` and `launch_zygote.py` share.
"""

from __future__ import annotations

import fcntl
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
from daemon.config import EngineSettings

#: What of faulthandler's traceback is kept; the memfd is exactly as large and cannot grow.
FAULT_LOG_BYTES = 32 * 2**10
#: Ten seconds for a child to go after SIGKILL, looked at often enough.
_DISPOSE_ROUNDS, _DISPOSE_ROUND_MS = 40, 250
#: A SIGKILLed process is gone in microseconds; one in uninterruptible sleep is not waited for longer.
_MARKED_END_S = 1.0
#: How much of a child's output goes into the record.
_TAIL_CHARACTERS = 4000
#: From <linux/memfd.h> by way of fcntl: the size is final.
_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 0x2, 0x4
_READ_BYTES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which engine a process loads. Set by code only: a factory is code that runs."""

    factory: str
    #: Folder put before `sys.path`, for a factory outside the package; empty for none.
    path: str
    settings: EngineSettings
    threads: int

    def command(self, module: str) -> list[str]:
        """Return the start of a command line that runs `module` with this engine."""
        return [
            *(sys.executable, "-s", "-P", "-m", module),
            *("--parent", str(os.getpid())),
            *("--factory", self.factory),
            *("--path", self.path),
            *("--settings", self.settings.model_dump_json()),
            *("--threads", str(self.threads)),
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


class Handle(Protocol):
    """One child that was asked for."""

    #: None until it is known to run.
    pid: int | None

    def fileno(self) -> int:
        """Return the descriptor that is readable when `news` has something to say."""
        ...

    def news(self) -> Ended | Abandoned | None:
        """Read what there is without waiting."""
        ...

    def ended_unreaped(self, timeout_s: float) -> bool:
        """Wait a bounded time for the process to end; True also when it was never known to run."""
        ...

    def kill(self) -> None:
        """SIGKILL the child's group and the child; one that is not known to run yet dies as soon as it is."""
        ...

    def ask_traceback(self) -> None:
        """Ask faulthandler where the child is."""
        ...

    def give_up(self) -> None:
        """End whoever should have reported the child's end and does not."""
        ...

    def close(self) -> None:
        """Give the descriptors back."""
        ...


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

    def start(self) -> dict[str, object]:
        """Prove that the engine loads and return its manifest. Raises EngineError."""
        ...

    def launch(self, ends: Ends, limits: sandbox.Limits) -> Handle:
        """Ask for one child; the caller closes the child's ends afterwards. Raises EngineError."""
        ...

    def stop(self) -> None:
        """End everything that was started."""
        ...


class Ends:
    """Both sides' descriptors of one child. All are closed by `close`, the child's sides earlier."""

    def __init__(self, document: BinaryIO | int) -> None:
        self.frames, self.child_frames = socket.socketpair()
        self.frames.setblocking(False)
        self.output, self.child_output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.child_output, True)
        self.fault_log = os.memfd_create("fault-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fault_log, FAULT_LOG_BYTES)
        fcntl.fcntl(self.fault_log, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
        # Opened anew: read-only and with an offset of its own, so that no child can change what the next one reads.
        descriptor = document if isinstance(document, int) else document.fileno()
        self.document = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def for_child(self) -> list[int]:
        """Return the child's sides: frames, document, output, fault log."""
        return [self.child_frames.fileno(), self.document, self.child_output, self.fault_log]

    def close_child_side(self) -> None:
        """Close our copies, so that the child's end is an end."""
        self.child_frames.close()
        for name in ("child_output", "document"):
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


def await_end(pidfd: int, timeout_s: float) -> bool:
    """Wait at most `timeout_s` for the process to end; whether it has."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def end_marked(mark: bytes) -> int:
    """Kill every process whose environment holds `mark`; returns how many there were.

    Only those whose environment we may read are found: a forked copy of a child that made itself untraceable
    is not, unless we are root.
    """
    ended = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it ended while we looked, or is not ours to see
                pidfd = os.pidfd_open(int(folder.name))
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        await_end(pidfd, _MARKED_END_S)
                        ended += 1
                finally:
                    os.close(pidfd)
    return ended


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


def resident(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; 0 when it is gone."""
    total, waiting = 0, [pid]
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            total += int((folder / "statm").read_bytes().split()[1]) * page_bytes
            for task in (folder / "task").iterdir():
                waiting += [int(child) for child in (task / "children").read_bytes().split()]
        except (OSError, IndexError):
            continue
    return total
