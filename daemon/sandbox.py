"""What a process that opens documents may do, and how it is bound to its parent.

Edge: the kernel. Two locks, which only ever tighten. The first is taken by the zygote (or a spawned child) while it has
one thread and has imported nothing of the engine: no socket, no program, no other file than `reach.py` lists. The
second is taken by every child before it reads a byte of its document: no process, no signal, no file to write but its
scratch. Each lock sets limits first, then Landlock, then seccomp, and raises when the kernel refuses: what was said to
be in force is in force. Processes stay dumpable, because an unprivileged parent below ProtectProc=invisible could
otherwise neither see a child's memory nor find what it left; the parent, which has the credentials, does not
(`hide`). Environment: an allow-list, so that a new credential variable is kept out without being known.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from daemon import landlock, reach, seccomp
from daemon.errors import EngineError
from daemon.sandbox_parts import Mode, missing
from daemon.syscall_filter import child_program, zygote_program

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# From <linux/prctl.h>.
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38

#: Descriptors of one child; the engine was seen to need about 30.
MAX_OPEN_FILES: Final = 512
#: Processes and threads of the child's *user*, its parent's and everybody's included: a net below which no host gets
#: stuck. A child cannot fork at all.
MAX_PROCESSES: Final = 4096
#: The kernel's own bound (`sysctl fs.nr_open`) is lower.
_LAST_DESCRIPTOR: Final = 2**31 - 1
#: From <linux/capability.h>. What root keeps, so that a root-owned daemon may have its code in somebody's home.
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAP_DAC_READ_SEARCH: Final = 1 << 2

#: What passes from the parent's environment. The two OPENBLAS ones describe the host's CPU and are set on purpose.
ALLOWED_VARIABLES: Final = frozenset(
    {
        "PATH",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "LD_LIBRARY_PATH",
        "OPENBLAS_CORETYPE",
        "OPENBLAS_L2_SIZE",
    }
)
#: One thread in every library, so that the zygote may fork; no telemetry, no model hub, no byte code written,
#: and the same order of sets in every process, so that two runs give the same bytes. No home, so that no library looks
#: the user up or keeps a cache. glibc asks for huge pages: a page of text made 30,000 page faults, and makes about
#: 1,000. And what a network allocates for one run goes back to the kernel after it: glibc would come to keep all of it,
#: in pieces that nothing fits into (docs/performance.md).
FORCED_VARIABLES: Final[Mapping[str, str]] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "HOME": "/nonexistent",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4194304",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the kernel holds one child to."""

    #: RLIMIT_DATA: private memory; what it does not count is left to the parent's samples.
    memory_bytes: int
    #: RLIMIT_FSIZE: one file.
    max_file_bytes: int


def environment(source: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that opens documents, made from the parent's."""
    return {name: value for name, value in source.items() if name in ALLOWED_VARIABLES} | dict(FORCED_VARIABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What both locks of one process must know."""

    mode: Mode
    #: Below it lies every child's scratch.
    scratch_root: Path
    #: Folders with code that is not installed.
    code: tuple[Path, ...] = ()


def first_lock(*, parent_pid: int, confinement: Confinement) -> None:
    """Bind this process to `parent_pid`, and give up what no document needs.

    Raises EngineError when `Mode.REQUIRED` asks for what the kernel lacks, OSError when the kernel refuses what it
    has. Ends the process when the parent is gone already.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    die_with(parent_pid)
    # A terminal's Ctrl+C, and systemd's SIGTERM, are the parent's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _limit(resource.RLIMIT_CORE, 0)
    # Inherited by the children, of which the kernel then ends the largest; a zygote is smaller, and soon replaced.
    with suppress(OSError):  # a read-only /proc costs the preference, not the conversion
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if confinement.mode is Mode.OFF:
        return
    lacks = missing()
    if lacks and confinement.mode is Mode.REQUIRED:
        raise EngineError(f"cannot lock the process that opens documents: {'; '.join(part.detail for part in lacks)}")
    _drop_capabilities(keep=_CAP_DAC_READ_SEARCH if landlock.abi() else 0)
    if landlock.abi():
        landlock.restrict(reach.zygote_rules(scratch_root=confinement.scratch_root, code=confinement.code))
    if seccomp.is_available():
        seccomp.install(zygote_program)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that all of them can be ended and reaped."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def second_lock(limits: Limits, *, confinement: Confinement, scratch: Path) -> None:
    """Hold this process to `limits`, and let it write nothing but `scratch`.

    Threads that the engine has already are bound by the filter of system calls, and by the first lock's files.
    Raises OSError when the kernel refuses.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_NPROC, MAX_PROCESSES)
    _limit(resource.RLIMIT_FSIZE, limits.max_file_bytes)
    _limit(resource.RLIMIT_DATA, limits.memory_bytes)
    if confinement.mode is Mode.OFF:
        return
    if landlock.abi():
        landlock.restrict(reach.child_rules(scratch=scratch, code=confinement.code))
    if seccomp.is_available():
        seccomp.install(partial(child_program, pid=os.getpid()))


def hide() -> None:
    """Keep this process's memory, environment and descriptors from other processes of its user.

    For the parent: children are kept from it by Landlock too, but not every kernel has that. No core dumps either.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with(parent_pid: int) -> None:
    """Ask for SIGKILL when the *thread* that forked this process ends; ends here if that has happened."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def open_descriptors() -> frozenset[int]:
    """Return this process's descriptors (the one used for looking is closed again)."""
    found = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208  no paths are needed, only numbers
    return frozenset(fd for fd in found if _is_open(fd))


def close_all_but(keep: Collection[int]) -> None:
    """Close every descriptor that is not in `keep`; needs no /proc, which a locked process does not have."""
    first = 0
    for fd in sorted(keep):
        if first < fd:  # an empty range would be taken for an endless one
            os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, _LAST_DESCRIPTOR)


def thread_names() -> tuple[str, ...]:
    """Return the names of this process's threads, as the kernel lists them: the proof of the single thread."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # ended while we looked
            names.append((task / "comm").read_text(encoding="utf-8", errors="replace").strip())
    return tuple(sorted(names))


def own_children() -> frozenset[int]:
    """Return the pids of this process's children, adopted and ended ones included."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            pids.update(int(pid) for pid in (task / "children").read_text(encoding="ascii").split())
    return frozenset(pids)


def _drop_capabilities(*, keep: int) -> None:
    """Give up every capability but `keep`, a set of bits below 32; who has none loses none."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    if _LIBC.capget(header, held) == 0:
        if not any(struct.unpack("=6I", held.raw)):
            return  # and is not asked: a unit that gives none forbids capset as well (~@privileged)
        _, permitted, *_ = struct.unpack("=6I", held.raw)
        kept = struct.pack("=6I", permitted & keep, permitted & keep, 0, 0, 0, 0)
        if _LIBC.capset(header, kept) == 0:
            return
    code = ctypes.get_errno()
    raise OSError(code, f"cannot give up capabilities: {os.strerror(code)}")


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _limit(kind: int, value: int) -> None:
    """Lower both limits to `value`, or to the hard limit where that is lower still."""
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot set prctl option {option}: {os.strerror(code)}")
