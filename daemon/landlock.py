"""Landlock: which files a process may reach, whatever its user may.

Edge: the kernel, by the C library's `syscall`. Needs no privilege, only no_new_privs, and cannot be undone; each call
of `restrict` adds a layer, and what one of them denies is denied. Descriptors that are open keep working. Binds the
calling thread and all that it starts, so it belongs where there is one thread. Always denies ptrace, and with it memory
and environment, of processes outside the layer; TCP, signals and abstract sockets as the kernel's ABI grows.
Numbers and structures: <linux/landlock.h>.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
#: The same on every machine that has them.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
#: Of `struct landlock_ruleset_attr`: files; and TCP; and scopes.
_ATTRIBUTE_BYTES: Final = ((6, 24), (4, 16), (1, 8))
_TCP: Final = 0x3  # bind, connect
_SCOPES: Final = 0x3  # abstract Unix sockets and signals of processes outside the layer


class Access(IntFlag):
    """What may be done below a path."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


#: Which ABI brought which access.
_SINCE: Final = {Access.REFER: 2, Access.TRUNCATE: 3, Access.IOCTL_DEV: 5}
#: All that a rule for a file, and not for a folder, may grant.
_FOR_FILES: Final = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV

READ: Final = Access.READ_FILE | Access.READ_DIR
LIST: Final = Access.READ_DIR
READ_AND_WRITE: Final = Access.READ_FILE | Access.WRITE_FILE
#: Everything that is done with ordinary files and folders; no device, no socket, nothing that runs.
KEEP: Final = ~(Access.EXECUTE | Access.MAKE_CHAR | Access.MAKE_BLOCK | Access.MAKE_SOCK | Access.IOCTL_DEV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Grants `access` to a path and everything below it."""

    path: Path
    access: Access


def abi() -> int:
    """Return the kernel's ABI; 0 when it has no Landlock, was started without it, or a filter hides it."""
    version = _call(
        _CREATE_RULESET, ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION)
    )
    return max(0, version)


def restrict(rules: Iterable[Rule]) -> None:
    """Deny this thread, and all that it will ever start, every file but what `rules` grant.

    A path that does not exist, or that we cannot reach ourselves, grants nothing. Raises OSError when the kernel
    refuses.
    """
    version = abi()
    handled = Access(0)
    for access in Access:
        if _SINCE.get(access, 1) <= version:
            handled |= access
    size = next(size for since, size in _ATTRIBUTE_BYTES if version >= since)
    attribute = struct.pack("=QQQ", handled, _TCP, _SCOPES)[:size]
    ruleset = _checked(_CREATE_RULESET, attribute, ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for rule in rules:
            with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                _grant(ruleset, rule.path, rule.access & handled)
        _checked(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: Path, access: Access) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            access &= _FOR_FILES
        rule = struct.pack("=Qi", access, beneath)
        _checked(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(beneath)


def _checked(number: int, *arguments: object) -> int:
    answer = _call(number, *arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot set up Landlock (call {number}): {os.strerror(code)}")
    return answer


def _call(number: int, *arguments: object) -> int:
    answer: int = _LIBC.syscall(ctypes.c_long(number), *arguments)
    return answer
