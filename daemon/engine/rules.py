"""Ruling lines of a page: straight strokes that run across it or down it, whatever drew them.

Engine, but pure. Points with the origin at the top left. A rule is a place (`at`: y of one that runs across, x of one
that runs down) and an extent along the other axis. What is drawn in pieces, twice, or as the edges of cells side by
side is one rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from docling_core.types.doc import BoundingBox

_T = TypeVar("_T")
#: Strokes nearer than this are one, and pieces with a smaller gap between them are one stroke.
_SAME_PT = 2.0
#: Shorter strokes are dashes, ticks and parts of letters.
_LEAST_PT = 4.0
#: A thicker one is a bar of a chart, a shorter one for its thickness is a bullet.
_THICKEST_PT, _SLENDER = 3.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One straight stroke."""

    at: float
    start: float
    end: float

    def covers(self, value: float, slack: float) -> bool:
        """Whether it is drawn there, `slack` points beyond its ends included."""
        return self.start - slack <= value <= self.end + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Those of a page or of a part of it, each kind by place."""

    #: From side to side.
    across: tuple[Rule, ...] = ()
    #: From top to bottom.
    down: tuple[Rule, ...] = ()

    def around(self, box: BoundingBox, slack: float) -> Rules:
        """What meets a box of text, `slack` larger on each side, or frames it: whole, as far as it reaches."""
        near = self._meeting(box.l - slack, box.t - slack, box.r + slack, box.b + slack)
        return self._meeting(
            min((box.l, *(rule.start for rule in near.across))) - slack,
            min((box.t, *(rule.start for rule in near.down))) - slack,
            max((box.r, *(rule.end for rule in near.across))) + slack,
            max((box.b, *(rule.end for rule in near.down))) + slack,
        )

    def _meeting(self, left: float, top: float, right: float, bottom: float) -> Rules:
        def meets(rule: Rule, places: tuple[float, float], extent: tuple[float, float]) -> bool:
            return places[0] <= rule.at <= places[1] and rule.start < extent[1] and rule.end > extent[0]

        return Rules(
            across=tuple(rule for rule in self.across if meets(rule, (top, bottom), (left, right))),
            down=tuple(rule for rule in self.down if meets(rule, (left, right), (top, bottom))),
        )


def rules_of(strokes: Iterable[tuple[float, float, float, float]]) -> Rules:
    """The rules among strokes and thin boxes (left, top, right, bottom); slanted, thick and short ones are none."""
    across: list[Rule] = []
    down: list[Rule] = []
    for left, top, right, bottom in strokes:
        width, height = right - left, bottom - top
        if height <= _THICKEST_PT and width >= max(_LEAST_PT, _SLENDER * height):
            across.append(Rule(at=(top + bottom) / 2, start=left, end=right))
        elif width <= _THICKEST_PT and height >= max(_LEAST_PT, _SLENDER * width):
            down.append(Rule(at=(left + right) / 2, start=top, end=bottom))
    return Rules(across=_joined(across), down=_joined(down))


def near(items: Iterable[_T], place: Callable[[_T], float], most: float) -> list[list[_T]]:
    """The items by place, in groups none of which is wider than `most`."""
    groups: list[list[_T]] = []
    for item in sorted(items, key=place):
        if groups and place(item) - place(groups[-1][0]) <= most:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _joined(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules, those that touch or lie on each other as one."""
    result: list[Rule] = []
    for group in near(rules, lambda rule: rule.at, _SAME_PT):
        at = sum(rule.at for rule in group) / len(group)
        for rule in sorted(group, key=lambda one: one.start):
            last = result[-1] if result else None
            if last is not None and last.at == at and rule.start <= last.end + _SAME_PT:
                result[-1] = Rule(at=at, start=last.start, end=max(last.end, rule.end))
            else:
                result.append(Rule(at=at, start=rule.start, end=rule.end))
    return tuple(result)
