"""What the layout network called the regions of a scan, checked against its ruling lines.

Engine. Points with the origin at the top left. A grid of rules with text in its cells is a table, whatever the network
called it; columns of prose between rules are none, and the fields of a form are no picture: its text would be left
out. Grids are looked for only on a page whose lines stand side by side in several rows, since that costs a search.
"""

from __future__ import annotations

from collections.abc import Sequence

from docling.datamodel.base_models import Cluster
from docling.models.base_layout_model import TABLE_LABELS
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel

from daemon.engine.faces import TOUCH_PT, Face, are_columns_of_prose, are_uneven, faces_of, table_among
from daemon.engine.fields import fields_among, is_form
from daemon.engine.gutters import columns, cut_at_rules
from daemon.engine.lanes import Piece, in_rows
from daemon.engine.pages import Line
from daemon.engine.regions import covered_share
from daemon.engine.rules import Rule, Rules

#: Lines side by side, in so many rows.
_SIDE_BY_SIDE, _LEAST_ROWS = 3, 3
#: Rules each way, of a table of two columns and two rows.
_LEAST_RULES = 3
#: More rules than this are no table.
_MOST_RULES = 500
#: A rule over this share of a table's height parts its columns.
_LONG = 0.5
#: A region by this share in a table is the table's.
_WITHIN = 0.7


def stand_side_by_side(lines: Sequence[Line]) -> bool:
    """Whether the lines of a page are worth a search for rules."""
    rows = in_rows(Piece(text="", box=line.box) for line in lines)
    return sum(len(row) >= _SIDE_BY_SIDE for row in rows) >= _LEAST_ROWS


def against_rules(
    clusters: Sequence[Cluster], rules: Rules, lines: Sequence[Line]
) -> tuple[list[Cluster], list[BoundingBox]]:
    """The clusters as the rules have them, and the places in which rules part lines.

    One more for each ruled table that has none; what lies in it, pictures too, is the table's. Without tables that are
    columns of prose, and with the fields of a form in place of a picture or a table of merged cells.
    """
    if len(rules.across) + len(rules.down) > _MOST_RULES:
        return list(clusters), [cluster.bbox for cluster in clusters if cluster.label in TABLE_LABELS]
    known = [cluster.bbox for cluster in clusters if cluster.label in TABLE_LABELS]
    found: list[BoundingBox] = []
    parted = list(known)
    for box in _grids(rules):
        if covered_share(box, known) >= 1 - _WITHIN:
            continue
        faces = _faces_in(box, rules, lines)
        if are_columns_of_prose(faces):
            parted.append(box)
        elif (table := table_among(faces, rules)) is not None:
            found.append(table)
    kept, fields = [], list[BoundingBox]()
    for cluster in clusters:
        if any(cluster.bbox.intersection_over_self(box) > _WITHIN for box in found):
            continue
        faces = _faces_in(cluster.bbox, rules, lines)
        picture, table = cluster.label is DocItemLabel.PICTURE, cluster.label in TABLE_LABELS
        if is_form(faces) and (picture or (table and are_uneven(faces, rules))):
            fields += fields_among(faces)
            parted.append(cluster.bbox)
        elif not table or not _is_prose(cluster.bbox, rules, lines):
            kept.append(cluster)
    first = max((cluster.id for cluster in clusters), default=-1) + 1
    new = [*((box, DocItemLabel.TABLE) for box in found), *((box, DocItemLabel.TEXT) for box in fields)]
    return kept + [
        Cluster(id=first + number, label=label, bbox=box, confidence=1.0) for number, (box, label) in enumerate(new)
    ], parted + found


def _faces_in(box: BoundingBox, rules: Rules, lines: Sequence[Line]) -> list[Face]:
    inside = [line for line in lines if line.box.intersection_over_self(box) > _WITHIN]
    return faces_of(cut_at_rules(inside, rules, [box]), rules, box)


def _is_prose(box: BoundingBox, rules: Rules, lines: Sequence[Line]) -> bool:
    """Whether a table is columns of prose; where no long rule runs down between texts, gutters part its columns."""
    texts = [line.box for line in lines if line.box.intersection_over_self(box) > _WITHIN]
    middles = sorted((text.l + text.r) / 2 for text in texts)
    long = [rule.at for rule in rules.down if min(rule.end, box.b) - max(rule.start, box.t) >= _LONG * box.height]
    if not any(middles[0] < at < middles[-1] for at in long if middles):
        down = (Rule(at=x, start=box.t, end=box.b) for x in _gutters(texts))
        rules = Rules(across=rules.across, down=tuple(down))
    return are_columns_of_prose(_faces_in(box, rules, lines))


def _gutters(boxes: Sequence[BoundingBox]) -> list[float]:
    """Where columns of prose end that other columns of prose follow."""
    sides = columns(boxes)
    if not sides:
        return []
    at = float(sides[0].r)
    left, right = [box for box in boxes if box.l + box.r <= 2 * at], [box for box in boxes if box.l + box.r > 2 * at]
    return [*_gutters(left), at, *_gutters(right)]


def _grids(rules: Rules) -> list[BoundingBox]:
    """Boxes of rules that touch each other, at least three each way."""
    pending, boxes = set(range(len(rules.across))), []
    while pending:
        across, down = {pending.pop()}, set[int]()
        grown = True
        while grown:
            size = len(across) + len(down)
            down |= {n for n, one in enumerate(rules.down) if any(_meet(rules.across[m], one) for m in across)}
            across |= {m for m, one in enumerate(rules.across) if any(_meet(one, rules.down[n]) for n in down)}
            grown = len(across) + len(down) > size
        pending -= across
        xs, ys = {round(rules.down[n].at) for n in down}, {round(rules.across[m].at) for m in across}
        if min(len(xs), len(ys)) >= _LEAST_RULES:
            boxes.append(BoundingBox(l=min(xs), t=min(ys), r=max(xs), b=max(ys), coord_origin=CoordOrigin.TOPLEFT))
    return boxes


def _meet(across: Rule, down: Rule) -> bool:
    return across.covers(down.at, TOUCH_PT) and down.covers(across.at, TOUCH_PT)
