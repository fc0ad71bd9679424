"""What `bulkhead calibrate` measures, and in which order.

Core. A combination is a setting; a turn is one run of the whole batch with it; a round is one turn of each. Each round
begins with another combination, so that a host that slows down slows all of them. All runs have the same batch, so
their times can be compared. When a turn is not worth its time is decided here too.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from daemon.sizing import size

#: Up to so many CPUs every number of workers and threads is tried; beyond, the powers of two and the most.
_ALL_STEPS: Final = 4
#: Documents in a batch for each worker of the largest combination: fewer, and most of a run would be its end, when
#: workers have nothing left to do.
_DOCUMENTS_PER_WORKER: Final = 4
#: Rounds, if there is time: a median of five is not moved by one bad round, nor by two.
ROUNDS: Final = 5
#: A run that takes so many times as long as the fastest has lost, and is stopped.
HOPELESS: Final = 3
#: Values of `child.pages_per_child` that are tried, as far as a document is long enough to see a difference.
_SLICES: Final = (10, 20, 40, 80, 160)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Combination:
    """What is set for one run; all at least 1."""

    workers: int
    threads: int
    pages_per_child: int

    def __str__(self) -> str:
        """For a sentence."""
        of = f"{_count(self.workers, 'worker')} of {_count(self.threads, 'thread')}"
        return f"{of}, {self.pages_per_child} pages a child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of one combination."""

    combination: Combination
    #: From 1.
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a turn in which every document of the batch ended."""

    turn: Turn
    #: Documents with a result, and without one (or with a lost page).
    documents: int
    failed: int
    #: Pages of those with a result.
    pages: int
    #: From the first receive to the last end; loading the engine is not in it.
    elapsed_s: float
    #: Most memory of the zygote and all children together, what they share counted once.
    peak_memory_bytes: int
    #: Most memory of one child, by the kernel's account, what it shares included.
    largest_child_bytes: int
    #: Children that were ended for memory.
    starved: int
    #: Whether children were spawned, not forked.
    spawned: bool

    @property
    def per_minute(self) -> float:
        """Documents with a result, per minute."""
        return self.documents * 60 / self.elapsed_s

    @property
    def pages_per_minute(self) -> float:
        """Pages of documents with a result, per minute."""
        return self.pages * 60 / self.elapsed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is tried, the most promising first."""

    combinations: tuple[Combination, ...]
    #: Why a combination that the CPUs would bear cannot run.
    refused: Mapping[Combination, str]


def plan(*, cpus: int, memory_bytes: int, memory_per_child_bytes: int | None, pages_per_child: int) -> Plan:
    """Every step of workers and threads whose product is at most `cpus`, as far as `sizing` gives it.

    One thread and many workers come first: they are the fastest wherever memory allows them, so a time limit cuts
    what is least likely to win. Arguments are those of `sizing.size`, and the `pages_per_child` in force.
    """
    wanted: list[Combination] = []
    refused: dict[Combination, str] = {}
    for threads in _steps(cpus):
        for workers in reversed(_steps(cpus // threads)):
            combination = Combination(workers=workers, threads=threads, pages_per_child=pages_per_child)
            fits = size(
                cpus=cpus,
                memory_bytes=memory_bytes,
                workers=workers,
                threads=threads,
                memory_per_child_bytes=memory_per_child_bytes,
            )
            if (fits.workers, fits.threads) == (workers, threads):
                wanted.append(combination)
            else:
                refused[combination] = "; ".join(fits.notes)
    return Plan(combinations=tuple(wanted), refused=refused)


def _steps(most: int) -> list[int]:
    """Ascending, 1 and `most` among them."""
    if most <= _ALL_STEPS:
        return list(range(1, most + 1))
    powers = [2**exponent for exponent in range(most.bit_length()) if 2**exponent < most]
    return [*powers, most]


def slices(of: Combination, *, longest_pages: int) -> tuple[Combination, ...]:
    """`of` with other values of `pages_per_child`, none twice and `of` itself left out.

    A value that no document reaches changes nothing, so of those only the least is there, and none where `of` has one.
    """
    shorter = [value for value in _SLICES if value < longest_pages]
    whole = [value for value in _SLICES if value >= longest_pages][:1] if of.pages_per_child < longest_pages else []
    return tuple(replace(of, pages_per_child=value) for value in (*shorter, *whole) if value != of.pages_per_child)


def sample(sizes: Mapping[str, int], most: int) -> tuple[str, ...]:
    """At most `most` of the names, evenly over size (bytes by name), the smallest first.

    The files in the order of their sizes are cut into `most` parts of equal number, and of each part the name with the
    lowest digest is taken, without its folder: the same files give the same sample wherever they lie, and no size is
    preferred within a part.
    """
    assert most >= 1, "an empty sample measures nothing"
    ordered = sorted(sizes, key=lambda name: (sizes[name], name))
    parts = min(most, len(ordered))
    bounds = [len(ordered) * number // parts for number in range(parts + 1)] if parts else []
    return tuple(min(ordered[low:high], key=_drawn) for low, high in itertools.pairwise(bounds))


def _drawn(name: str) -> tuple[bytes, str]:
    return hashlib.sha256(name.rpartition("/")[2].encode(errors="surrogateescape")).digest(), name


def copies(documents: int, planned: Sequence[Combination]) -> int:
    """How often each document is in the batch, so that the most workers have enough to do; at least 1."""
    needed = _DOCUMENTS_PER_WORKER * max(combination.workers for combination in planned)
    return max(1, -(-needed // documents))


def next_turn(
    planned: Sequence[Combination], begun: Collection[Turn], given_up: Collection[Combination], *, rounds: int
) -> Turn | None:
    """The first turn of the earliest round that was not begun; None after the last of `rounds`.

    `planned` may grow meanwhile: what is new catches up on the earlier rounds.
    """
    for number in range(1, rounds + 1):
        start = (number - 1) % len(planned)
        for combination in (*planned[start:], *planned[:start]):
            turn = Turn(combination=combination, round=number)
            if combination not in given_up and turn not in begun:
                return turn
    return None


def hopeless_after_s(runs: Sequence[Run], *, number: int) -> float | None:
    """How long a run of round `number` may take before it has lost; None for the first of a round.

    Other rounds are no measure: the host may have been less busy then.
    """
    took = [run.elapsed_s for run in runs if run.turn.round == number]
    return HOPELESS * min(took) if took else None


def worth_beginning(*, left_s: float, took_s: Sequence[float]) -> bool:
    """Whether a turn that took `took_s` before (loading included) may be expected to end within `left_s`."""
    return left_s > max(took_s, default=0.0)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
