"""The seccomp programs of zygote and child, as bytes.

Core. Two programs for each machine, made from the lists of `syscalls.py`: everything that is not listed is refused with
EPERM, what is younger than the lists with ENOSYS, another machine's calls with death. A condition reads arguments
by value only: what is behind a pointer can change after it was looked at. Programs stack, and the strictest answer
counts, so the child's need not repeat the zygote's. Instructions and offsets: <linux/bpf_common.h>, <linux/seccomp.h>.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daemon import syscalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An instruction set that the lists have numbers for."""

    #: As in <linux/audit.h>; an i386 call on an x86-64 kernel has another.
    audit_arch: int
    #: Which of `syscalls.Numbers`.
    column: int


#: By the name that the kernel gives to `uname -m`.
MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(audit_arch=0xC000003E, column=0),
    "aarch64": Machine(audit_arch=0xC00000B7, column=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Holds when `argument & mask == value`, in the lower 32 bits, or in the upper ones."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    upper: bool = False


#: All of one, of any.
Alternatives = tuple[tuple[Condition, ...], ...]

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_GREATER_EQUAL = 0x15, 0x25, 0x35
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT, _ARGUMENT_BYTES = 0, 4, 16, 8
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_REFUSE, _ABSENT = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
#: Set in the numbers of x32, which is another door to the same kernel.
_X32_BIT: Final = 0x40000000

# From <asm-generic/fcntl.h>; the same on both machines.
_O_ACCMODE, _O_WRONLY, _O_RDWR, _O_TRUNC = 0o3, 0o1, 0o2, 0o1000
# From <linux/socket.h> and <linux/net.h>. Two ends of one pair, stream or packets: neither can be sent elsewhere.
_AF_UNIX, _SOCKET_TYPE, _CONNECTED = 1, 0xF, (1, 5)
# From <linux/sched.h>. A child with another parent than its maker's (CLONE_PARENT) would escape its reaper.
_CLONE_THREAD: Final = 0x00010000
#: Every CLONE_NEW*, CLONE_PTRACE, CLONE_PARENT.
_CLONE_ESCAPES: Final = 0x7E020000 | 0x00002000 | 0x00008000
# From <fcntl.h>. Left out: F_SETOWN and F_SETSIG, by which the kernel sends signals for whoever asks.
_FCNTL: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)
# FIOCLEX, FIONCLEX, FIONBIO, FIONREAD, TCGETS and TIOCGWINSZ: what Python asks of every file that it opens.
_IOCTL: Final = (0x5451, 0x5450, 0x5421, 0x541B, 0x5401, 0x5413)
# PR_SET_NAME, PR_GET_NAME, PR_SET_VMA. Left out: PR_SET_PDEATHSIG, by which a child would outlive its parent.
_PRCTL: Final = (15, 16, 0x53564D41)


def zygote_program(machine: Machine) -> bytes:
    """Return the first lock's program: may fork, reap and kill; no socket, no program, no namespace."""
    always = {**syscalls.CHILD, **syscalls.ZYGOTE}
    conditions = _for_both() | {
        "clone": ((Condition(argument=0, mask=_CLONE_ESCAPES, value=0),),),
        "prlimit64": ((Condition(argument=0, value=0),),),
        "socketpair": tuple(
            (Condition(argument=0, value=_AF_UNIX), Condition(argument=1, mask=_SOCKET_TYPE, value=kind))
            for kind in _CONNECTED
        ),
    }
    return _listed(machine, always, conditions) + _decisions(machine, conditions) + _rest()


def child_program(machine: Machine, pid: int) -> bytes:
    """Return the second lock's program: threads, but no process; signals to `pid`, itself, but to nobody else."""
    itself = ((Condition(argument=0, value=pid),),)
    return _SAME_FOR_EVERY_CHILD[machine] + _decisions(machine, {"kill": itself, "tgkill": itself}) + _rest()


