"""What all benches share: documents, medians with spread, and the machine that they ran on.

Rules: a figure is a median and stands beside its quartiles and its count; methods that are compared take turns
within one run, so that a machine that slows down slows all of them; documents are made by the project itself, and
a corpus is only added to them. Times are wall-clock milliseconds unless a name says otherwise.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from daemon import host
from daemon.config import LogSettings
from daemon.log import configure
from daemon.model import MediaType
from daemon.sandbox import FORCED_VARIABLES
from daemon.spool import SNIFFED_BYTES, sniff


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """One document to convert."""

    path: Path
    media_type: MediaType

    @property
    def name(self) -> str:
        """Shown in tables; unique within a bench."""
        return self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one conversion took, in seconds: by the clock, and of CPUs, whoever's work it was."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one way made of one batch."""

    #: Documents that it was to convert, killers included.
    given: int
    #: Documents with a result.
    delivered: int
    elapsed_s: float
    #: Of the daemon's parent alone, no child and no zygote; None of a way that has none.
    parent_cpu_s: float | None = None

    @property
    def per_minute(self) -> float:
        """Results per minute; 0 of nothing."""
        return self.delivered * 60 / self.elapsed_s if self.delivered else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median and how far the middle half lies around it, in the unit of the values."""

    median: float
    low: float
    high: float
    count: int

    def as_json(self) -> dict[str, float | int]:
        """For the JSON object: `median`, `p25`, `p75`, `count`."""
        return {"median": self.median, "p25": self.low, "p75": self.high, "count": self.count}

    def __str__(self) -> str:
        """As a cell of a table."""
        return f"{self.median:,.1f}  ({self.low:,.1f} to {self.high:,.1f}, n={self.count})"


def spread(values: Sequence[float], *, digits: int = 2) -> Spread | None:
    """Median and quartiles (linear between neighbours), rounded; None of nothing."""
    if not values:
        return None
    if len(values) == 1:
        low = median = high = values[0]
    else:
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median=round(median, digits), low=round(low, digits), high=round(high, digits), count=len(values))


def median(values: Sequence[float], *, digits: int = 3) -> float | None:
    """Rounded median; None of nothing."""
    return round(statistics.median(values), digits) if values else None


def ratio(part: float, whole: float) -> float:
    """`part` over `whole`; a whole of nothing is a bug of the bench."""
    assert whole > 0, "a method that was measured takes time"
    return part / whole


def kills_at(name: str) -> int | None:
    """The page at which the document of this file name kills its process, `killer-PAGE-...`; None for a good one."""
    named = re.match(r"killer-(\d+)-", name)
    return None if named is None else int(named[1])


def docs(paths: Sequence[Path]) -> list[Doc]:
    """Those of `paths` that are documents by their content."""
    found = []
    for path in paths:
        with path.open("rb") as file:
            media_type = sniff(file.read(SNIFFED_BYTES))
        if media_type is not None:
            found.append(Doc(path=path, media_type=media_type))
    return found


def corpus(folder: Path | None) -> list[Doc]:
    """The born-digital documents of a corpus, in the order of their names; none without a corpus."""
    if folder is None:
        return []
    born_digital = folder / "a"
    return docs(
        sorted(path for path in (born_digital if born_digital.is_dir() else folder).iterdir() if path.is_file())
    )


def in_turn(methods: Sequence[str], turn: int) -> list[str]:
    """The methods, beginning with another one each turn: none profits from always being second."""
    start = turn % len(methods)
    return [*methods[start:], *methods[:start]]


def machine(load_before: float) -> dict[str, object]:
    """What the figures depend on; `load_before` is the load average when the bench began, one minute's mean."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": host.usable_cpus(),
        "memory_gib": round(host.usable_memory_bytes() / 2**30, 1),
        "load_before": round(load_before, 2),
        "load_after": round(load_now(), 2),
    }


def load_now() -> float:
    """Load average of the last minute."""
    return os.getloadavg()[0]


@contextmanager
def prepared() -> Iterator[float]:
    """This process as every method needs it; gives the load average.

    Only errors are logged, on stderr. The variables are those of the daemon's own children, so that processes which
    inherit them (the pool's) are treated alike. SIGTERM ends a bench like Ctrl+C: nothing is left behind.
    """
    configure(LogSettings(level="error"))
    before = {name: os.environ.get(name) for name in FORCED_VARIABLES}
    os.environ.update(FORCED_VARIABLES)
    on_term = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield load_now()
    finally:
        signal.signal(signal.SIGTERM, on_term)
        _restore(before)


def _restore(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
