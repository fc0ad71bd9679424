"""The hosts of a chaos run: started, started again as systemd would, and found below by who kills them.

Rules: nothing is signalled but through a pidfd, or by the object that started it; a start that is refused is started
again all the same, and counted, since under systemd that host would stay down.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from bench._chaos_documents import FAILPOINTS

#: As the unit says it: with these systemd leaves a daemon down.
NOT_RESTARTED = frozenset({2, 10, 11, 12})
_RESTART_S = 0.5
#: Points at which the first message of one life of a parent kills it, when that life is drawn to end so.
_LIFE_POINTS = ("receive", "mark", "fetch", "store", "settle", "dead_letter")
_LIFE_SHARE = 0.15
#: Longer than the drain and the last words of slots; a net.
_STOP_S = 60


class Host:
    """One `bulkhead run`, kept running until told to stop."""

    def __init__(self, name: str, *, engine: str, state: Path, work: Path, env: Mapping[str, str], seed: str) -> None:
        self.name = name
        self.state = state
        self.log = work / f"{name}.log"
        self._clock = work / f"{name}.clock"
        self._command = [sys.executable, "-m", "bench._chaos_host", "--name", name, "--engine", engine]
        self._env = dict(env) | {"BULKHEAD_STATE_DIR": str(state)}
        self._random = random.Random(seed)  # noqa: S311 - seeded randomness is the point
        self._stop = threading.Event()
        self._calm = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        #: Length of the log when this life began.
        self._born_at = 0
        #: How its lives ended: exit statuses, negative for a signal.
        self.ends: Counter[int] = Counter()
        self.move_clock(0.0)
        self._keeper = threading.Thread(target=self._keep, name=f"keeper-{name}", daemon=True)
        self._keeper.start()

    @property
    def pid(self) -> int | None:
        """Of the living parent; None between two lives."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def move_clock(self, offset_s: float) -> None:
        """Let this host believe that it is so much later (earlier, below 0); in one step, as a reader sees it."""
        new = self._clock.with_suffix(".new")
        new.write_text(str(offset_s), encoding="ascii")
        new.replace(self._clock)

    def is_ready(self) -> bool:
        """Whether this life has got as far as to receive."""
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._born_at)
            return b'"daemon.ready"' in log.read()

    def calm(self) -> None:
        """From the next life on, no life is drawn to end early."""
        self._calm.set()
        self.move_clock(0.0)

    def send(self, number: signal.Signals) -> bool:
        """A signal to the parent alone; False when it does not live now."""
        process = self._process
        if process is None or process.poll() is not None:
            return False
        process.send_signal(number)
        return True

    def stop(self) -> int | None:
        """SIGTERM, and no new life; the exit status, None when it did not leave in time and was killed."""
        self._stop.set()
        told = None
        for _ in range(_STOP_S):
            if self.pid != told:  # its keeper may just have begun another life
                told = self.pid
                self.send(signal.SIGTERM)
            self._keeper.join(1.0)
            if not self._keeper.is_alive():
                break
        else:
            self.send(signal.SIGKILL)
            self._keeper.join(_STOP_S)
            return None
        assert self._process is not None, "its keeper has started it"
        return self._process.returncode

    def _keep(self) -> None:
        with self.log.open("ab") as output:
            while not self._stop.is_set():
                self._born_at = output.tell()
                self._process = subprocess.Popen(
                    [*self._command, "--clock", str(self._clock)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._env | {"BULKHEAD_FAILPOINTS": self._failpoints()},
                )
                self.ends[self._process.wait()] += 1
                self._stop.wait(_RESTART_S)

    def _failpoints(self) -> str:
        if self._calm.is_set() or self._random.random() >= _LIFE_SHARE:
            return FAILPOINTS
        return f"{FAILPOINTS};parent.after_{self._random.choice(_LIFE_POINTS)}=kill"


def children_of(pid: int) -> list[int]:
    """Pids of the living children of `pid`; none when it is gone."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    return found


def zygote_of(parent: int) -> int | None:
    """Pid of the zygote of a parent, if it has one now."""
    for pid in children_of(parent):
        with suppress(OSError):
            if b"daemon.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def kill_child_of(parent: int | None, choose: Callable[[list[int]], int]) -> bool:
    """SIGKILL to one child of `parent` that `choose` picks; False when there is none."""
    below = children_of(parent) if parent is not None else []
    if parent is None or not below:
        return False
    with suppress(OSError):
        chosen = choose(below)
        pidfd = os.pidfd_open(chosen)
        try:
            # Opened first, looked at again: a pid that was given to somebody else is no child of this parent.
            if chosen in children_of(parent):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False
