"""Code on a page: told by its pitch and its signs, written with its lines and columns.

Engine, but pure: clusters and their cells in; places are points with the origin at the top left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from docling.datamodel.base_models import Cluster
from docling_core.types.doc import BoundingBox, DocItemLabel
from docling_core.types.doc.page import TextCell

#: A line in a fixed pitch is as wide as its letters, up to this part of one, or as these and some blanks more: the
#: parser makes one of several. Lines of one length say nothing: justified ones are.
_SAME_PITCH = 0.1
_MOST_FIXED = 0.7
_UNLIKE = 1.2
_SEVERAL = 3
#: Share of a code block's letters that are such signs; running prose has below 0.02.
_CODE_SIGNS = frozenset("_={}[]()<>;|\\/*#$%&+'\"")
_LEAST_CODE_SIGNS = 0.05


def is_code(cluster: Cluster) -> bool:
    """Whether a paragraph is set in a fixed pitch, in several lines, and holds the signs of code."""
    cells = [cell for cell in cluster.cells if cell.text.strip()]
    if cluster.label is not DocItemLabel.TEXT or len(cells) < _SEVERAL or any(cell.from_ocr for cell in cells):
        return False
    text = "".join(cell.text for cell in cells)
    letters = len(text.replace(" ", ""))
    if sum(sign in _CODE_SIGNS for sign in text) < _LEAST_CODE_SIGNS * letters:
        return False
    pitch = _pitch(cells)
    fixed = [len(cell.text) for cell in cells if _is_fixed(cell, pitch)]
    return (
        len(rows(cells)) > 1
        and len(fixed) >= _SEVERAL
        and sum(fixed) >= _MOST_FIXED * len(text)
        and max(fixed) >= _UNLIKE * min(fixed)
    )


def _is_fixed(cell: TextCell, pitch: float) -> bool:
    """Whether the line is as wide as its letters, each one pitch, and as the blanks that may have been lost."""
    more = float(cell.to_bounding_box().width) / pitch - len(cell.text)
    lost = max(round(more), 0) if " " in cell.text.strip() else 0
    return abs(more - lost) <= _SAME_PITCH


def _width_of_letter(cell: TextCell) -> float:
    return float(cell.to_bounding_box().width / len(cell.text))


def _pitch(cells: Sequence[TextCell]) -> float:
    """The width of one letter: what a third of them have at most, since lost blanks only make a line wider."""
    widths = sorted(chain.from_iterable([_width_of_letter(cell)] * len(cell.text) for cell in cells))
    return widths[len(widths) // 3]


def code_text(cells: Sequence[TextCell]) -> str:
    """The lines of a code block, each cell at the column where it stands on the page."""
    pitch = _pitch(cells)
    left = min(cell.to_bounding_box().l for cell in cells)
    lines = []
    for row in rows(cells):
        line = ""
        for cell in row:
            column = round((cell.to_bounding_box().l - left) / pitch)
            line = line.ljust(max(column, len(line) + bool(line))) + cell.text
        lines.append(line.rstrip())
    return "\n".join(lines)


def rows(cells: Sequence[TextCell]) -> list[list[TextCell]]:
    """Cells by line, from top to bottom, each line from left to right."""
    result: list[list[tuple[BoundingBox, TextCell]]] = []
    placed = [(cell.to_bounding_box(), cell) for cell in cells]
    for box, cell in sorted(placed, key=lambda one: (one[0].t, one[0].l)):
        if result and (box.t + box.b) / 2 < result[-1][0][0].b:
            result[-1].append((box, cell))
        else:
            result.append([(box, cell)])
    return [[cell for _, cell in sorted(row, key=lambda one: float(one[0].l))] for row in result]
