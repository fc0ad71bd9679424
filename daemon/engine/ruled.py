"""A table's grid checked against its ruling lines.

Engine, but pure. Points with the origin at the top left. What is drawn is believed before what was predicted: a rule
that runs between texts is a boundary, and cells with no rule between them inside a drawn frame are one. Nothing is
believed that cuts text. What the rules leave open (a table with three of them, a frame around five rows) is left to
the prediction, as far as the texts bear it out. Without a rule inside the table the grid comes back as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from docling_core.types.doc import BoundingBox

from daemon.engine.lanes import Piece, in_rows, interval
from daemon.engine.lattice import GAP, MOST_CELLS, Boundary, Lattice, cells_of
from daemon.engine.pages import Grid
from daemon.engine.rules import Rule, Rules, near

#: Two strokes of a double rule, and the end of a rule and what it ends at, are so near: in heights of a line.
_TOUCH = 0.5
#: A rule is a boundary when it covers this share of the table, or ends at rules on both sides.
_LONG = 0.5
#: A rule cuts a text that reaches so many heights of a line beyond it on both sides.
_CUTS = 0.25
#: Share of the lines, or of the texts of a line, that a boundary may cut: a stamp, a letter's tail.
_MOST_CUT = 0.1
#: An empty lane that is narrower, in heights of a line, is none; the end of a rule that near to a boundary is at it.
_SAME = 0.75
#: Share of a row's columns with text in which a line must be, to be a row of its own.
_MOST_COLUMNS = 0.6
#: Rules tell rows apart where so many frames hold text, and this share of them a single line.
_LEAST_BANDS, _MOST_SINGLE = 3, 0.7
#: A frame with more lines that no rule runs down through is left to the prediction.
_MOST_LINES = 4
#: More is no table, or one that costs more to check than it is worth.
_MOST_PIECES, _MOST_RULES = 5_000, 1_000
#: Boundaries of a table, outer ones included, when one is inside.
_INNER = 3


def checked(grid: Grid, rules: Rules, pieces: Sequence[Piece], around: BoundingBox) -> Grid:
    """The grid of a table `around` these pieces, with the boundaries and merged cells that are drawn."""
    if not pieces or len(pieces) > _MOST_PIECES or not 0 < len(rules.across) + len(rules.down) <= _MOST_RULES:
        return grid
    height = median(piece.box.height for piece in pieces)
    lines = len(in_rows(pieces))
    down = _separating(
        _places(rules.down, rules.across, around.t, around.b, height),
        [(piece.box.l, piece.box.r, piece.y) for piece in pieces],
        most=_MOST_CUT * lines,
        height=height,
    )
    across = _separating(
        _places(_not_of_text(rules, in_rows(pieces), height), rules.down, around.l, around.r, height),
        [(piece.box.t, piece.box.b, piece.x) for piece in pieces],
        most=_MOST_CUT * len(pieces) / lines,
        height=height,
    )
    rows = _framed(across, (around.t, around.b), [piece.y for piece in pieces], height)
    columns = _framed(down, (around.l, around.r), [piece.x for piece in pieces], height)
    if max(len(rows), len(columns)) < _INNER:
        return grid
    columns = _with_predicted_columns(columns, grid, pieces, height)
    rows = _with_predicted_rows(rows, columns, grid, pieces, height)
    if (len(rows) - 1) * (len(columns) - 1) > MOST_CELLS:
        return grid
    lattice = Lattice(rows=rows, columns=columns, pieces=pieces, height=height)
    return Grid(
        rows=[row.at for row in rows],
        columns=[column.at for column in columns],
        cells=cells_of(lattice, grid),
        words=grid.words,
    )


def _places(rules: Sequence[Rule], others: Sequence[Rule], start: float, end: float, height: float) -> list[Boundary]:
    """Places of rules that are long, or are edges of cells: they end at `others` on both sides."""
    touch = _TOUCH * height
    groups = near(rules, lambda rule: rule.at, touch)
    return [
        Boundary(at=sum(rule.at for rule in group) / len(group), rules=tuple(group))
        for group in groups
        if sum(rule.end - rule.start for rule in group) >= _LONG * (end - start)
        or any(_is_edge(rule, others, touch) for rule in group)
    ]


def _is_edge(rule: Rule, others: Sequence[Rule], touch: float) -> bool:
    """Whether a rule ends at others on both sides, as the edge of a cell does."""
    return all(
        any(abs(other.at - tip) <= touch and other.covers(rule.at, touch) for other in others)
        for tip in (rule.start, rule.end)
    )


def _not_of_text(rules: Rules, lines: Sequence[Sequence[Piece]], height: float) -> list[Rule]:
    """The rules across without those that belong to a line of text: under its words, or leading on from them."""
    kept: list[Rule] = []
    number = 0
    for rule in rules.across:
        while number < len(lines) and max(piece.box.b for piece in lines[number]) + _CUTS * height < rule.at:
            number += 1
        beside = [piece for line in lines[number : number + 2] for piece in line if _stands_on(piece, rule, height)]
        touch = _TOUCH * height
        under = any(abs(piece.box.l - rule.start) <= touch and abs(piece.box.r - rule.end) <= touch for piece in beside)
        leads = any(-touch <= rule.start - piece.box.r <= height for piece in beside)
        if not (leads or under) or _is_edge(rule, rules.down, touch):
            kept.append(rule)
    return kept


def _stands_on(piece: Piece, rule: Rule, height: float) -> bool:
    """Whether a rule runs where the foot of a line's letters is."""
    return bool(piece.y < rule.at < piece.box.b + _CUTS * height)


