"""Lines of a region as they are read: right-to-left pieces joined, no blanks between lines of Chinese and Japanese.

Engine. Docling joins a region's cells with blanks, in the order in which the parser found them. That is right for
Latin text, whose regions stay as they are; elsewhere the cells are replaced before assembly, one for each line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from docling.datamodel.base_models import Cluster
from docling.models.base_layout_model import TEXT_ELEM_LABELS
from docling_core.types.doc.page import BoundingRectangle, TextCell

from daemon.engine import bidi
from daemon.engine.regions import union

#: East Asian widths of characters between which a line ends without a blank (CSS Text Module Level 3, section 4.1.2).
_WIDE = frozenset({"W", "F", "H"})


def mend(clusters: Iterable[Cluster]) -> None:
    """Give every region of text, and those inside regions, the cells that are its lines; in place."""
    for cluster in clusters:
        mend(cluster.children)
        if cluster.label not in TEXT_ELEM_LABELS or len(cluster.cells) == 0:
            continue
        if bidi.holds_right_to_left("".join(cell.text for cell in cluster.cells)):
            cluster.cells = _bidirectional_lines(cluster.cells)
        cluster.cells = _without_breaks(cluster.cells)


def _bidirectional_lines(cells: Sequence[TextCell]) -> list[TextCell]:
    """One cell a line; the direction of all lines is that of most of the region's letters."""
    right_to_left = bidi.is_right_to_left("".join(cell.text for cell in cells))
    rows = _rows([cell for cell in cells if cell.text.strip()])
    texts = [bidi.letters(bidi.line_text([_piece(cell) for cell in row], right_to_left=right_to_left)) for row in rows]
    if right_to_left:
        texts = bidi.with_pairs(texts)
    return [_joined(row, text) for row, text in zip(rows, texts, strict=True)]


def _rows(cells: Iterable[TextCell]) -> list[list[TextCell]]:
    """Cells by line, from top to bottom: a cell whose middle lies within a line's height belongs to that line."""
    rows: list[tuple[float, list[TextCell]]] = []
    for cell in sorted(cells, key=lambda c: (c.to_bounding_box().t + c.to_bounding_box().b, c.index)):
        box = cell.to_bounding_box()
        bottom, row = rows[-1] if rows else (-1.0, [])
        if row and (box.t + box.b) / 2 < bottom:
            row.append(cell)
        else:
            rows.append((box.b, [cell]))
    return [row for _, row in rows]


def _piece(cell: TextCell) -> bidi.Piece:
    box = cell.to_bounding_box()
    return bidi.Piece(text=cell.text.strip(), left=box.l, right=box.r, height=box.height)


def _without_breaks(cells: list[TextCell]) -> list[TextCell]:
    """Consecutive cells as one where no blank may come between them."""
    joined: list[TextCell] = []
    for cell in cells:
        if joined and _close_up(joined[-1].text.rstrip(), cell.text.lstrip()):
            before = joined.pop()
            joined.append(_joined([before, cell], before.text.rstrip() + cell.text.lstrip()))
        else:
            joined.append(cell)
    return joined


def _close_up(before: str, after: str) -> bool:
    return bool(before and after) and _wide(before[-1]) and _wide(after[0])


def _wide(char: str) -> bool:
    """Whether a character is of a writing without blanks; Korean has them."""
    return unicodedata.east_asian_width(char) in _WIDE and not unicodedata.name(char, "").startswith("HANGUL")


def _joined(cells: Sequence[TextCell], text: str) -> TextCell:
    """The first cell with the text and the place of all."""
    box = union(cell.to_bounding_box() for cell in cells)
    return cells[0].model_copy(update={"text": text, "rect": BoundingRectangle.from_bounding_box(box)})
