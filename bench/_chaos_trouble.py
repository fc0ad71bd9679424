"""What goes wrong in a chaos run, and when: kills, pauses, moved clocks, a full disk, outages; and the sweeps beside.

Rules: one seeded generator draws what comes next and how long until then; everything that is begun is ended by whoever
began it, also when the run is stopped in the middle (a paused parent goes on, the disk is freed); sweeps never stop.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench._chaos_faults import Faults, Service
from bench._chaos_hosts import Host, children_of, kill_child_of, zygote_of
from daemon.errors import ExitStatus

#: Relative frequency of what goes wrong.
_WEIGHTS: Mapping[str, int] = {
    "child": 60,
    "zygote": 8,
    "parent": 8,
    "sweep": 3,
    "stop": 2,
    "pause": 2,
    "clock": 4,
    "disk": 2,
    "outage": 3,
}
KILLS = ("child", "zygote", "parent", "sweep")
#: Mostly done to hosts that are at work: on a slow machine none would come to it otherwise. The rest hits starts too.
_OF_A_LIFE = frozenset({"zygote", "parent", "stop", "pause"})
_EARLY_SHARE = 0.2
#: Longer than the shortest lease, so that others take over what the paused one still works on.
_PAUSE_S = (1.0, 14.0)
_OUTAGE_S = (0.5, 5.0)
_FULL_S = (0.5, 4.0)
#: How long a child is waited for, since most live for milliseconds.
_CHILD_S = 0.5
_GLANCE_S = 0.02
#: Statuses that a sweep may leave with: done, another one holds the lock, the world did not answer, killed.
_SWEEP_STATUSES = frozenset({0, int(ExitStatus.ALREADY_RUNNING), int(ExitStatus.UNAVAILABLE), -signal.SIGKILL})
_SWEEP_NET_S = 120.0


@dataclass(slots=True)
class Disk:
    """The small disk that all hosts share; `reason` says why there is none of its own to fill."""

    path: Path
    reason: str = ""

    def fill(self) -> None:
        """Take all room that is left."""
        with suppress(OSError):
            free = os.statvfs(self.path)
            descriptor = os.open(self.path / "ballast", os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, free.f_bavail * free.f_bsize)
            finally:
                os.close(descriptor)

    def free(self) -> None:
        """Give it back."""
        (self.path / "ballast").unlink(missing_ok=True)


@dataclass(slots=True)
class Sweeps:
    """`bulkhead sweep`, one after the other."""

    env: Mapping[str, str]
    log: Path
    every_s: float
    done: Counter[int] = field(default_factory=Counter)
    stopping: threading.Event = field(default_factory=threading.Event)
    #: Ends the wait for the next one.
    _next: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Until told to stop."""
        with self.log.open("ab") as output:
            while not self.stopping.is_set():
                self._next.wait(self.every_s)
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "daemon", "sweep", "--json"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=dict(self.env),
                )
                try:
                    self.done[self.process.wait(timeout=_SWEEP_NET_S)] += 1
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                    self.done[-signal.SIGALRM] += 1

    def hurry(self) -> None:
        """One right after the other from now on."""
        self._next.set()

    def stop(self) -> None:
        """No more after the next one; returns at once."""
        self.stopping.set()
        self._next.set()

    def kill(self) -> bool:
        """SIGKILL to the one that runs; False when none does."""
        process = self.process
        if process is None or process.poll() is not None:
            return False
        process.kill()
        return True

    def wrong(self) -> dict[int, int]:
        """How often a sweep left with a status that it should never leave with."""
        return {status: times for status, times in self.done.items() if status not in _SWEEP_STATUSES}


class Trouble:
    """Makes things go wrong, until told to stop."""

    def __init__(
        self,
        hosts: Sequence[Host],
        *,
        sweeps: Sweeps,
        faults: Faults,
        disk: Disk,
        services: Sequence[Service],
        per_minute: float,
        skew_s: float,
        one_clock: bool,
        seed: int,
    ) -> None:
        """`one_clock`: the hosts are one machine, whose clock moves for all of them."""
        self._hosts = hosts
        self._sweeps = sweeps
        self._faults = faults
        self._disk = disk
        self._services = services
        self._mean_s = 60.0 / per_minute
        self._skew_s = skew_s
        self._one_clock = one_clock
        self._random = random.Random(seed)  # noqa: S311 - seeded randomness is the point
        self._stop = threading.Event()
        #: What ends by itself after a while, or at once when we stop.
        self._lasting: list[threading.Thread] = []
        self.done: Counter[str] = Counter()
        self._actions: Mapping[str, Callable[[Host], bool]] = {
            "child": self._kill_a_child,
            "zygote": lambda host: kill_child_of(host.pid, lambda _below: zygote_of(host.pid or 0) or 0),
            "parent": lambda host: host.send(signal.SIGKILL),
            "sweep": lambda _host: self._sweeps.kill(),
            "stop": lambda host: host.send(signal.SIGTERM),
            "pause": self._pause,
            "clock": self._move_clock,
            "disk": self._fill_disk,
            "outage": self._outage,
        }
        self._thread = threading.Thread(target=self._run, name="trouble", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """No more trouble; what was begun is ended."""
        self._stop.set()
        self._thread.join()
        for thread in self._lasting:
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._random.expovariate(1 / self._mean_s)):
            (what,) = self._random.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))
            host = self._random.choice(self._hosts)
            early = what not in _OF_A_LIFE or self._random.random() < _EARLY_SHARE
            if (early or host.is_ready()) and self._actions[what](host):
                self.done[what] += 1

    def _kill_a_child(self, _host: Host) -> bool:
        """Of whichever host has one first: they live for moments, and a kill that finds nobody proves nothing."""
        for _ in range(int(_CHILD_S / _GLANCE_S)):
            zygotes = [zygote for host in self._hosts if host.pid and (zygote := zygote_of(host.pid))]
            self._random.shuffle(zygotes)
            if any(children_of(zygote) and kill_child_of(zygote, self._random.choice) for zygote in zygotes):
                return True
            if self._stop.wait(_GLANCE_S):
                return False
        return False

    def _pause(self, host: Host) -> bool:
        """The whole parent stands still: its heartbeats stop, its lease runs out, others take over; then it goes on."""
        if not host.send(signal.SIGSTOP):
            return False

        self._later(self._random.uniform(*_PAUSE_S), lambda: host.send(signal.SIGCONT))
        return True

    def _later(self, after_s: float, end: Callable[[], object]) -> None:
        """Let something last for a while, beside everything else; `end` ends it, whatever happens."""

        def last() -> None:
            self._stop.wait(after_s)
            end()

        self._lasting.append(threading.Thread(target=last, name="lasting"))
        self._lasting[-1].start()

    def _move_clock(self, host: Host) -> bool:
        offset_s = self._random.choice([0.0, 1.0, -1.0]) * self._random.uniform(0.0, self._skew_s)
        for each in self._hosts if self._one_clock else (host,):
            each.move_clock(offset_s)
        return True

    def _fill_disk(self, _host: Host) -> bool:
        if self._disk.reason:
            return False
        self._disk.fill()
        self._later(self._random.uniform(*_FULL_S), self._disk.free)
        return True

    def _outage(self, _host: Host) -> bool:
        self._faults.refuse(self._random.choice(list(self._services)), self._random.uniform(*_OUTAGE_S))
        return True
