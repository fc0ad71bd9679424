"""Lines that the text detector drew across the gutter between two columns, cut where the gutter is.

Engine. Points with the origin at the top left. The detector joins what is nearer than about two letters, and narrow
gutters are. Columns are those that the layout network sees, or, where it sees none, those that most lines keep to. A
line is cut only where two columns lie side by side, and only through a strip without ink.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import cv2
import numpy as np
from docling_core.types.doc import BoundingBox

from daemon.engine.pages import Line
from daemon.engine.regions import union
from daemon.engine.rules import Rules

#: Prose fills a column of so many heights of a line; page numbers, amounts and names do not.
_LEAST_COLUMN = 8.0
#: Lines that make a column.
_LEAST_LINES = 3
#: Share of lines that may cross a gutter.
_MOST_CROSSING = 0.35
#: A detected box reaches so many heights of a line beyond its text.
_SLACK = 0.5
#: Both parts of a line that is cut are at least so many times as long as it is high.
_LEAST_PART = 1.5
#: Both parts of a line that a rule cuts are at least so many times as long: a digit.
_LEAST_CELL = 0.4
#: The detector's boxes reach so many heights of a line beyond the cell.
_BEYOND = 0.25
#: A strip without ink is at least this share of the line's height wide: more than the gap between most words.
_LEAST_STRIP = 0.35
#: The strip is looked for so many heights of the line around the middle of the gap between the regions.
_AROUND = 1.5
#: Grey levels that a column of pixels differs in, where it holds no ink: paper, shadow and JPEG stay below.
_NO_INK = 48


def cut_at_gutters(lines: Sequence[Line], regions: Sequence[BoundingBox]) -> list[Line]:
    """The lines, those that lie in two or more regions side by side as one for each."""
    result: list[Line] = []
    pending = list(lines)
    while pending:
        line = pending.pop()
        parts = _cut(line, regions)
        if parts is None:
            result.append(line)
        else:
            pending += parts
    return result


def cut_at_rules(lines: Sequence[Line], rules: Rules, tables: Sequence[BoundingBox]) -> list[Line]:
    """The lines, those in a table that a rule runs down through as one for each side of it."""
    result: list[Line] = []
    pending = list(lines)
    while pending:
        line = pending.pop()
        box, middle = line.box, (line.box.t + line.box.b) / 2
        held = any(table.t <= middle <= table.b and table.l <= (box.l + box.r) / 2 <= table.r for table in tables)
        edge = _LEAST_CELL * box.height
        slack = _BEYOND * box.height
        through = (r.at for r in rules.down if r.start <= box.t + slack and r.end >= box.b - slack)
        at = next((place for place in through if box.l + edge < place < box.r - edge), None) if held else None
        if at is None:
            result.append(line)
        else:
            pending += _parted(line, at)
    return result


def columns(boxes: Sequence[BoundingBox]) -> list[BoundingBox]:
    """The boxes of two columns of prose that these lines keep to; none where they do not."""
    if len(boxes) < 2 * _LEAST_LINES:
        return []
    height = median(box.height for box in boxes)
    best: list[BoundingBox] = []
    fewest = _MOST_CROSSING * len(boxes)
    slack = _SLACK * height
    for edge in sorted({box.r for box in boxes}):
        left, right = [box for box in boxes if box.r <= edge + slack], [box for box in boxes if box.l >= edge - slack]
        crossing = len(boxes) - len(left) - len(right)
        if crossing < fewest and _is_prose(left, height) and _is_prose(right, height):
            sides = [union(left).model_copy(update={"r": edge}), union(right).model_copy(update={"l": edge})]
            if min(side.b for side in sides) > max(side.t for side in sides):
                best, fewest = sides, crossing
    return best


def _is_prose(boxes: Sequence[BoundingBox], height: float) -> bool:
    return len(boxes) >= _LEAST_LINES and median(box.width for box in boxes) >= _LEAST_COLUMN * height


def _cut(line: Line, regions: Sequence[BoundingBox]) -> tuple[Line, Line] | None:
    """The parts left and right of the first gutter in a line, or None when there is none."""
    box, middle = line.box, (line.box.t + line.box.b) / 2
    beside = sorted((r for r in regions if r.t <= middle <= r.b and r.r > box.l and r.l < box.r), key=lambda r: r.l)
    least = _LEAST_PART * box.height
    for left, right in pairwise(beside):
        inside = left.r - box.l >= least and box.r - right.l >= least
        if not inside or right.l < left.r - _SLACK * box.height:
            continue
        at = _blank_at(line, (left.r + right.l) / 2)
        if at is not None and at - box.l >= least and box.r - at >= least:
            return _parted(line, at)
    return None


def _blank_at(line: Line, near: float) -> float | None:
    """The middle (pt) of the widest strip without ink around `near`; None where none is wide enough."""
    scale = line.picture.shape[1] / line.box.width
    reach = _AROUND * line.box.height
    start = max(0, round((near - reach - line.box.l) * scale))
    part = line.picture[:, start : max(start, round((near + reach - line.box.l) * scale))]
    if part.shape[1] == 0:
        return None
    blank = np.ptp(cv2.cvtColor(np.ascontiguousarray(part), cv2.COLOR_RGB2GRAY), axis=0) < _NO_INK
    edges = np.flatnonzero(np.diff(np.concatenate(([False], blank, [False])).astype(np.int8)))
    strips = edges.reshape(-1, 2)
    if len(strips) == 0:
        return None
    first, end = max(strips, key=lambda strip: int(strip[1] - strip[0]))
    if end - first < _LEAST_STRIP * line.picture.shape[0]:
        return None
    return float(line.box.l + (start + (first + end) / 2) / scale)


def _parted(line: Line, at: float) -> tuple[Line, Line]:
    """The line's two parts beside `at` (pt)."""
    column = round((at - line.box.l) * line.picture.shape[1] / line.box.width)
    halves = (line.picture[:, :column], line.picture[:, column:])
    places = (line.box.model_copy(update={"r": at}), line.box.model_copy(update={"l": at}))
    left, right = (
        Line(box=place, picture=np.ascontiguousarray(half)) for place, half in zip(places, halves, strict=True)
    )
    return left, right
