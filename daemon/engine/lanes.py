"""The pieces of text of a table, as rows and columns hold them.

Engine, but pure. A piece is text that no gap and no rule parts. Points with the origin at the top left; rows and
columns are counted from 0 and lie between consecutive boundaries, the outer ones reaching on for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from docling_core.types.doc import BoundingBox

from daemon.engine.rules import Rules

#: Between two columns of one line, in heights of its words; a blank is a fifth of that height.
LEAST_GAP = 0.3
#: Rules part words; one that only touches a word's box does not.
_INSIDE = 0.2


@dataclass(slots=True, kw_only=True)
class Piece:
    """Text in one place."""

    text: str
    box: BoundingBox

    @property
    def x(self) -> float:
        """Its middle."""
        return float(self.box.l + self.box.r) / 2

    @property
    def y(self) -> float:
        """Its middle."""
        return float(self.box.t + self.box.b) / 2


def in_rows(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Lines of pieces from top to bottom, those side by side from left to right."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda one: (one.y, one.box.l)):
        if rows and piece.y < rows[-1][0].box.b:
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [sorted(row, key=lambda one: float(one.box.l)) for row in rows]


def pieces_of(words: Sequence[tuple[str, BoundingBox]], rules: Rules) -> list[Piece]:
    """Words with no more than a blank between them, put together where no rule runs between them."""
    pieces: list[Piece] = []
    for row in in_rows(Piece(text=text, box=box) for text, box in words if text.strip()):
        last: Piece | None = None
        for word in row:
            if (
                last is not None
                and word.box.l - last.box.r < LEAST_GAP * word.box.height
                and not parted(rules, last.box, word.box)
            ):
                box = last.box
                last.text = f"{last.text} {word.text}"
                last.box = box.model_copy(
                    update={"r": max(box.r, word.box.r), "t": min(box.t, word.box.t), "b": max(box.b, word.box.b)}
                )
            else:
                last = Piece(text=word.text, box=word.box)
                pieces.append(last)
    return pieces


def parted(rules: Rules, left: BoundingBox, right: BoundingBox) -> bool:
    """Whether a rule runs down between two boxes of one line."""
    middle = (left.t + left.b) / 2
    low, high = left.r - _INSIDE * left.height, right.l + _INSIDE * right.height
    return any(low <= rule.at <= high and rule.covers(middle, 0.0) for rule in rules.down)


def interval(boundaries: Sequence[float], value: float) -> int:
    """The interval that holds `value`."""
    return bisect_right(boundaries, value, 1, len(boundaries) - 1) - 1
