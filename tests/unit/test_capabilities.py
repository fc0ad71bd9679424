"""Giving up capabilities, where a unit's filter denies the call for it."""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import Any

import pytest

from daemon import sandbox

DAC_READ_SEARCH, SYS_ADMIN, BPF = 1 << 2, 1 << 21, 1 << (39 - 32)


class Filtered:
    """A C library below a filter that denies `capset`; the process has the given capabilities."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def capget(self, _header: bytes, held: Any) -> int:
        """Effective, permitted and inheritable of the lower half, then of the upper one."""
        held.raw = struct.pack("=6I", self.low, self.low, 0, self.high, self.high, 0)
        return 0

    def capset(self, _header: bytes, _kept: bytes) -> int:
        """Denied."""
        ctypes.set_errno(errno.EPERM)
        return -1


def test_a_process_without_capabilities_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's unit takes them all and denies the call, and the zygote must start there."""
    monkeypatch.setattr(sandbox, "_LIBC", Filtered(0, 0))
    sandbox._drop_capabilities(keep=DAC_READ_SEARCH)


@pytest.mark.parametrize(("low", "high"), [(SYS_ADMIN, 0), (0, BPF)])
def test_one_that_cannot_be_given_up_is_told(monkeypatch: pytest.MonkeyPatch, low: int, high: int) -> None:
    """Of the upper half too: a process that opens documents with rights that nobody knows of is a refused start."""
    monkeypatch.setattr(sandbox, "_LIBC", Filtered(low, high))
    with pytest.raises(OSError, match="cannot give up capabilities: Operation not permitted"):
        sandbox._drop_capabilities(keep=DAC_READ_SEARCH)
