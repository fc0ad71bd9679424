"""Which of the measured settings is recommended, and why.

Core. Three steps, in this order: what loses documents, or does not fit the memory, is out where something else does
not; of the rest the fastest, by the median of its rounds; of those that are as fast within the noise, the smallest.

Noise is judged on ratios of two runs of the same round, since a host that slows down slows both: a difference is
real when the median ratio is farther from 1 than the ratios themselves lie apart, and than `LEAST_DIFFERENCE`.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daemon.calibration import Combination, Run

#: A smaller difference is none, however steady: nobody gives CPUs or memory away for it.
LEAST_DIFFERENCE: Final = 0.03
#: What counts as noise while nothing shows it: one round only. Our own choice, on the safe side.
UNKNOWN_NOISE: Final = 0.1
#: Peaks of memory are samples; of settings that are as fast, one whose peak is within this of the least is as small.
MEMORY_NOISE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What all rounds of one combination say together."""

    combination: Combination
    #: Documents per minute, by round.
    rates: Mapping[int, float]
    pages_per_minute: float
    #: The most of any round, as are `largest_child_bytes`, `failed` and `starved`.
    peak_memory_bytes: int
    largest_child_bytes: int
    failed: int
    starved: int
    spawned: bool

    @property
    def median(self) -> float:
        """Documents per minute."""
        return statistics.median(self.rates.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is recommended."""

    figures: Figures
    #: The fastest; `figures` itself, unless a smaller one is as fast.
    fastest: Figures
    #: One or two sentences.
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much slower one setting is than another, as shares of the faster one's rate."""

    gap: float
    noise: float
    #: In how many rounds both were measured.
    rounds: int

    @property
    def real(self) -> bool:
        """Whether it is more than noise."""
        return self.gap > self.noise


def figures(runs: Sequence[Run]) -> tuple[Figures, ...]:
    """One for each combination that was run, in the order of the first runs."""
    grouped: dict[Combination, list[Run]] = defaultdict(list)
    for run in runs:
        grouped[run.turn.combination].append(run)
    return tuple(
        Figures(
            combination=combination,
            rates={run.turn.round: run.per_minute for run in its},
            pages_per_minute=statistics.median(run.pages_per_minute for run in its),
            peak_memory_bytes=max(run.peak_memory_bytes for run in its),
            largest_child_bytes=max(run.largest_child_bytes for run in its),
            failed=max(run.failed for run in its),
            starved=max(run.starved for run in its),
            spawned=any(run.spawned for run in its),
        )
        for combination, its in grouped.items()
    )


def difference(slower: Figures, faster: Figures) -> Difference:
    """By how much, judged on the rounds that both have. `faster` made something in each of its rounds."""
    shared = sorted(slower.rates.keys() & faster.rates.keys())
    ratios = [slower.rates[number] / faster.rates[number] for number in shared] or [slower.median / faster.median]
    moved = max(ratios) - min(ratios) if len(ratios) > 1 else UNKNOWN_NOISE
    return Difference(gap=1 - statistics.median(ratios), noise=max(moved, LEAST_DIFFERENCE), rounds=len(shared))


def choose(runs: Sequence[Run], *, memory_bytes: int, pages_per_child: int) -> Choice | None:
    """The recommended setting; None when no run has a result.

    `memory_bytes` is what children may use together, `pages_per_child` the value in force, which is kept where others
    are no better.
    """
    measured = [each for each in figures(runs) if min(each.rates.values()) > 0]
    if not measured:
        return None
    whole = _least(measured, [each.failed for each in measured])
    fed = _least(whole, [each.starved for each in whole])
    fitting = [each for each in fed if each.peak_memory_bytes <= memory_bytes] or _least(
        fed, [each.peak_memory_bytes for each in fed]
    )
    fastest = max(fitting, key=lambda each: each.median)
    equal = [each for each in fitting if each is fastest or not difference(each, fastest).real]
    chosen = _smallest(equal, pages_per_child=pages_per_child)
    said = [_words(chosen, fastest, fitting), *_left_out(measured, fitting)]
    return Choice(figures=chosen, fastest=fastest, because=" ".join(said))


def _least(measured: Sequence[Figures], values: Sequence[int]) -> list[Figures]:
    """Those with the least of `values`, which are theirs in the same order."""
    least = min(values)
    return [each for each, value in zip(measured, values, strict=True) if value == least]


def _smallest(equal: Sequence[Figures], *, pages_per_child: int) -> Figures:
    """Fewest CPUs in use, then fewest workers, then the value in force, then the least memory."""

    def used(each: Figures) -> tuple[int, int]:
        return each.combination.workers * each.combination.threads, each.combination.workers

    small = [each for each in equal if used(each) == min(map(used, equal))]
    least_bytes = min(each.peak_memory_bytes for each in small)
    lean = [each for each in small if each.peak_memory_bytes <= least_bytes * (1 + MEMORY_NOISE)]
    return min(lean, key=lambda each: (each.combination.pages_per_child != pages_per_child, each.peak_memory_bytes))


def _words(chosen: Figures, fastest: Figures, fitting: Sequence[Figures]) -> str:
    """Why this one."""
    if chosen is not fastest:
        apart = difference(chosen, fastest)
        less = f"{apart.gap:.0%} less" if apart.gap > 0 else "no less"
        return (
            f"The difference is within the noise: {fastest.combination} made {fastest.median:.1f} documents a minute, "
            f"{chosen.combination} {chosen.median:.1f}; round by round that is {less}, where {_noise(apart)}; so the "
            "smaller setting is recommended."
        )
    others = [each for each in fitting if each is not fastest]
    if not others:
        return f"{fastest.combination}: {fastest.median:.1f} documents a minute; nothing else was measured beside it."
    second = max(others, key=lambda each: each.median)
    apart = difference(second, fastest)
    verdict = f"{apart.gap:.0%} less, where {_noise(apart)}"
    if not apart.real:
        verdict = f"no difference, since {_noise(apart)}, and it is not the smaller one"
    return (
        f"The fastest is {fastest.combination}, with {fastest.median:.1f} documents a minute; the next is "
        f"{second.combination}, with {second.median:.1f} ({verdict})."
    )


def _noise(apart: Difference) -> str:
    if apart.rounds > 1:
        return f"up to {apart.noise:.0%} is noise over {apart.rounds} rounds"
    return f"up to {apart.noise:.0%} is taken for noise, since only one round has both"


def _left_out(measured: Sequence[Figures], fitting: Sequence[Figures]) -> list[str]:
    """What is faster and not considered."""
    out = [each for each in measured if each not in fitting]
    if not out:
        return []
    names = ", ".join(str(each.combination) for each in out)
    return [f"Not considered, since more documents failed, or memory was short: {names}."]