def _same_for_every_child(machine: Machine) -> bytes:
    """Return what comes before the lines that name the child itself."""
    nothing_new = (
        Condition(argument=0, value=0),
        *(Condition(argument=2, value=0, upper=half) for half in (False, True)),
    )
    conditions = _for_both() | {
        "clone": ((Condition(argument=0, mask=_CLONE_ESCAPES | _CLONE_THREAD, value=_CLONE_THREAD),),),
        "prlimit64": (nothing_new,),
        "prctl": _any_of(0, _PRCTL),
    }
    return _listed(machine, syscalls.CHILD, conditions) + _decisions(machine, conditions)


def _for_both() -> dict[str, Alternatives]:
    return {
        "open": _not_cutting(1),
        "openat": _not_cutting(2),
        "fcntl": _any_of(1, _FCNTL),
        "ioctl": _any_of(1, _IOCTL),
    }


def _not_cutting(argument: int) -> Alternatives:
    """No O_TRUNC without the right to write: below its ABI 3 Landlock would let a child cut what it may read."""
    return (
        (Condition(argument=argument, mask=_O_TRUNC, value=0),),
        (Condition(argument=argument, mask=_O_ACCMODE, value=_O_WRONLY),),
        (Condition(argument=argument, mask=_O_ACCMODE, value=_O_RDWR),),
    )


def _any_of(argument: int, values: Iterable[int]) -> Alternatives:
    return tuple((Condition(argument=argument, value=value),) for value in values)


def _listed(machine: Machine, always: Mapping[str, syscalls.Numbers], conditions: Mapping[str, Alternatives]) -> bytes:
    """Assemble what comes first: the machine, x32, the calls without conditions in the order of the lists."""
    lines = [
        _line(_LOAD, _ARCH_AT),
        _line(_JUMP_EQUAL, machine.audit_arch, 1, 0),
        _line(_RETURN, _KILL_PROCESS),
        _line(_LOAD, _NUMBER_AT),
        *_when(_JUMP_GREATER_EQUAL, _X32_BIT, _REFUSE),
    ]
    for names, answer in ((always, _ALLOW), (syscalls.ABSENT, _ABSENT)):
        for name in names:
            # A call with conditions is decided by them, whatever lists it is in.
            if name not in conditions and (number := names[name][machine.column]) is not None:
                lines += _when(_JUMP_EQUAL, number, answer)
    return b"".join(lines)


def _decisions(machine: Machine, conditions: Mapping[str, Alternatives]) -> bytes:
    """Assemble the calls with conditions."""
    lines: list[bytes] = []
    for name, alternatives in conditions.items():
        if (number := syscalls.CONDITIONAL[name][machine.column]) is not None:
            decided = _decide(alternatives)
            lines += [_line(_JUMP_EQUAL, number, 0, len(decided)), *decided]
    return b"".join(lines)


def _rest() -> bytes:
    """Assemble the end: what no line before has answered."""
    return b"".join([*_when(_JUMP_GREATER, syscalls.LAST_KNOWN, _ABSENT), _line(_RETURN, _REFUSE)])


def _decide(alternatives: Alternatives) -> list[bytes]:
    """Allow when one of the alternatives holds, refuse otherwise; always returns."""
    lines: list[bytes] = []
    for conditions in alternatives:
        lines += _allow_when(conditions)
    return [*lines, _line(_RETURN, _REFUSE)]


def _allow_when(conditions: Sequence[Condition]) -> list[bytes]:
    """Allow when all hold; go on behind these lines otherwise."""
    lines = [_line(_RETURN, _ALLOW)]
    for condition in reversed(conditions):
        offset = _ARGUMENTS_AT + condition.argument * _ARGUMENT_BYTES + 4 * condition.upper
        lines = [
            _line(_LOAD, offset),
            _line(_AND, condition.mask),
            _line(_JUMP_EQUAL, condition.value, 0, len(lines)),
            *lines,
        ]
    return lines


def _when(jump: int, operand: int, answer: int) -> list[bytes]:
    return [_line(jump, operand, 0, 1), _line(_RETURN, answer)]


def _line(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One `struct sock_filter`, in the machine's own byte order; both machines are little-endian."""
    return struct.pack("<HBBI", code, if_true, if_false, operand)


#: Assembled once, before any fork.
_SAME_FOR_EVERY_CHILD: Final = {machine: _same_for_every_child(machine) for machine in MACHINES.values()}
