"""What a hostile document would try once it runs code in its child: each attempt is a case of `test_sandbox.py`.

Imports nothing of ours but `calls.py`. Attempts that would hurt are made with arguments that the kernel refuses after
its filter.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.process.calls import (
    bind,
    by_pidfd,
    call,
    closing,
    connect,
    create_and_remove,
    execute,
    fork,
    handle,
    open_handle,
    owned_socket,
    pass_descriptor,
    prctl,
    read,
    read_memory,
    read_through_link,
    reconnect,
    reopen,
    seize,
    thread,
    vm,
    work_in,
    write,
    x32_call,
)


@dataclass(frozen=True, kw_only=True)
class Aims:
    """What the attempts are aimed at."""

    #: A process outside: the parent.
    pid: int
    #: The zygote, or a spawned child's first process, which is its parent: 0.
    sibling: int
    #: TCP and UDP on loopback; somebody listens.
    tcp_port: int
    udp_port: int
    #: Listening Unix sockets.
    socket_path: str
    abstract: str
    #: A file with a secret, in a folder of its own, that its user may read and write.
    secret: str
    #: The ledger, beside the folder of all scratch folders.
    ledger: str
    #: A folder outside that its user may write, with a file `there` in it.
    outside: str
    #: The child's own scratch.
    scratch: str


#: Doors that only one machine has.
_OF_X86_64: Mapping[str, Callable[[Aims], object]] = {"x32": lambda _: x32_call()}

#: By name; what the kernel should say to each is in `test_sandbox.py`.
ATTEMPTS: Mapping[str, Callable[[Aims], object]] = {
    # Connections.
    "tcp": lambda to: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", to.tcp_port)),
    "tcp6_bind": lambda _: bind(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
    "udp": lambda to: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", to.udp_port)),
    "unix": lambda to: connect(socket.AF_UNIX, socket.SOCK_STREAM, to.socket_path),
    "unix_abstract": lambda to: connect(socket.AF_UNIX, socket.SOCK_STREAM, b"\0" + to.abstract.encode()),
    "unix_bind": lambda to: bind(socket.AF_UNIX, socket.SOCK_DGRAM, to.outside + "/made"),
    "vsock": lambda _: connect(socket.AF_VSOCK, socket.SOCK_STREAM, (2, 1)),
    "netlink": lambda _: bind(socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)),
    "packet": lambda _: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "alg": lambda _: bind(socket.AF_ALG, socket.SOCK_SEQPACKET, ("hash", "sha256")),
    "socketpair": lambda _: socket.socketpair(),
    "given_socket": lambda to: reconnect(to.socket_path),
    "given_descriptor": lambda _: pass_descriptor(),
    # Reading.
    "shadow": lambda _: read("/etc/shadow"),
    "passwd": lambda _: read("/etc/passwd"),
    "secret": lambda to: read(to.secret),
    "secret_listed": lambda to: os.listdir(Path(to.secret).parent),  # noqa: PTH208
    "secret_by_link": lambda to: read_through_link(to.secret, Path(to.scratch) / "s"),
    "secret_by_dotdot": lambda to: read(f"{to.scratch}{20 * '/..'}{to.secret}"),
    "ledger": lambda to: read(to.ledger),
    "ledger_written": lambda to: closing(os.open(to.ledger, os.O_RDWR)),
    "scratch_of_others": lambda to: os.listdir(Path(to.scratch).parent),  # noqa: PTH208
    "parent_environment": lambda to: read(f"/proc/{to.pid}/environ"),
    "parent_memory": lambda to: read_memory(to.pid),
    "parent_memory_writable": lambda to: closing(os.open(f"/proc/{to.pid}/mem", os.O_RDWR)),
    "parent_descriptors": lambda to: os.listdir(f"/proc/{to.pid}/fd"),  # noqa: PTH208
    "parent_command": lambda to: read(f"/proc/{to.pid}/cmdline"),
    "parent_read": lambda to: vm("process_vm_readv", to.pid),
    "parent_write": lambda to: vm("process_vm_writev", to.pid),
    "parent_getfd": lambda to: call("pidfd_getfd", os.pidfd_open(to.pid), 0, 0),
    "sibling_environment": lambda to: read(f"/proc/{to.sibling}/environ"),
    "sibling_memory": lambda to: read_memory(to.sibling),
    "handle": lambda to: handle(to.secret),
    "handle_opened": lambda _: open_handle(),
    "openat2": lambda to: call("openat2", -100, to.secret.encode(), (ctypes.c_uint64 * 3)(), 24),
    "inotify": lambda _: closing(call("inotify_init1", 0)),
    "fanotify": lambda _: closing(call("fanotify_init", 0, 0)),
    "kernel_log": lambda _: call("syslog", 10, None, 0),
    # Writing.
    "file_made": lambda to: write(Path(to.outside) / "made"),
    "file_written": lambda to: write(Path(to.outside) / "there"),
    "file_cut": lambda to: call("truncate", f"{to.outside}/there".encode(), 0),
    "file_cut_by_reading": lambda to: closing(os.open(f"{to.outside}/there", os.O_RDONLY | os.O_TRUNC)),
    "file_linked": lambda to: os.link(f"{to.outside}/there", f"{to.scratch}/linked"),
    "file_taken": lambda to: os.rename(f"{to.outside}/there", f"{to.scratch}/taken"),  # noqa: PTH104
    "file_removed": lambda to: os.unlink(f"{to.outside}/there"),  # noqa: PTH108
    "folder_made": lambda to: create_and_remove(Path(to.outside) / "folder"),
    "beside_scratch": lambda to: create_and_remove(Path(to.scratch).parent / "folder"),
    "mode": lambda to: Path(to.outside, "there").chmod(0o777),
    "owner": lambda to: os.chown(f"{to.outside}/there", -1, -1),
    "time": lambda to: os.utime(f"{to.outside}/there"),
    "attribute": lambda to: os.setxattr(f"{to.outside}/there", "user.x", b"x"),
    "device_made": lambda to: os.mknod(f"{to.scratch}/null", stat.S_IFCHR, os.makedev(1, 3)),
    "document_reopened": lambda _: reopen(os.O_RDWR),
    "shared_memory_file": lambda _: closing(os.open("/dev/shm", os.O_RDWR | os.O_TMPFILE)),  # noqa: S108
    "temporary_file": lambda _: closing(os.open("/tmp", os.O_RDWR | os.O_TMPFILE)),  # noqa: S108
    "memfd": lambda _: closing(call("memfd_create", b"x", 0)),
    "shmget": lambda _: call("shmget", 0, 4096, 0o600),
    "semget": lambda _: call("semget", 0, 1, 0o600),
    "mq_open": lambda _: call("mq_open", None, 0, 0, None),
    # Processes.
    "exec": lambda _: execute("/bin/true"),
    "execveat": lambda _: call("execveat", -100, b"/bin/true", None, None, 0),
    "fork": lambda _: fork(),
    "clone3": lambda _: call("clone3", None, 0),
    "clone_namespace": lambda _: call("clone", 0x10000000 | signal.SIGCHLD | 0x00010000, 0, 0, 0, 0),
    "kill": lambda to: os.kill(to.pid, 0),
    "kill_sibling": lambda to: os.kill(to.sibling, 0),
    "kill_group": lambda _: os.kill(0, 0),
    "kill_all": lambda _: os.kill(-1, 0),
    "tgkill": lambda to: call("tgkill", to.pid, to.pid, 0),
    "tkill": lambda to: call("tkill", to.pid, 0),
    "sigqueue": lambda to: call("rt_sigqueueinfo", to.pid, 0, (ctypes.c_int * 32)(0, 0, -1)),
    "pidfd": lambda to: by_pidfd(to.pid),
    "owned_descriptor": lambda to: owned_socket(to.pid, by_ioctl=False),
    "owned_socket": lambda to: owned_socket(to.pid, by_ioctl=True),
    "ptrace": lambda to: seize(to.pid),
    "kcmp": lambda to: call("kcmp", os.getpid(), to.pid, 1, 0, 0),
    "limit_of_parent": lambda to: __import__("resource").prlimit(to.pid, 7),
    "own_limit": lambda _: call("setrlimit", 7, (ctypes.c_size_t * 2)(64, 64)),
    "affinity_of_parent": lambda to: os.sched_setaffinity(to.pid, os.sched_getaffinity(to.pid)),
    "priority_of_parent": lambda to: os.setpriority(os.PRIO_PROCESS, to.pid, 0),
    "session": lambda _: os.setsid(),
    "outlive_parent": lambda _: prctl(1, 0),
    "dumpable": lambda _: prctl(4, 1),
    "subreaper": lambda _: prctl(36, 1),
    # The kernel's back doors.
    "io_uring": lambda _: call("io_uring_setup", 1, None),
    "aio": lambda _: call("io_setup", 0, None),
    "userfaultfd": lambda _: closing(call("userfaultfd", 1)),
    "bpf": lambda _: call("bpf", 0, None, 0),
    "perf": lambda _: call("perf_event_open", None, 0, 0, 0, 0),
    "keyctl": lambda _: call("keyctl", 0, -3, 1, 0, 0),
    "add_key": lambda _: call("add_key", None, None, None, 0, 0),
    "unshare_user": lambda _: call("unshare", 0x10000000),
    "unshare_mount": lambda _: call("unshare", 0x00020000),
    "setns": lambda _: call("setns", 0, 0),
    "mount": lambda _: call("mount", 1, 1, 1, 0, 0),
    "fsopen": lambda _: call("fsopen", None, 0),
    "move_mount": lambda _: call("move_mount", -100, None, -100, None, 0),
    "pivot_root": lambda _: call("pivot_root", None, None),
    "chroot": lambda to: os.chroot(to.scratch),
    "module": lambda _: call("finit_module", -1, None, 0),
    "swap": lambda _: call("swapon", None, 0),
    "reboot": lambda _: call("reboot", 0, 0, 0, None),
    "personality": lambda _: call("personality", 0x0008),
    "capability": lambda _: os.setgid(os.getgid()),
    "seccomp": lambda _: call("seccomp", 2, 0, ctypes.byref(ctypes.c_uint32(0x00050000))),
    "ioctl_terminal": lambda _: fcntl.ioctl(0, 0x5412, b"x"),  # TIOCSTI
    # What must go on working.
    "allowed_thread": lambda _: thread(),
    "allowed_scratch": lambda to: work_in(Path(to.scratch)),
    "allowed_null": lambda _: write(Path(os.devnull)),
    "allowed_random": lambda _: os.urandom(8) + Path("/dev/urandom").open("rb").read(8),  # noqa: SIM115
    "allowed_import": lambda _: __import__("wave"),
    "allowed_name": lambda _: prctl(15, ctypes.c_char_p(b"named")),
    "allowed_self": lambda _: os.kill(os.getpid(), 0),
    **(_OF_X86_64 if platform.machine() == "x86_64" else {}),
}


def tried(name: str, aims: Aims) -> str:
    """Make one attempt: `done`, or the name of its error.

    In a process of its own where one can be had, so that what succeeds changes nothing for the next attempt.
    """
    aims = replace(aims, sibling=aims.sibling or os.getppid())
    readable, writable = os.pipe()  # which another program does not get: silence and status 0 is its success
    try:
        pid = os.fork()
    except PermissionError:
        return outcome(name, aims)
    if pid == 0:
        signal.alarm(20)
        os.write(writable, outcome(name, aims).encode())
        os._exit(99)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return said or ("done" if status == 0 else f"status {status}")


def outcome(name: str, aims: Aims) -> str:
    """Make one attempt in this process."""
    try:
        ATTEMPTS[name](aims)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    except BaseException as error:  # noqa: BLE001  told, and compared with what was expected
        return repr(error)
    return "done"


def tried_in_child(request: dict[str, Any], scratch: Path) -> str:
    """What a page of the fake engine's document asks for."""
    name = request.pop("attempt")
    return tried(name, Aims(**request, scratch=str(scratch)))


#: What a process that only loads the engine must not be able to do either; none of these needs an aim.
WHILE_LOADING = (
    *("shadow", "passwd", "tcp6_bind", "netlink", "packet", "execveat", "memfd", "shmget", "temporary_file"),
    *("shared_memory_file", "inotify", "io_uring", "userfaultfd", "bpf", "perf", "keyctl", "unshare_user", "clone3"),
    *("clone_namespace", "mount", "personality", "kernel_log", "reboot", "capability"),
)


def tried_while_loading() -> dict[str, str]:
    """Make the attempts that need no aim, in this process: what they open is closed, and nothing else remains."""
    nowhere = Aims(
        pid=0,
        sibling=1,
        tcp_port=0,
        udp_port=0,
        socket_path="",
        abstract="",
        secret="",
        ledger="",
        outside="",
        scratch="",
    )
    return {name: tried(name, nowhere) for name in WHILE_LOADING}
