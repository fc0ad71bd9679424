"""Blocks of text made what they are: code, single list items, headings within paragraphs, equations at a page's edge.

Engine, but pure: clusters with their cells in, clusters out. The layout network sees boxes and not letters; what can
be told from the letters is told here. No cell is lost and none is in two clusters. Right after Docling's layout
post-processing, so that cells are assigned; cells are in the order of the parser.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from docling.datamodel.base_models import Cluster
from docling_core.types.doc import BoundingBox, DocItemLabel
from docling_core.types.doc.page import PdfTextCell, TextCell

from daemon.engine import glyphs, headings, picture_text
from daemon.engine.listings import is_code, rows
from daemon.engine.regions import union

#: What starts an item by itself: one sign that is no letter and no digit, or a number with a bracket or a point.
_MARKER = re.compile(r"^(?:([^\w\s(\[\"'«„“<$€£¥#@&~=])|(\(?\d{1,3}[.)])|(\(?[a-zA-Z][.)]))\s+\S")
#: Letters that stand for a bullet in the usual dingbat fonts (Wingdings, Zapf Dingbats), and Courier's hollow "o".
_DINGBAT = re.compile(r"^([onlqrvu])\s+\S")
#: So few items without a mark are paragraphs; more may be a list that only their places show.
_FEW_ITEMS = 2
#: A mark is a word of signs, or with a figure (a glyph's name, too), or short and closed ("(ii)", "A."), or a dingbat.
_MARK = re.compile(r"^(?:[\[(]?[^\W_]{1,4}[)\].]|\W+|\S*\d\S*|[onlqrvu])$")
#: The first is what Docling takes for a bullet; it writes the rest of the line after it.
_BULLET = "•"
_KNOWN_BULLETS = frozenset("-*+•·‣⁃►▶▸➤➢✓✔✗✘◦▪▫●○∙–—")  # noqa: RUF001 - as printed
#: An operator that stands by itself is no part of a running title or a page number.
_EQUATION = re.compile(r"\S\s+[=≤≥≈≡≠∑∫]\s+\S")
#: A heading's line ends before this share of its paragraph's width.
_SHORT_LINE = 0.8
#: And is higher than its paragraph's lines by this, where its font is not named as bold.
_LARGER = 1.15
#: A line with an initial over two lines is higher than the next by this.
_INITIAL_HEIGHT = 1.8
_TABLES = frozenset({DocItemLabel.TABLE, DocItemLabel.DOCUMENT_INDEX})
#: Their cells are those of the clusters within them.
_OTHERS_OWN = _TABLES | {DocItemLabel.PICTURE, DocItemLabel.FORM, DocItemLabel.KEY_VALUE_REGION}
_PROSE = frozenset({DocItemLabel.TEXT})


def refine(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The clusters of one page, mended; new ones have ids above all others."""
    clusters = picture_text.settle(give_to_tables(clusters))
    _name_bullets(clusters)
    _name_paragraphs(clusters)
    first = max((c.id for c in _with_children(clusters)), default=-1) + 1
    apart = glyphs.sets_accents_apart(cell.text for c in clusters for cell in c.cells)
    result: list[Cluster] = []
    for cluster in clusters:
        if is_code(cluster):
            cluster.label = DocItemLabel.CODE
        elif cluster.label not in _OTHERS_OWN:
            _compose(cluster.cells, apart=apart)
        _relabel(cluster)
        for part in _parts(cluster):
            if part is not cluster:
                part.id, first = first, first + 1
            result.append(part)
    return headings.mend(result)


