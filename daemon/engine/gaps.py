"""Rows and columns of a table that nobody predicted and nothing draws: from the gaps between its text.

Engine, but pure. Points with the origin at the top left.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from docling_core.types.doc import BoundingBox

from daemon.engine.lanes import interval
from daemon.engine.pages import Grid

#: A gap between columns is at least this many times the height of a line.
_COLUMN_GAP = 0.9
#: The same where as many rows have the gap in the same place; detected boxes all but touch.
_ALIGNED_GAP, _LEAST_ROWS = 0.05, 3
#: By which share a row's pieces may be more or fewer than those of the usual row.
_USUAL = 0.35


def grid_from_gaps(texts: Sequence[tuple[str, BoundingBox]], around: BoundingBox) -> Grid:
    """Rows and columns where the text leaves gaps; one cell when it leaves none."""
    boxes = [box for _, box in texts]
    if not boxes:
        return Grid(rows=[around.t, around.b], columns=[around.l, around.r], cells=[])
    height = sorted(box.height for box in boxes)[len(boxes) // 2]
    rows = _boundaries([(b.t, b.b) for b in boxes], 0.0, (around.t, around.b), shrink=0.25)
    usual = _usual_rows(boxes, rows)
    # What keeps apart in row after row is a column, however near; in a row or two it may be a wide blank.
    least_gap = (_ALIGNED_GAP if len(usual) >= _LEAST_ROWS else _COLUMN_GAP) * height
    columns = _boundaries([(b.l, b.r) for row in usual for b in row], least_gap, (around.l, around.r))
    return Grid(rows=rows, columns=columns, cells=[])


def _usual_rows(boxes: Sequence[BoundingBox], rows: Sequence[float]) -> list[list[BoundingBox]]:
    """The boxes by row, of rows with about as many as most: a heading across columns says nothing about these.

    All rows where none is usual.
    """
    by_row: dict[int, list[BoundingBox]] = {}
    for box in boxes:
        by_row.setdefault(interval(rows, (box.t + box.b) / 2), []).append(box)
    usual = median(len(row) for row in by_row.values())
    return [row for row in by_row.values() if abs(len(row) - usual) <= _USUAL * usual] or list(by_row.values())


def _boundaries(
    spans: Sequence[tuple[float, float]], least_gap: float, ends: tuple[float, float], *, shrink: float = 0.0
) -> list[float]:
    """Middles of the gaps that no span crosses, between the two ends; spans are shortened by `shrink` at each end."""
    shortened = sorted((a + shrink * (b - a), b - shrink * (b - a)) for a, b in spans)
    result = [ends[0]]
    reach = shortened[0][1]
    for start, end in shortened[1:]:
        if start - reach > least_gap:
            result.append((reach + start) / 2)
        reach = max(reach, end)
    return [*result, ends[1]]