def _separating(
    places: Sequence[Boundary], spans: Sequence[tuple[float, float, float]], *, most: float, height: float
) -> list[Boundary]:
    """Those that cut no more than `most` texts; spans are (low, high) along the axis and the middle on the other."""
    inside = _CUTS * height
    return [
        place
        for place in places
        if sum(low + inside < place.at < high - inside and place.drawn(beside) for low, high, beside in spans) <= most
    ]


def _framed(
    places: Sequence[Boundary], ends: tuple[float, float], texts: Sequence[float], height: float
) -> list[Boundary]:
    """The boundaries between texts and the first one beyond them on each side, without empty and narrow lanes."""
    low, high = min(texts), max(texts)
    before, after = [place for place in places if place.at <= low], [place for place in places if place.at > high]
    result = before[-1:] or [Boundary(at=min(ends[0], low - height / 2))]
    for place in (place for place in places if low < place.at <= high):
        if place.at - result[-1].at >= _SAME * height or _holds(result[-1].at, place.at, texts):
            result.append(place)
    return result + (after[:1] or [Boundary(at=max(ends[1], high + height / 2))])


def _holds(low: float, high: float, texts: Sequence[float]) -> bool:
    return any(low < text < high for text in texts)


def _with_predicted_columns(
    ruled: Sequence[Boundary], grid: Grid, pieces: Sequence[Piece], height: float
) -> list[Boundary]:
    """The drawn columns, and predicted ones between them that part texts."""
    predicted = _between(ruled, grid.columns, [piece.x for piece in pieces], height)
    if len(ruled) >= _INNER and 2 * (len(ruled) - 2) >= len(grid.columns) - 2:
        lines = in_rows(pieces)
        predicted = [x for x in predicted if _parts_texts(x, ruled, lines, height)]
    return sorted([*ruled, *(Boundary(at=x) for x in predicted)], key=lambda one: one.at)


def _between(
    ruled: Sequence[Boundary], predicted: Sequence[float], texts: Sequence[float], height: float
) -> list[float]:
    """Inner predicted boundaries that are none of the drawn ones: not at one, and with text on both sides."""
    drawn, ordered = [place.at for place in ruled], sorted(texts)
    found = []
    for value in predicted[1:-1]:
        lane = bisect_left(drawn, value)
        if not 0 < lane < len(drawn):
            continue
        low, high = drawn[lane - 1], drawn[lane]
        parts = bisect_left(ordered, low) < bisect_left(ordered, value) < bisect_left(ordered, high)
        if parts and min(value - low, high - value) > _TOUCH * height:
            found.append(value)
    return found


