"""The seccomp programs of both machines, run by a small interpreter: this machine's kernel knows one of them only."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon import syscalls
from daemon.syscall_filter import MACHINES, child_program, zygote_program

PID = 4242
ALLOWED, REFUSED, ABSENT, KILLED = "allowed", "EPERM", "ENOSYS", "killed"
_ANSWERS = {
    0x7FFF0000: ALLOWED,
    0x00050000 | errno.EPERM: REFUSED,
    0x00050000 | errno.ENOSYS: ABSENT,
    0x80000000: KILLED,
}
BOTH = pytest.mark.parametrize("machine", MACHINES)
EVERY = {**syscalls.CHILD, **syscalls.ZYGOTE, **syscalls.CONDITIONAL, **syscalls.ABSENT}


def run(program: bytes, arch: int, number: int, arguments: Sequence[int] = ()) -> str:
    """What the kernel would answer; jumps only go forward, so it ends."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *[*arguments, *[0] * 6][:6])
    lines = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, operand = lines[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x06:
                return _ANSWERS[operand]
            case 0x15:
                at += if_true if accumulator == operand else if_false
            case 0x25:
                at += if_true if accumulator > operand else if_false
            case 0x35:
                at += if_true if accumulator >= operand else if_false
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


def ask(machine: str, name: str, *arguments: int, child: bool = True) -> str:
    """The answer to a call by its name."""
    made = MACHINES[machine]
    number = EVERY[name][made.column]
    assert number is not None
    return run(child_program(made, PID) if child else zygote_program(made), made.audit_arch, number, arguments)


@BOTH
def test_child(machine: str) -> None:
    """Everything that a child is to have, and of the rest nothing."""
    column = MACHINES[machine].column
    for name, numbers in EVERY.items():
        if numbers[column] is not None and name not in syscalls.CONDITIONAL:
            wanted = ALLOWED if name in syscalls.CHILD else ABSENT if name in syscalls.ABSENT else REFUSED
            assert ask(machine, name) == wanted, name


@BOTH
@pytest.mark.parametrize(
    ("name", "arguments", "child", "zygote"),
    [
        ("clone", (0x003D0F00,), ALLOWED, ALLOWED),  # pthread_create of glibc
        ("clone", (0x01200011,), REFUSED, ALLOWED),  # fork of glibc
        ("clone", (0x01200011 | 0x8000,), REFUSED, REFUSED),  # CLONE_PARENT
        ("clone", (0x003D0F00 | 0x2000,), REFUSED, REFUSED),  # CLONE_PTRACE
        *(("clone", (0x00010000 | flag,), REFUSED, REFUSED) for flag in (1 << 17, *(1 << n for n in range(25, 31)))),
        ("kill", (PID, 9), ALLOWED, ALLOWED),
        ("kill", (PID + 1, 9), REFUSED, ALLOWED),
        ("kill", (0, 9), REFUSED, ALLOWED),
        ("kill", (0xFFFFFFFF, 9), REFUSED, ALLOWED),
        ("tgkill", (PID, 1, 6), ALLOWED, ALLOWED),
        ("tgkill", (1, PID, 6), REFUSED, ALLOWED),
        ("prctl", (15,), ALLOWED, ALLOWED),
        ("prctl", (1, 0), REFUSED, ALLOWED),  # PR_SET_PDEATHSIG
        ("prlimit64", (0, 7, 0, 1), ALLOWED, ALLOWED),
        ("prlimit64", (0, 7, 1, 1), REFUSED, ALLOWED),
        ("prlimit64", (0, 7, 1 << 40, 1), REFUSED, ALLOWED),  # a pointer whose lower half is zero
        ("prlimit64", (1, 7, 0, 1), REFUSED, REFUSED),
        ("fcntl", (3, 1030), ALLOWED, ALLOWED),
        ("fcntl", (3, 8), REFUSED, REFUSED),  # F_SETOWN
        ("fcntl", (3, 10), REFUSED, REFUSED),  # F_SETSIG
        ("fcntl", (3, 15), REFUSED, REFUSED),  # F_SETOWN_EX
        ("ioctl", (3, 0x5401), ALLOWED, ALLOWED),
        ("ioctl", (3, 0x8901), REFUSED, REFUSED),  # FIOSETOWN
        ("ioctl", (3, 0x5412), REFUSED, REFUSED),  # TIOCSTI
        ("openat", (0, 0, 0o0), ALLOWED, ALLOWED),
        ("openat", (0, 0, 0o1000), REFUSED, REFUSED),
        ("openat", (0, 0, 0o1003), REFUSED, REFUSED),
        ("openat", (0, 0, 0o2001101), ALLOWED, ALLOWED),
        ("openat", (0, 0, 0o1002), ALLOWED, ALLOWED),
        ("socketpair", (1, 0o2000005), REFUSED, ALLOWED),
        ("socketpair", (1, 2), REFUSED, REFUSED),  # datagrams can be sent to others
        ("socketpair", (16, 5), REFUSED, REFUSED),
    ],
)
def test_conditions(machine: str, name: str, arguments: tuple[int, ...], child: str, zygote: str) -> None:
    """A call with two faces shows the harmless one only."""
    assert ask(machine, name, *arguments) == child
    assert ask(machine, name, *arguments, child=False) == zygote


@BOTH
@pytest.mark.parametrize("name", ["kill", "tgkill"])
def test_each_child_may_signal_itself(machine: str, name: str) -> None:
    """What is assembled once for all of them names none of them."""
    made = MACHINES[machine]
    number = EVERY[name][made.column]
    assert number is not None
    for pid in (PID, PID + 1):
        program = child_program(made, pid)
        answers = [run(program, made.audit_arch, number, (asked, asked, 9)) for asked in (PID, PID + 1)]
        assert answers == [ALLOWED if asked == pid else REFUSED for asked in (PID, PID + 1)]


@BOTH
@given(number=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_whatever_is_not_listed_is_denied(machine: str, number: int, arguments: list[int]) -> None:
    """No number, of any age, gets through without its name on a list; what is younger than the lists does not exist."""
    made = MACHINES[machine]
    listed = {numbers[made.column] for numbers in EVERY.values()}
    for program in (zygote_program(made), child_program(made, PID)):
        answer = run(program, made.audit_arch, number, arguments)
        if number not in listed:
            absent = syscalls.LAST_KNOWN < number < 0x40000000
            assert answer == (ABSENT if absent else REFUSED)


@BOTH
def test_other_machines(machine: str) -> None:
    """A call in another machine's words ends the process; x32's words, which are this machine's, are refused."""
    made = MACHINES[machine]
    program = child_program(made, PID)
    assert run(program, 0x40000003, 20) == KILLED
    assert run(program, made.audit_arch, 0x40000000 | 39) == REFUSED


HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}


@BOTH
def test_numbers(machine: str) -> None:
    """The numbers are the kernel's: a wrong one would let another call through."""
    header = next((path for path in HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed (linux-libc-dev): the numbers were not compared")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)$", header.read_text(encoding="utf-8"), re.MULTILINE)
    known = {name: int(number) for name, number in found}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    column = MACHINES[machine].column
    for name, numbers in EVERY.items():
        assert numbers[column] == known.get(name), name


@BOTH
def test_small_enough(machine: str) -> None:
    """The kernel takes 4,096 instructions; each costs a forked child a little."""
    made = MACHINES[machine]
    assert max(len(zygote_program(made)), len(child_program(made, PID))) // 8 < 600
