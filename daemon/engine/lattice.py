"""Cells of a lattice of boundaries: which of its places are one cell.

Engine, but pure. Places are (row, column), counted from 0; cells are (first row, end row, first column, end column),
ends exclusive. Every place is in exactly one cell. Two places are one where the boundary between them is drawn in
other rows or columns and not there, or where the prediction says so and no rule denies it; text that stands in two
columns is never put into one cell.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from daemon.engine.lanes import Piece, in_rows, interval
from daemon.engine.pages import Grid
from daemon.engine.rules import Rule

_Cell = tuple[int, int, int, int]
#: A grid beyond this is a mistake, and would be a mountain of empty cells.
MOST_CELLS = 20_000
#: Texts of two columns are so many heights of a line apart.
GAP = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """One between two rows or columns."""

    at: float
    #: Those that draw it; none for one that was only predicted.
    rules: tuple[Rule, ...] = ()

    def drawn(self, value: float) -> bool:
        """Whether it is drawn at this place along it."""
        return any(rule.start <= value <= rule.end for rule in self.rules)

    def is_open(self, value: float) -> bool:
        """Whether it is drawn elsewhere, and not there."""
        return bool(self.rules) and not self.drawn(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """Boundaries of rows and columns, outer ones included, and the pieces of text between them."""

    rows: Sequence[Boundary]
    columns: Sequence[Boundary]
    pieces: Sequence[Piece]
    #: Of a line, in points.
    height: float


def cells_of(lattice: Lattice, predicted: Grid) -> list[_Cell]:
    """All cells, by place."""
    rows, columns = _middles(lattice.rows), _middles(lattice.columns)
    held = _by_place(lattice)
    taken: set[tuple[int, int]] = set()
    cells: list[_Cell] = []
    spans = [
        *(cell for cell in _drawn_together(lattice, rows, columns) if _is_one(cell, lattice, held)),
        *(cell for cell in _predicted_together(predicted, lattice, rows, columns) if _is_one_line(cell, lattice, held)),
    ]
    singles = [(r, r + 1, c, c + 1) for r in range(len(rows)) for c in range(len(columns))]
    for cell in [*spans, *singles]:
        places = set(_places(cell))
        if not places & taken:
            taken |= places
            cells.append(cell)
    return sorted(cells, key=lambda cell: (cell[0], cell[2]))


def _middles(boundaries: Sequence[Boundary]) -> list[float]:
    return [(low.at + high.at) / 2 for low, high in pairwise(boundaries)]


def _places(cell: _Cell) -> Iterable[tuple[int, int]]:
    return ((row, column) for row in range(cell[0], cell[1]) for column in range(cell[2], cell[3]))


def _by_place(lattice: Lattice) -> dict[tuple[int, int], list[Piece]]:
    rows, columns = [row.at for row in lattice.rows], [column.at for column in lattice.columns]
    held: dict[tuple[int, int], list[Piece]] = {}
    for piece in lattice.pieces:
        held.setdefault((interval(rows, piece.y), interval(columns, piece.x)), []).append(piece)
    return held


def _drawn_together(lattice: Lattice, rows: Sequence[float], columns: Sequence[float]) -> list[_Cell]:
    """Rectangles of several places that no rule parts."""
    seen: set[tuple[int, int]] = set()
    found: list[_Cell] = []
    for start in ((row, column) for row in range(len(rows)) for column in range(len(columns))):
        if start in seen:
            continue
        group, pending = {start}, [start]
        while pending:
            row, column = pending.pop()
            beside = (
                ((row, column + 1), lattice.columns[column + 1].is_open(rows[row])),
                ((row, column - 1), lattice.columns[column].is_open(rows[row])),
                ((row + 1, column), lattice.rows[row + 1].is_open(columns[column])),
                ((row - 1, column), lattice.rows[row].is_open(columns[column])),
            )
            for place, is_open in beside:
                inside = 0 <= place[0] < len(rows) and 0 <= place[1] < len(columns)
                if is_open and inside and place not in group:
                    group.add(place)
                    pending.append(place)
        seen |= group
        cell = _around(group)
        if len(group) > 1 and (cell[1] - cell[0]) * (cell[3] - cell[2]) == len(group):
            found.append(cell)
    return found


def _around(places: Iterable[tuple[int, int]]) -> _Cell:
    rows, columns = zip(*places, strict=True)
    return min(rows), max(rows) + 1, min(columns), max(columns) + 1


def _is_one(cell: _Cell, lattice: Lattice, held: dict[tuple[int, int], list[Piece]]) -> bool:
    """Whether its text stands in one column, and in one line or between rules, or the table's edge, on both sides."""
    lines = in_rows(piece for place in _places(cell) for piece in held.get(place, ()))
    sides = (lattice.columns[cell[2]], lattice.columns[cell[3]])
    closed = all(side.rules or side in (lattice.columns[0], lattice.columns[-1]) for side in sides)
    ruled = any(column.rules for column in lattice.columns[1:-1])
    return not _apart(cell, lattice, lines) and (len(lines) <= 1 or (closed and ruled))


def _apart(cell: _Cell, lattice: Lattice, lines: Sequence[Sequence[Piece]]) -> bool:
    """Whether texts of one line stand in two columns of a cell."""
    inner = [column.at for column in lattice.columns[cell[2] + 1 : cell[3]]]
    return any(
        other.box.l - one.box.r >= GAP * lattice.height and any(one.x < x <= other.x for x in inner)
        for line in lines
        for one, other in pairwise(line)
    )


def _predicted_together(
    predicted: Grid, lattice: Lattice, rows: Sequence[float], columns: Sequence[float]
) -> list[_Cell]:
    """Rectangles of several places that one predicted cell covers, where no rule runs through them."""
    found: list[_Cell] = []
    starts = {(cell[0], cell[2]) for cell in predicted.cells}
    for first, end, left, right in predicted.cells:
        covered = list(_places((first, end, left, right)))
        if len(covered) == 1 or sum(place in starts for place in covered) > 1:
            continue
        high, low = predicted.rows[first], predicted.rows[min(end, len(predicted.rows) - 1)]
        start, stop = predicted.columns[left], predicted.columns[min(right, len(predicted.columns) - 1)]
        cell = (
            *(bisect_left(rows, high), bisect_left(rows, low)),
            *(bisect_left(columns, start), bisect_left(columns, stop)),
        )
        if (cell[1] - cell[0]) * (cell[3] - cell[2]) > 1:
            walls = (lattice.columns[column].drawn(rows[row]) for row, column in _places(cell) if column > cell[2])
            floors = (lattice.rows[row].drawn(columns[column]) for row, column in _places(cell) if row > cell[0])
            if not any(walls) and not any(floors):
                found.append(cell)
    return found


def _is_one_line(cell: _Cell, lattice: Lattice, held: dict[tuple[int, int], list[Piece]]) -> bool:
    lines = in_rows(piece for place in _places(cell) for piece in held.get(place, ()))
    return len(lines) <= 1 and not _apart(cell, lattice, lines)
