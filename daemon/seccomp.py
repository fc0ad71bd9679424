"""Seccomp: a program that the kernel runs before each system call of this process.

Edge: the kernel, by the C library's `syscall`. Needs no privilege, only no_new_privs, and cannot be undone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

from daemon.syscall_filter import MACHINES, Machine

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# From <linux/seccomp.h> and <linux/prctl.h>.
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_FILTER_FLAG_TSYNC: Final = 1
_RET_ERRNO: Final = 0x00050000
_PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 21, 22, 2
_LINE_BYTES: Final = 8
#: The call's number, by `Machine.column`.
_SECCOMP_NUMBER: Final = (317, 277)
#: What a container's own filter answers to a call that it does not know or want.
_NOT_HERE: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


def machine() -> Machine | None:
    """Return this machine's entry; None where the lists have no numbers for it (a 32-bit interpreter included)."""
    return MACHINES.get(os.uname().machine) if sys.maxsize > 2**32 else None


def is_available() -> bool:
    """Whether `install` would work."""
    here = machine()
    if here is None:
        return False
    action = ctypes.c_uint32(_RET_ERRNO)
    number = ctypes.c_long(_SECCOMP_NUMBER[here.column])
    if _LIBC.syscall(number, ctypes.c_long(_GET_ACTION_AVAIL), ctypes.c_long(0), ctypes.byref(action)) == 0:
        return True
    return ctypes.get_errno() in _NOT_HERE and _LIBC.prctl(_PR_GET_SECCOMP, *_unsigned(0, 0, 0, 0)) >= 0


def install(program_for: Callable[[Machine], bytes]) -> None:
    """Bind every thread of this process, and all that it will ever start, to this machine's program.

    Raises OSError when the kernel refuses. Where only the older call is left, it binds the calling thread alone,
    which is all there is in a zygote.
    """
    here = machine()
    assert here is not None, "asked for where it is available"
    program = program_for(here)
    loaded = _Program(len(program) // _LINE_BYTES, program)
    number = ctypes.c_long(_SECCOMP_NUMBER[here.column])
    arguments = (ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(_FILTER_FLAG_TSYNC), ctypes.byref(loaded))
    answer = _LIBC.syscall(number, *arguments)
    if answer < 0 and ctypes.get_errno() in _NOT_HERE:
        answer = _LIBC.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(loaded), *_unsigned(0, 0))
    if answer != 0:  # above zero: the thread that could not be bound
        code = ctypes.get_errno() if answer < 0 else errno.ESRCH
        raise OSError(code, f"cannot install the filter of system calls: {os.strerror(code)}")


def _unsigned(*values: int) -> list[ctypes.c_ulong]:
    return [ctypes.c_ulong(value) for value in values]
