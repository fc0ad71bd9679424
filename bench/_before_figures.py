"""The arithmetic of `bench.before`: what two versions took for one document, and which of them is the slower. Pure.

A document is slower when its median CPU time is more than a tenth higher than before, and the middle halves lie apart
(its lower quartile now above its upper quartile before): a tenth within its own spread is noise. One round has no
spread, and so no such protection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rapidfuzz.distance import Indel

from bench._fidelity_text import words
from bench._measure import Cost, Spread, ratio, spread

#: Of what it took before.
SLOWER = 1.10


@dataclass(slots=True)
class Pair:
    """One document that both sides convert."""

    name: str
    pages: int
    #: Markdown, of the unmeasured run.
    text_before: str
    text_after: str
    #: One of each per round.
    before: list[Cost] = field(default_factory=list)
    after: list[Cost] = field(default_factory=list)

    @property
    def is_slower(self) -> bool:
        """See the module for the rule."""
        before, after = cpu(self.before), cpu(self.after)
        return after.median > SLOWER * before.median and after.low > before.high

    @property
    def is_same(self) -> bool:
        """Whether the Markdown is the same, byte by byte."""
        return self.text_before == self.text_after

    @property
    def alike(self) -> float:
        """Indel similarity of the words without Markdown's marks, 0 to 1; 1 where only marks and blanks differ."""
        return (
            1.0 if self.is_same else float(Indel.normalized_similarity(words(self.text_before), words(self.text_after)))
        )

    @property
    def cpu_ratio(self) -> float:
        """Of medians, after over before."""
        return ratio(cpu(self.after).median, cpu(self.before).median)

    @property
    def wall_ratio(self) -> float:
        """The same by the clock."""
        return ratio(_wall(self.after).median, _wall(self.before).median)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One document that at least one side did not convert."""

    name: str
    #: Why there is no conversion; empty where there is one.
    before: str
    after: str

    @property
    def is_lost(self) -> bool:
        """Whether it was converted before, and is no longer."""
        return not self.before and bool(self.after)


def cpu(costs: Sequence[Cost]) -> Spread:
    """Seconds of CPU, over the rounds."""
    return _spread([cost.cpu_s for cost in costs])


def _wall(costs: Sequence[Cost]) -> Spread:
    return _spread([cost.wall_s for cost in costs])


def _spread(values: Sequence[float]) -> Spread:
    found = spread(values, digits=6)
    assert found is not None, "a document that is compared was converted at least once"
    return found


def row(pair: Pair) -> dict[str, object]:
    """For the JSON object."""
    return {
        "document": pair.name,
        "pages": pair.pages,
        "cpu_before_s": cpu(pair.before).as_json(),
        "cpu_after_s": cpu(pair.after).as_json(),
        "cpu_ratio": round(pair.cpu_ratio, 4),
        "wall_before_s": _wall(pair.before).as_json(),
        "wall_after_s": _wall(pair.after).as_json(),
        "wall_ratio": round(pair.wall_ratio, 4),
        "slower": pair.is_slower,
        "same_markdown": pair.is_same,
        "words_alike": round(pair.alike, 4),
    }


def report(pairs: Sequence[Pair], left: Sequence[Left]) -> dict[str, object]:
    """All documents, and the names of those that a person must look at."""
    return {
        "slower_is": SLOWER,
        "cpu_ratio": overall(pairs),
        "slower": [pair.name for pair in pairs if pair.is_slower],
        "changed": [pair.name for pair in pairs if not pair.is_same],
        "lost": [each.name for each in left if each.is_lost],
        "not_compared": [{"document": each.name, "before": each.before, "after": each.after} for each in left],
        "documents": [row(pair) for pair in pairs],
    }


def overall(pairs: Sequence[Pair]) -> float | None:
    """Sum of the median CPU times after, over that before; None of nothing."""
    if not pairs:
        return None
    after, before = (
        sum(cpu(costs).median for costs in side) for side in zip(*((p.after, p.before) for p in pairs), strict=True)
    )
    return round(ratio(after, before), 4)