def give_to_tables(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Lines that lie in a table are the table's, and no other cluster's: nothing is printed in it and below it too."""
    tables = [cluster for cluster in clusters if cluster.label in _TABLES]
    kept: list[Cluster] = []
    for cluster in clusters:
        if cluster.label in _OTHERS_OWN or not tables:
            kept.append(cluster)
            continue
        cells = [(cell, _owner(cell, tables)) for cell in cluster.cells]
        for cell, owner in cells:
            if owner is not None and all(cell.index != own.index for own in owner.cells):
                owner.cells.append(cell)
        cluster.cells = [cell for cell, owner in cells if owner is None]
        if cluster.cells or not cells:
            kept.append(cluster)
    return kept


def _owner(cell: TextCell, tables: Sequence[Cluster]) -> Cluster | None:
    """The table that holds more than half of a line."""
    box = cell.to_bounding_box()
    return next((table for table in tables if box.intersection_over_self(table.bbox) > 0.5), None)  # noqa: PLR2004 - half


def _with_children(clusters: Sequence[Cluster]) -> list[Cluster]:
    return [one for cluster in clusters for one in (cluster, *cluster.children)]


def _compose(cells: Sequence[TextCell], *, apart: bool) -> None:
    """Put glyphs together that are one letter; `apart` says that this page sets accents apart."""
    for cell in cells:
        cell.text = glyphs.composed(cell.text, surely=apart)
    if len(cells) > 1:
        heights = [cell.to_bounding_box().height for cell in cells[:2]]
        if heights[0] > _INITIAL_HEIGHT * heights[1]:
            cells[0].text = glyphs.with_initial(cells[0].text)


def _relabel(cluster: Cluster) -> None:
    text = " ".join(cell.text for cell in cluster.cells)
    if cluster.label is DocItemLabel.PAGE_FOOTER and _EQUATION.search(text):
        # Docling would leave a formula's own text out.
        cluster.label = DocItemLabel.TEXT
    if cluster.label is DocItemLabel.SECTION_HEADER and picture_text.NUMBERED_CAPTION.match(text):
        cluster.label = DocItemLabel.CAPTION


def _parts(cluster: Cluster) -> list[Cluster]:
    """The cluster as it is, or cut between items or below a heading; the first part keeps its identity."""
    if cluster.label is DocItemLabel.LIST_ITEM:
        return _cut(cluster, _item_starts(cluster.cells), [DocItemLabel.LIST_ITEM])
    if cluster.label in _PROSE:
        starts, labels = _heading_cuts(cluster.cells)
        return _cut(cluster, starts, labels)
    return [cluster]


def _cut(cluster: Cluster, starts: Sequence[int], labels: Sequence[DocItemLabel]) -> list[Cluster]:
    """Parts that begin at these cells, the first at 0; the last label holds for all further parts."""
    if len(starts) < 2:  # noqa: PLR2004 - one part
        return [cluster]
    ends = [*starts[1:], len(cluster.cells)]
    cells = cluster.cells
    parts = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = cluster if number == 0 else cluster.model_copy(update={"children": []})
        part.label = labels[min(number, len(labels) - 1)]
        part.cells = cells[start:end]
        part.bbox = union(cell.to_bounding_box() for cell in part.cells)
        parts.append(part)
    return parts


def _heading_cuts(cells: Sequence[TextCell]) -> tuple[list[int], list[DocItemLabel]]:
    """Where lines in a font of their own stand above lines of the paragraph: headings that were taken for its text."""
    lines = rows(cells)
    whole = union(cell.to_bounding_box() for cell in cells) if cells else None
    if whole is None or [cell for line in lines for cell in line] != list(cells):
        return [0], [DocItemLabel.TEXT]
    starts, labels, at, gap = [0], [DocItemLabel.TEXT], 0, _gap(lines)
    for number, line in enumerate(lines[:-1]):
        apart = number == 0 or line[0].to_bounding_box().t - lines[number - 1][0].to_bounding_box().b > gap
        if apart and labels[-1] is DocItemLabel.TEXT and _is_heading(line, lines[number + 1], whole):
            if at:
                starts.append(at)
                labels.append(DocItemLabel.TEXT)
            labels[-1] = DocItemLabel.SECTION_HEADER
            starts.append(at + len(line))
            labels.append(DocItemLabel.TEXT)
        at += len(line)
    return starts, labels


def _gap(lines: Sequence[Sequence[TextCell]]) -> float:
    """Above this distance to the line before, in points, a line is set apart from it: twice the usual distance."""
    boxes = [line[0].to_bounding_box() for line in lines]
    if len(boxes) == 1:
        return 0.0
    gaps = sorted(lower.t - upper.b for upper, lower in itertools.pairwise(boxes))
    return max(2 * float(gaps[len(gaps) // 2]), 0.5 * float(boxes[0].height))


def _is_heading(head: Sequence[TextCell], below: Sequence[TextCell], whole: BoundingBox) -> bool:
    """Whether a line is the heading of the next one, in a paragraph of this box.

    A paragraph that only begins with a bold word fills its line, and goes on in small letters.
    """
    text, follows = " ".join(cell.text for cell in head).strip(), below[0].text.lstrip()
    return (
        _stands_out(head, below)
        and head[-1].to_bounding_box().r - whole.l < _SHORT_LINE * whole.width
        and 0 < len(text) <= headings.LONGEST_HEADING
        and text[-1] not in ".,;:-–"  # noqa: RUF001 - as printed
        and not text[0].islower()
        and not follows[:1].islower()
    )


def _stands_out(head: Sequence[TextCell], below: Sequence[TextCell]) -> bool:
    """Whether a line's font is named as a bold one and the next line's is not, or is another and larger."""
    fonts = [[c.font_name or "" for c in side if isinstance(c, PdfTextCell)] for side in (head, below)]
    if not all(fonts) or set(fonts[0]) & set(fonts[1]):
        return False
    bold = [headings.is_bold(side[0]) for side in (head, below)]
    heights = [max(c.to_bounding_box().height for c in side) for side in (head, below)]
    return bold == [True, False] or (heights[0] > _LARGER * heights[1] and bold[0] >= bold[1])


def _item_starts(cells: Sequence[TextCell]) -> list[int]:
    """Cells that begin like the first one, at the same left edge: items that were taken for one."""
    if not cells or not (kind := _kind(cells[0].text)):
        return [0]
    box = cells[0].to_bounding_box()
    return [
        index
        for index, cell in enumerate(cells)
        if _kind(cell.text) == kind and abs(cell.to_bounding_box().l - box.l) < 0.5 * box.height
    ]


def _kind(text: str) -> str:
    """What marks a line as an item's first: the sign itself, or the kind of number."""
    found = _MARKER.match(text)
    if found is None:
        return ""
    return found[1] or ("number" if found[2] else "letter")


def _name_bullets(clusters: Sequence[Cluster]) -> None:
    """Signs that stand for a bullet in their font become one: the parser reads dingbats as letters and symbols."""
    items = [c.cells[0] for c in clusters if c.label is DocItemLabel.LIST_ITEM and c.cells]
    letters = Counter(found[1] for cell in items if (found := _DINGBAT.match(cell.text)))
    for cluster in clusters:
        if cluster.label is not DocItemLabel.LIST_ITEM:
            continue
        for cell in cluster.cells:
            found = _MARKER.match(cell.text)
            sign = found[1] if found else None
            dingbat = _DINGBAT.match(cell.text)
            if (sign and sign not in _KNOWN_BULLETS and _is_symbol(cell, sign)) or (
                dingbat and letters[dingbat[1]] >= 3  # noqa: PLR2004 - no chance
            ):
                cell.text = _BULLET + cell.text[1:]


def _name_paragraphs(clusters: Sequence[Cluster]) -> None:
    """One or two items on a page, without any mark, are paragraphs that stand apart; in place."""
    items = [cluster for cluster in clusters if cluster.label is DocItemLabel.LIST_ITEM]
    firsts = [cluster.cells[0].text.split() for cluster in items if cluster.cells]
    if len(items) <= _FEW_ITEMS and not any(not words or _MARK.match(words[0]) for words in firsts):
        for cluster in items:
            cluster.label = DocItemLabel.TEXT


def _is_symbol(cell: TextCell, sign: str) -> bool:
    """Whether a line starts in a font of symbols, or with what no font could name."""
    font = cell.font_name.lower() if isinstance(cell, PdfTextCell) and cell.font_name else ""
    return (
        sign == "�" or "\ue000" <= sign <= "\uf8ff" or any(name in font for name in ("symbol", "dingbat", "wingding"))
    )
