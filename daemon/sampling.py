"""What one child has and uses, looked at four times a second.

Edge: /proc and the scratch folder, through `processes.py` and `scratch.py`. Nothing is decided about the child's end:
what is beyond a bound is returned, and `lifecycle.py` says what that means.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from daemon import scratch
from daemon.bounds import LATE_S, Bounds, Silence
from daemon.cgroup import Group
from daemon.clock import Clock
from daemon.lifecycle import Event
from daemon.processes import usage

#: How often a child's memory is looked at; a page of 200 in took 13 s to reach its 4 GB.
SAMPLE_S: Final = 0.25
#: A scratch folder is looked at less often: a disk fills more slowly than memory.
_SCRATCH_S: Final = 1.0
#: And never for more than this share of the time, however many files there are.
_SCRATCH_SHARE: Final = 0.05


class Sampler:
    """The samples of one child."""

    def __init__(self, bounds: Bounds, folder: Path, *, group: Group, silence: Silence, clock: Clock) -> None:
        """`folder` is the child's scratch; `silence` is told how much CPU the child used."""
        self._bounds = bounds
        self._folder = folder
        self._group = group
        self._silence = silence
        self._clock = clock
        self._next_scratch = clock.monotonic()
        #: When the next sample is due; a child that was forked a moment ago has nothing to see.
        self.due = clock.monotonic() + SAMPLE_S
        #: For how long the host, or all of us on it, stood still; nobody's time.
        self.frozen_s = 0.0
        self.peak_rss_bytes = 0
        self.scratch_bytes = 0

    def look(self, pid: int | None, now: float) -> Event | None:
        """Take one sample; MEMORY or SCRATCH when a bound is passed. Without a `pid` there is nothing to see."""
        late_s, self.due = now - self.due, now + SAMPLE_S
        self.frozen_s += late_s if late_s > LATE_S else 0.0
        if pid is None:
            return None
        used = usage(pid)
        held_bytes = used.resident_bytes + used.memfd_bytes
        self.peak_rss_bytes = max(self.peak_rss_bytes, held_bytes)
        self._silence.sample(used.cpu_s, late_s=late_s)
        # Where a cgroup holds the child, the kernel counts better: what is shared with the zygote is not the child's.
        if held_bytes > self._bounds.memory_bytes and not self._group.holds:
            return Event.MEMORY
        if now >= self._next_scratch:
            self._measure_scratch(used.unnamed_bytes)
        return Event.SCRATCH if self.scratch_bytes > self._bounds.max_scratch_bytes else None

    def _measure_scratch(self, unnamed_bytes: int) -> None:
        began = self._clock.monotonic()
        named_bytes = scratch.size_bytes(self._folder, most_bytes=self._bounds.max_scratch_bytes)
        self.scratch_bytes = named_bytes + unnamed_bytes
        ended = self._clock.monotonic()
        self._next_scratch = ended + max(_SCRATCH_S, (ended - began) / _SCRATCH_SHARE)
