"""The system calls that a process which opens documents may make, and their numbers on each machine.

Core: data. What is not listed is denied, whatever it is called, so a kernel that grows a call grants nothing. A name
is added with the reason why the engine, the interpreter or the C library cannot do without; nothing that makes a
socket, starts a program, reaches another process, or changes who may do what, is ever added. The numbers are the
kernel's (`arch/x86/entry/syscalls/syscall_64.tbl`, `include/uapi/asm-generic/unistd.h`) and never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: On x86-64 and on aarch64; None where there is no such call.
Numbers = tuple[int | None, int | None]

#: Calls above this one are younger than this list: a C library that tries one is told that it does not exist.
LAST_KNOWN: Final = 450

#: What a child needs after its second lock.
CHILD: Final[Mapping[str, Numbers]] = {
    # Files: Landlock says which. Rights, owners and times of files stay what they are, and so do those of the parent.
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
    "lseek": (8, 62),
    "close": (3, 57),
    "close_range": (436, 436),
    "creat": (85, None),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "eventfd2": (290, 19),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "umask": (95, 166),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "flock": (73, 32),
    "fadvise64": (221, 223),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    # Memory.
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "brk": (12, 214),
    "madvise": (28, 233),
    "msync": (26, 227),
    "mincore": (27, 232),
    "mbind": (237, 235),
    "get_mempolicy": (239, 236),
    "membarrier": (324, 283),
    # Its threads.
    "futex": (202, 98),
    "futex_waitv": (449, 449),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "gettid": (186, 178),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "rseq": (334, 293),
    "getcpu": (309, 168),
    "arch_prctl": (158, None),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "restart_syscall": (219, 128),
    # Signals that it gets.
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "pause": (34, None),
    # Time.
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "alarm": (37, None),
    # Waiting.
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create": (213, None),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "wait4": (61, 260),
    "waitid": (247, 95),
    # What it is.
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getgroups": (115, 158),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getsid": (124, 156),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrandom": (318, 278),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "getpriority": (140, 141),
    # Sockets that it was given; neither new ones, nor descriptors through them.
    "recvfrom": (45, 207),
    "sendto": (44, 206),
    "shutdown": (48, 210),
    "getsockopt": (55, 209),
    "setsockopt": (54, 208),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
}
#: What the zygote, or a spawned child while it loads, needs besides.
ZYGOTE: Final[Mapping[str, Numbers]] = {
    # Children, their groups and their ends.
    "fork": (57, None),
    "vfork": (58, None),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "setpgid": (109, 154),
    # Requests with descriptors, on sockets that it was given.
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    # The second lock.
    "prctl": (157, 167),
    "setrlimit": (160, 164),
    "capget": (125, 90),
    "capset": (126, 91),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "seccomp": (317, 277),
    # An inference library places its threads while it loads.
    "sched_setaffinity": (203, 122),
}
#: Allowed for some arguments only: see `syscall_filter.py`.
CONDITIONAL: Final[Mapping[str, Numbers]] = {
    "clone": (56, 220),
    "open": (2, None),
    "openat": (257, 56),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "prctl": (157, 167),
    "socketpair": (53, 199),
}
#: Said not to exist, so that a C library falls back to the older call, whose arguments a filter can read.
ABSENT: Final[Mapping[str, Numbers]] = {
    "clone3": (435, 435),
    "openat2": (437, 437),
}
