"""How the attempts of `attempts.py` are made: with the kernel's own calls, where Python has none for them.

Each returns when it succeeded, and raises OSError otherwise.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Numbers on x86-64 and aarch64 of calls that Python has no function for.
NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "mount": (165, 40),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "rt_sigqueueinfo": (129, 138),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "setns": (308, 268),
    "setrlimit": (160, 164),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), 0)
_PTRACE_SEIZE = 0x4206


def call(name: str, *arguments: Any) -> int:
    """Make one system call. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = ctypes.c_long(NUMBERS[name][_COLUMN])
    answer: int = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if answer < 0:
        raise OSError(ctypes.get_errno(), name)
    return answer


def closing(descriptor: int) -> None:
    """An attempt that made a descriptor succeeded."""
    os.close(descriptor)


def connect(family: int, kind: int, address: Any) -> None:
    """Connect, and say something."""
    with socket.socket(family, kind) as made:
        made.settimeout(5)
        made.connect(address)
        made.send(b"hello")


def bind(family: int, kind: int, address: Any) -> None:
    """Take an address."""
    with socket.socket(family, kind) as made:
        made.bind(address)


def inherited_socket() -> socket.socket:
    """The only socket that a child has."""
    for fd in range(64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                return socket.socket(fileno=os.dup(fd))
    raise AssertionError("no socket")


def reconnect(path: str) -> None:
    """Point the socket that the child was given elsewhere."""
    with inherited_socket() as given:
        given.connect(path)


def pass_descriptor() -> None:
    """Hand the parent a descriptor that it did not ask for."""
    with inherited_socket() as given:
        socket.send_fds(given, [], [0])


def read(path: str) -> None:
    """Read a little; nothing is an error too, as for a file that was emptied."""
    assert Path(path).open("rb").read(1), "nothing to read"  # noqa: SIM115  ends with the process


def read_through_link(path: str, link: Path) -> None:
    """Read by another name."""
    link.symlink_to(path)
    read(str(link))


def read_memory(pid: int) -> None:
    """Read the parent's memory through /proc, where its first mapping begins."""
    start = int(Path(f"/proc/{pid}/maps").read_text(encoding="ascii").split("-")[0], 16)
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(start)
        memory.read(16)


def vm(name: str, pid: int) -> None:
    """Reach into another process; where nothing lies at this address, that is said after the right was checked."""
    here = ctypes.create_string_buffer(16)
    ours, theirs = (ctypes.c_size_t * 2)(ctypes.addressof(here), 16), (ctypes.c_size_t * 2)(4096, 16)
    call(name, pid, ours, 1, theirs, 1, 0)


def reopen(flags: int) -> None:
    """Open what the child was given read-only (the document, the finished pages) anew, through /proc."""
    for fd in range(3, 64):
        with suppress(OSError):
            status = os.fstat(fd)
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            if stat.S_ISREG(status.st_mode) and not status.st_nlink and not writable:
                break
    else:
        raise AssertionError("no document")
    closing(os.open(f"/proc/self/fd/{fd}", flags))


def fork() -> None:
    """Make a process."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def thread() -> None:
    """Make a thread, and use it: this one is allowed."""
    done = threading.Event()
    maker = threading.Thread(target=done.set)
    maker.start()
    maker.join()
    assert done.is_set()


def execute(path: str) -> None:
    """Become another program, in a process of its own where that is possible."""
    os.execv(path, [path])  # noqa: S606


def by_pidfd(pid: int) -> None:
    """Signal through a pidfd."""
    pidfd = call("pidfd_open", pid, 0)
    call("pidfd_send_signal", pidfd, 0, None, 0)


def owned_socket(pid: int, *, by_ioctl: bool) -> None:
    """Let the kernel send a signal for us: the owner of a descriptor hears of input on it."""
    readable, _ = os.pipe()
    if by_ioctl:
        with inherited_socket() as given:
            fcntl.ioctl(given, 0x8901, pid.to_bytes(4, "little"))  # FIOSETOWN
    else:
        fcntl.fcntl(readable, fcntl.F_SETOWN, pid)


def seize(pid: int) -> None:
    """Become its tracer; ends with us."""
    call("ptrace", _PTRACE_SEIZE, pid, 0, 0)


def handle(path: str) -> None:
    """Go round the folders: by the file's handle."""
    buffer = ctypes.create_string_buffer(8 + 128)
    buffer.raw = (128).to_bytes(4, "little") + bytes(132)
    mount = ctypes.c_int()
    call("name_to_handle_at", -100, path.encode(), buffer, ctypes.byref(mount), 0)


def open_handle() -> None:
    """The second half of it."""
    buffer = ctypes.create_string_buffer(8 + 128)
    call("open_by_handle_at", -100, buffer, 0)


def write(path: Path) -> None:
    """Make a file, or fill it."""
    path.write_text("x", encoding="ascii")


def create_and_remove(path: Path) -> None:
    """Make a folder."""
    path.mkdir()
    path.rmdir()


def work_in(scratch: Path) -> None:
    """Everything that an honest child does with files."""
    folder = scratch / "one" / "two"
    folder.mkdir(parents=True)
    write(folder / "a")
    (folder / "a").rename(scratch / "b")
    (scratch / "c").symlink_to("b")
    assert (scratch / "c").read_text(encoding="ascii") == "x"
    os.link(scratch / "b", folder / "d")
    os.truncate(os.open(scratch / "b", os.O_WRONLY), 0)
    with (scratch / "m").open("wb+") as file:
        file.truncate(4096)
        mmap.mmap(file.fileno(), 4096).close()
    for name in ("b", "c", "m", "one/two/d"):
        (scratch / name).unlink()
    folder.rmdir()


def foreign_call() -> None:
    """Ask for the pid by i386's door, out of a page of our own code: kills where it is not let through."""
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def x32_call() -> None:
    """Ask for the pid by x32's door."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(0x40000000 | 39)) < 0:
        raise OSError(ctypes.get_errno(), "x32")


def prctl(option: int, value: Any) -> None:
    """Change this process. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value if isinstance(value, ctypes.c_char_p) else ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
