"""Memory of a family of processes, as `bulkhead calibrate` shows it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from daemon.calibrate_run import _peak_memory
from daemon.processes import proportional_bytes_below, usage

pytestmark = pytest.mark.process

SHARED_BYTES = 96 * 2**20
#: Holds memory, forks two children that only share it, says so, and stays until its stdin closes.
FAMILY = f"""
import os, sys
held = bytearray(os.urandom(4096) * ({SHARED_BYTES} // 4096))
for _ in range(2):
    if not os.fork():
        sys.stdin.read()
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_is_shared_counts_once() -> None:
    """Two forked children that write nothing hold two thirds of it, and not twice all of it, as their pages suggest."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        assert top.stdout.readline() == b"ready\n"
        held_bytes = proportional_bytes_below(top.pid)
        assert usage(top.pid).resident_bytes > 3 * SHARED_BYTES
        assert SHARED_BYTES // 2 < held_bytes < SHARED_BYTES
        assert top.stdin is not None
        top.stdin.close()
    assert proportional_bytes_below(top.pid) == 0


def test_the_shortest_run_has_a_figure() -> None:
    """A run that ends between two looks must not be shown as one that needed no memory."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        assert top.stdout.readline() == b"ready\n"
        with _peak_memory() as looks:
            pass
        assert max(looks) > SHARED_BYTES
        assert top.stdin is not None
        top.stdin.close()
