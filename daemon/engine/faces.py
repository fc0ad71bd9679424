"""What the ruling lines of a scan enclose, and whether that is a table or columns of prose.

Engine, but pure. Points with the origin at the top left. A face is what the nearest rules around a line of text
enclose; where there is no rule on a side, the region that is looked at ends it. A grid is a table where three faces
and more stand wall to wall, with text on one baseline, in three rows, and most walls run through most rows. It is
columns of prose where every column holds paragraphs that fill it: a newspaper, cards, notes in frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from docling_core.types.doc import BoundingBox, CoordOrigin

from daemon.engine.lanes import Piece, in_rows
from daemon.engine.pages import Line
from daemon.engine.regions import union
from daemon.engine.rules import Rule, Rules, near

#: Rules that are so near touch, and two strokes of a double rule, in points.
TOUCH_PT = 3.0
#: Faces wall to wall in a row of a table, and such rows.
_LEAST_COLUMNS, _LEAST_ROWS = 3, 3
#: Texts of a row are so near to one baseline, in heights of a line.
_ONE_BASELINE = 0.4
#: An underline is nearer to the middle of its text than the edge of the box, by so many heights of a line.
_UNDERLINE = 0.15
#: Share of a table's walls that its rows have on average; fields of a form are as wide as what is asked.
_IN_LINE = 0.6
#: Lines of a paragraph in one face; they fill this share of it, and are so many times as long as they are high.
_LEAST_LINES, _FILLS, _LONG = 4, 0.6, 8.0
#: Its lines begin so many heights of a line from one left edge; one line of so many may begin anywhere.
_INDENT, _FEW = 2.0, 8
#: Share of a column's lines that are in paragraphs.
_MOST_PROSE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """A part of a page between rules, with the lines of text in it, which are at least one."""

    box: BoundingBox
    #: Whether rules are its sides, and its top and bottom too.
    walled: bool
    closed: bool
    lines: list[Line]

    @property
    def is_prose(self) -> bool:
        """Whether it holds a paragraph that fills it, from one left edge; labels beside a text have another."""
        if not self.walled or len(self.lines) < _LEAST_LINES:
            return False
        height, width = median(line.box.height for line in self.lines), median(line.box.width for line in self.lines)
        lefts = sorted(line.box.l for line in self.lines)
        edge = lefts[len(lefts) // 2] - lefts[len(lefts) // _FEW] <= _INDENT * height
        return bool(edge and width >= max(_LONG * height, _FILLS * self.box.width))


def faces_of(lines: Sequence[Line], rules: Rules, around: BoundingBox) -> list[Face]:
    """The faces that hold these lines, none of which a rule runs through; `around` is all that is looked at."""
    found: dict[tuple[float, ...], Face] = {}
    for line in lines:
        face = _face(line, rules, around)
        found.setdefault(face.box.as_tuple(), face).lines.append(line)
    return list(found.values())


def _face(line: Line, rules: Rules, around: BoundingBox) -> Face:
    x, y = (line.box.l + line.box.r) / 2, (line.box.t + line.box.b) / 2
    beside = [rule.at for rule in rules.down if rule.covers(y, TOUCH_PT)]
    left = max((at for at in beside if at <= x), default=None)
    right = min((at for at in beside if at > x), default=None)
    over = [rule for rule in rules.across if rule.covers(x, 0.0)]
    left, right = _within(_ends(over, line.box), left, right)
    walled = left is not None or right is not None
    sides = (around.l if left is None else left, around.r if right is None else right)
    whole = [rule.at for rule in over if rule.covers(sides[0], TOUCH_PT) and rule.covers(sides[1], TOUCH_PT)]
    top, bottom = max((at for at in whole if at <= y), default=None), min((at for at in whole if at > y), default=None)
    box = BoundingBox(
        l=sides[0],
        t=around.t if top is None else top,
        r=sides[1],
        b=around.b if bottom is None else bottom,
        coord_origin=CoordOrigin.TOPLEFT,
    )
    return Face(box=box, walled=walled, closed=None not in (left, right, top, bottom), lines=[])


def _within(
    inner: tuple[float, float] | None, left: float | None, right: float | None
) -> tuple[float | None, float | None]:
    """The sides of a frame that lies between two others, or these."""
    if inner is None or (left is not None and inner[0] < left) or (right is not None and inner[1] > right):
        return left, right
    return inner


def _ends(over: Sequence[Rule], text: BoundingBox) -> tuple[float, float] | None:
    """The sides of a low frame, too low for its own to be seen: rules above and below that begin and end alike.

    Of more such rules, one frame below the other, the first two are a frame, and the next two. What runs through the
    box of a text is its underline.
    """
    slack, y = _UNDERLINE * text.height, (text.t + text.b) / 2
    above = max((rule for rule in over if rule.at <= y), key=lambda rule: rule.at, default=None)
    below = min((rule for rule in over if rule.at > y), key=lambda rule: rule.at, default=None)
    if above is None or below is None or above.at > text.t + slack or below.at < text.b - slack:
        return None
    alike = [r for r in over if max(abs(above.start - r.start), abs(above.end - r.end)) <= TOUCH_PT]
    upper = sum(rule.at <= y for rule in alike)
    return (above.start, above.end) if below in alike and upper % 2 == 1 else None


def are_columns_of_prose(faces: Iterable[Face]) -> bool:
    """Whether each column of these faces, those over several columns apart, is mostly paragraphs."""
    columns: dict[tuple[float, float], list[Face]] = {}
    for face in faces:
        columns.setdefault((face.box.l, face.box.r), []).append(face)
    narrow = [
        held
        for (left, right), held in columns.items()
        if not any(left <= low and high <= right and (low, high) != (left, right) for low, high in columns)
    ]
    return bool(narrow) and all(_is_mostly_prose(held) for held in narrow)


def _is_mostly_prose(column: Sequence[Face]) -> bool:
    lines = sum(len(face.lines) for face in column)
    return sum(len(face.lines) for face in column if face.is_prose) > _MOST_PROSE * lines


def table_among(faces: Sequence[Face], rules: Rules) -> BoundingBox | None:
    """Where the table is that these faces make, or None; a frame around more than the table is no part of it."""
    rows = _rows(faces, _LEAST_COLUMNS)
    if len(rows) < _LEAST_ROWS or not _are_in_line(rows, rules):
        return None
    return _with_rows_beside(union(face.box for row in rows for face in row), faces)


def are_uneven(faces: Sequence[Face], rules: Rules) -> bool:
    """Whether these faces stand in rows, and each row has walls of its own: as a table it would be all merged cells."""
    rows = _rows(faces, 2)
    return len(rows) >= _LEAST_ROWS and not _are_in_line(rows, rules)


def _rows(faces: Sequence[Face], least: int) -> list[list[Face]]:
    """Rows of so many faces at least, wall to wall; one for each line of text."""
    by_piece = [(Piece(text="", box=line.box), face) for face in faces for line in face.lines]
    owners = {id(piece): face for piece, face in by_piece}
    rows = [_wall_to_wall(row, owners) for row in in_rows(piece for piece, _ in by_piece)]
    return [row for row in rows if len(row) >= least]


def _wall_to_wall(row: Sequence[Piece], owners: dict[int, Face]) -> list[Face]:
    """The most faces in a row that share walls, of those with text on the same baseline."""
    runs: list[list[Face]] = [[]]
    last: Piece | None = None
    for piece in row:
        face = owners[id(piece)]
        level = last is None or abs(piece.box.b - last.box.b) <= _ONE_BASELINE * piece.box.height
        if runs[-1] and face is runs[-1][-1]:
            continue
        if not level or (runs[-1] and abs(face.box.l - runs[-1][-1].box.r) > TOUCH_PT):
            runs.append([])
        runs[-1].append(face)
        last = piece
    return max(runs, key=len)


def _are_in_line(rows: Sequence[Sequence[Face]], rules: Rules) -> bool:
    """Whether most walls of the table run through most of its rows."""
    box = union(face.box for row in rows for face in row)
    walls = near((wall for row in rows for face in row for wall in (face.box.l, face.box.r)), float, TOUCH_PT)
    places = [(min(group), max(group)) for group in walls]
    drawn = [
        sum(
            any(low - TOUCH_PT <= rule.at <= high + TOUCH_PT and rule.covers(_middle(row), 0.0) for rule in rules.down)
            or box.l in (low, high)
            or box.r in (low, high)
            for low, high in places
        )
        for row in rows
    ]
    return sum(drawn) >= _IN_LINE * len(places) * len(rows)


def _middle(row: Sequence[Face]) -> float:
    box = row[0].lines[0].box
    return float(box.t + box.b) / 2


def _with_rows_beside(table: BoundingBox, faces: Sequence[Face]) -> BoundingBox:
    """The table with the faces above and below that are as wide or narrower, and no higher than it is."""
    grown = True
    while grown:
        beside = [
            face.box
            for face in faces
            if min(abs(face.box.b - table.t), abs(face.box.t - table.b)) <= TOUCH_PT
            and face.box.l >= table.l - TOUCH_PT
            and face.box.r <= table.r + TOUCH_PT
            and face.box.height <= table.height
        ]
        larger = union([table, *beside])
        grown = larger.height > table.height + TOUCH_PT
        table = larger
    return table
