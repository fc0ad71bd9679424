"""Tables of a scan that the layout network did not see, and their ruling lines show.

Engine. Points with the origin at the top left. A grid of rules with text in its cells is a table, whatever the network
called it. It is looked for only on a page whose lines stand side by side in several rows, since that costs a search.
"""

from __future__ import annotations

from collections.abc import Sequence

from docling.datamodel.base_models import Cluster
from docling.models.base_layout_model import TABLE_LABELS
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel

from daemon.engine.lanes import Piece, in_rows
from daemon.engine.pages import Line
from daemon.engine.regions import covered_share
from daemon.engine.rules import Rule, Rules

#: Lines side by side, in so many rows.
_SIDE_BY_SIDE, _LEAST_ROWS = 3, 3
#: Rules each way, of a table of two columns and two rows.
_LEAST_RULES = 3
#: Rules that are so near touch, in points.
_TOUCH_PT = 3.0
#: More rules than this are no table.
_MOST_RULES = 500
#: A region by this share in a table is the table's.
_WITHIN = 0.7


def stand_side_by_side(lines: Sequence[Line]) -> bool:
    """Whether the lines of a page are worth a search for rules."""
    rows = in_rows(Piece(text="", box=line.box) for line in lines)
    return sum(len(row) >= _SIDE_BY_SIDE for row in rows) >= _LEAST_ROWS


def with_ruled_tables(clusters: Sequence[Cluster], rules: Rules, lines: Sequence[Line]) -> list[Cluster]:
    """The clusters, with one more for each ruled table that has none; what lies in it, pictures too, is the table's."""
    known = [cluster.bbox for cluster in clusters if cluster.label in TABLE_LABELS]
    found = [
        box
        for box in _grids(rules)
        if covered_share(box, known) < 1 - _WITHIN
        and stand_side_by_side([line for line in lines if line.box.intersection_over_self(box) > _WITHIN])
    ]
    if not found:
        return list(clusters)
    kept = [c for c in clusters if not any(c.bbox.intersection_over_self(box) > _WITHIN for box in found)]
    first = max((cluster.id for cluster in clusters), default=-1) + 1
    return kept + [
        Cluster(id=first + number, label=DocItemLabel.TABLE, bbox=box, confidence=1.0)
        for number, box in enumerate(found)
    ]


def _grids(rules: Rules) -> list[BoundingBox]:
    """Boxes of rules that touch each other, at least three each way."""
    if len(rules.across) + len(rules.down) > _MOST_RULES:
        return []
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
    return across.covers(down.at, _TOUCH_PT) and down.covers(across.at, _TOUCH_PT)
