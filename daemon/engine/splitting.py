"""Rows that were taken for one, told apart by their lines.

Engine, but pure. A cell that wraps has more lines than its neighbours. Where most columns have text on the same lines,
and most of them figures, which do not wrap, each of these lines is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from daemon.engine.lanes import Piece, in_rows, interval
from daemon.engine.pages import Grid

#: Share of the columns with text that a line must fill to be a row.
_MOST_COLUMNS = 0.6
#: Columns with text; in two, a pair of figures may be one cell's.
_LEAST_COLUMNS = 3
#: Share of the columns in which figures stand on the lines.
_MOST_FIGURES = 0.5


def split(grid: Grid, pieces: Sequence[Piece]) -> Grid:
    """The grid with a row for each; the same grid where there are no more."""
    by_row: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_row.setdefault(interval(grid.rows, piece.y), []).append(piece)
    cuts = {row: found for row, held in by_row.items() if (found := _cuts(in_rows(held), grid.columns))}
    if not cuts:
        return grid
    starts: list[int] = []
    rows: list[float] = []
    for row, top in enumerate(grid.rows):
        starts.append(len(rows))
        rows += [top, *cuts.get(row, ())]
    cells: list[tuple[int, int, int, int]] = []
    for first, end, left, right in grid.cells:
        end_ = min(end, len(grid.rows) - 1)
        if end_ - first == 1:
            cells += [(row, row + 1, left, right) for row in range(starts[first], starts[end_])]
        else:
            cells.append((starts[first], starts[end_], left, right))
    return Grid(rows=rows, columns=grid.columns, cells=cells, words=grid.words)


def _cuts(lines: Sequence[Sequence[Piece]], columns: Sequence[float]) -> list[float]:
    """Where a row must be cut; nowhere when its lines are one row."""
    filled = [{interval(columns, piece.x) for piece in line} for line in lines]
    used = set().union(*filled)
    if len(used) < _LEAST_COLUMNS:
        return []
    full = [number for number, one in enumerate(filled) if len(one) >= _MOST_COLUMNS * len(used)]
    if len(full) < 2 or len(full) < len(lines) / 2:  # noqa: PLR2004 - two rows
        return []
    pieces = [piece for number in full for piece in lines[number]]
    words = {interval(columns, piece.x) for piece in pieces if not _is_figure(piece.text)}
    if len(used - words) < _MOST_FIGURES * len(used):
        return []
    places = [[piece.y for piece in line] for line in lines]
    middles = [sum(place) / len(place) for place in places]
    owners = [min(full, key=lambda row: (abs(middles[row] - middle), row)) for middle in middles]
    return [
        (middles[one] + middles[other]) / 2
        for one, other in pairwise(range(len(lines)))
        if owners[one] != owners[other]
    ]


def _is_figure(text: str) -> bool:
    """Whether a text is a number, a date, an amount with its unit; a dash at its end says that it goes on."""
    digits, letters = sum(map(str.isdigit, text)), sum(map(str.isalpha, text))
    return digits > 0 and digits >= letters and text[-1] not in "-–"  # noqa: RUF001 - as printed
