"""What this kernel offers for locking a process in, part by part, and what is lost where a part is missing.

Edge: asks the kernel, and changes nothing: for the parent at its start, for the zygote before its first lock. Two parts
hold the sandbox, Landlock and seccomp. The others come with younger versions of Landlock; seccomp stands in for them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

from daemon import landlock, seccomp
from daemon.errors import ConfigurationError

log = structlog.get_logger()


class Mode(StrEnum):
    """`child.sandbox`."""

    #: Use what the kernel has, and say what it lacks.
    AUTO = "auto"
    #: Refuse to start where a part is missing that nothing stands in for.
    REQUIRED = "required"
    #: Limits only; a hostile document can do what the daemon's user can.
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that the kernel may have."""

    name: str
    in_force: bool
    #: Something else denies the same.
    covered: bool
    #: A sentence: what it does, or what is lost without it.
    detail: str


#: Landlock's ABI, and what came with it.
_SINCE: Final = {
    "landlock_truncate": (3, "cutting files"),
    "landlock_tcp": (4, "TCP"),
    "landlock_devices": (5, "control of devices"),
    "landlock_scopes": (6, "signals and abstract sockets of others"),
}


def parts() -> tuple[Part, ...]:
    """Every part, as this process would get it now."""
    abi = landlock.abi()
    filtered = seccomp.is_available()
    found = [
        Part(
            name="landlock",
            in_force=abi > 0,
            covered=False,
            detail=f"Landlock, ABI {abi}: files, ptrace"
            if abi
            else "the kernel has no Landlock (5.13 and later, `lsm=landlock,…` on its command line, and a container's "
            "filter must let its calls pass): a child can read what the daemon's user can",
        ),
        Part(
            name="seccomp",
            in_force=filtered,
            covered=False,
            detail=f"seccomp on {os.uname().machine}: sockets, programs, processes, signals"
            if filtered
            else f"no filter of system calls (seccomp, on x86-64 or aarch64; this is {os.uname().machine}): "
            "a child can open sockets, start programs and signal its parent",
        ),
    ]
    for name, (since, what) in _SINCE.items():
        told = f"Landlock too: {what}" if abi >= since else f"Landlock's ABI is {abi}: seccomp alone denies {what}"
        found.append(Part(name=name, in_force=abi >= since, covered=filtered, detail=told))
    return tuple(found)


def missing() -> tuple[Part, ...]:
    """Return the parts that are not there and that nothing stands in for."""
    return tuple(part for part in parts() if not (part.in_force or part.covered))


def demand(mode: Mode) -> None:
    """Say what keeps children, once; raises ConfigurationError when `mode` demands what the kernel lacks."""
    if mode is Mode.OFF:
        log.warning("sandbox.limited", mode=mode, missing=["everything: child.sandbox is off"])
        return
    log.info("sandbox.checked", mode=mode, parts=[part.name for part in parts() if part.in_force])
    lacks = [part.detail for part in missing()]
    if lacks and mode is Mode.REQUIRED:
        raise ConfigurationError(
            f'cannot keep children in a sandbox: {"; ".join(lacks)}. Change the host, or set child.sandbox = "auto"'
        )
    if lacks:
        log.warning("sandbox.limited", mode=mode, missing=lacks)