def _parts_texts(x: float, ruled: Sequence[Boundary], lines: Sequence[Sequence[Piece]], height: float) -> bool:
    """Whether half of the lines with text in the drawn column around `x` have a gap there, and text on both sides."""
    left = max(place.at for place in ruled if place.at <= x)
    right = min(place.at for place in ruled if place.at > x)
    held = [[piece for piece in line if left < piece.x < right] for line in lines]
    parted = [
        any(one.x < x < other.x and other.box.l - one.box.r >= GAP * height for one, other in pairwise(line))
        for line in held
        if line
    ]
    return sum(parted) >= max(2, len(parted) / 2)


def _with_predicted_rows(
    ruled: Sequence[Boundary], columns: Sequence[Boundary], grid: Grid, pieces: Sequence[Piece], height: float
) -> list[Boundary]:
    """The drawn rows, and predicted ones in those frames that do not tell their rows apart."""
    most = len(pieces) / len(in_rows(pieces)) / 2
    predicted = [
        y
        for y in _between(ruled, grid.rows, [piece.y for piece in pieces], height)
        if sum(abs(y - piece.y) < (0.5 - _CUTS) * piece.box.height for piece in pieces) <= most
    ]
    held: list[list[Piece]] = [[] for _ in ruled[1:]]
    for piece in pieces:
        held[interval([place.at for place in ruled], piece.y)].append(piece)
    bands = [(one.at, other.at, in_rows(inside)) for (one, other), inside in zip(pairwise(ruled), held, strict=True)]
    texted = [lines for _, _, lines in bands if lines]
    many = len(texted) >= _LEAST_BANDS
    single = sum(len(lines) == 1 for lines in texted) >= _MOST_SINGLE * len(texted)
    result = list(ruled)
    for top, bottom, lines in bands:
        closed = any(place.drawn((top + bottom) / 2) for place in columns[1:-1])
        one = many and (closed or (single and len(lines) <= _MOST_LINES)) and not _are_several(lines, columns)
        result += [
            Boundary(at=y)
            for y in predicted
            if top < y < bottom
            and (not one or _heads(y, lines, columns, height) or _ends_rules(y, ruled, columns, height))
        ]
    return sorted(result, key=lambda place: place.at)


def _heads(y: float, lines: Sequence[Sequence[Piece]], columns: Sequence[Boundary], height: float) -> bool:
    """Whether the line above `y` heads several columns with one text, as no line of a cell that wraps does."""
    above = [line for line in lines if line[0].y < y]
    inner, inside = [place.at for place in columns[1:-1]], _CUTS * height
    return any(piece.box.l + inside < x < piece.box.r - inside for line in above[-1:] for piece in line for x in inner)


def _ends_rules(y: float, ruled: Sequence[Boundary], columns: Sequence[Boundary], height: float) -> bool:
    """Whether rules that run down begin or end at `y`, and at no rule there: they part columns, and beyond is one."""
    tips = [tip for place in columns[1:-1] for rule in place.rules for tip in (rule.start, rule.end)]
    free = [tip for tip in tips if all(abs(tip - place.at) > _TOUCH * height for place in ruled)]
    return sum(abs(tip - y) <= _SAME * height for tip in free) >= 2  # noqa: PLR2004 - no chance


def _are_several(lines: Sequence[Sequence[Piece]], columns: Sequence[Boundary]) -> bool:
    """Whether most lines of a frame have text in most of its columns: no cell that wraps does that."""
    boundaries = [place.at for place in columns]
    filled = [{interval(boundaries, piece.x) for piece in line} for line in lines]
    used = set().union(*filled)
    full = sum(len(one) >= max(2, _MOST_COLUMNS * len(used)) for one in filled)
    return full >= max(2, _MOST_COLUMNS * len(lines))
