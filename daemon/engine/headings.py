"""Which blocks of a page are headings, told from how they are set: font, size, place beside each other.

Engine, but pure: clusters with their cells in, clusters out; no cell is lost and none is in two clusters. The layout
network sees how boxes stand to each other, and takes the short end of a paragraph for a heading, a number and its
title for two, and a title that stands in a coloured box for text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from docling.datamodel.base_models import Cluster
from docling_core.types.doc import DocItemLabel
from docling_core.types.doc.page import PdfTextCell, TextCell

from daemon.engine.listings import rows
from daemon.engine.regions import union

#: A heading has no more letters than this, and no full stop at its end.
LONGEST_HEADING = 120
#: A title is higher than its page's running text by this, and has no more letters than the second: it stands alone.
_TITLE_HEIGHT, _LONGEST_TITLE = 1.5, 40
#: A number of a section by itself.
_NUMBER = re.compile(r"^(?:\d{1,2}(?:\.\d{1,2})*|[IVX]+)[.)]?$")
#: The end of a sentence, and what begins with a number or a sign is none.
_SENTENCE = re.compile(r"^[^\W\d].*\w[.。]$", re.DOTALL)
#: A number stands before its title by so many of its heights at the most.
_NEAR = 2.0
_BOLD = ("bold", "demi", "black", "heavy")
_RUNNING = frozenset({DocItemLabel.TEXT, DocItemLabel.LIST_ITEM})
_HEADED = frozenset({DocItemLabel.TEXT, DocItemLabel.SECTION_HEADER})


def set_as(cell: TextCell) -> tuple[str, int]:
    """Font and size, whole points, of a line."""
    font = cell.font_name if isinstance(cell, PdfTextCell) else ""
    return font or "", round(cell.to_bounding_box().height)


def is_bold(cell: TextCell) -> bool:
    """Whether the name of a line's font says so."""
    return any(name in set_as(cell)[0].lower() for name in _BOLD)


def mend(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The clusters of one page: numbers joined to their titles, and sentences and titles called what they are."""
    _judge_by_running_text(clusters)
    joined = _join_numbers(clusters)
    _label_alike(joined)
    return joined


def _judge_by_running_text(clusters: Sequence[Cluster]) -> None:
    """A sentence set as the running text is no heading; a short bold line far larger is one; in place."""
    lines = [cell for cluster in clusters if cluster.label in _RUNNING for cell in cluster.cells]
    letters: Counter[tuple[str, int]] = Counter()
    for cell in lines:
        letters[set_as(cell)] += len(cell.text)
    if not letters:
        return
    usual = letters.most_common(1)[0][0]
    known = {set_as(cell)[0] for c in clusters if c.label is DocItemLabel.SECTION_HEADER for cell in c.cells}
    for cluster in clusters:
        text = _text(cluster)
        if cluster.label is DocItemLabel.SECTION_HEADER:
            if all(set_as(cell) == usual for cell in cluster.cells) and _SENTENCE.match(text):
                cluster.label = DocItemLabel.TEXT
        elif cluster.label is DocItemLabel.TEXT and _is_title(cluster, text, usual[1], known):
            cluster.label = DocItemLabel.SECTION_HEADER


def _is_title(cluster: Cluster, text: str, usual_pt: int, known: Collection[str]) -> bool:
    """Whether a block is a short line in the bold font of the page's headings (`known`), and as large."""
    return (
        1 < len(text) <= _LONGEST_TITLE
        and text[-1].isalpha()
        and len(rows(cluster.cells)) == 1
        and all(
            is_bold(c) and set_as(c)[0] in known and set_as(c)[1] >= _TITLE_HEIGHT * usual_pt for c in cluster.cells
        )
    )


def _join_numbers(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The clusters, those headings that are only a number put into the heading that they stand before."""
    heads = [c for c in clusters if c.label is DocItemLabel.SECTION_HEADER and c.cells]
    joined: set[int] = set()
    for number in heads:
        title = next((c for c in heads if c.id not in joined and _numbers(number, c)), None)
        if title is not None:
            # In the order of the parser, as all lines of a block.
            title.cells = sorted((*number.cells, *title.cells), key=lambda cell: int(cell.index))
            title.bbox = union(cell.to_bounding_box() for cell in title.cells)
            joined.add(number.id)
    return [cluster for cluster in clusters if cluster.id not in joined]


def _numbers(number: Cluster, title: Cluster) -> bool:
    """Whether a block is the number of another: on its line, close before it, and set alike."""
    if number is title or not _NUMBER.match(_text(number)) or _NUMBER.match(_text(title)):
        return False
    left, right = number.bbox, title.bbox
    return (
        0 <= right.l - left.r <= _NEAR * left.height
        and min(left.b, right.b) - max(left.t, right.t) > 0.5 * left.height
        and len({set_as(cell) for cell in (*number.cells, *title.cells)}) == 1
    )


def _label_alike(clusters: Sequence[Cluster]) -> None:
    """Short bold blocks that are set alike are all headings or all text, as most of them were; in place."""
    alike: dict[tuple[str, int, int], list[Cluster]] = {}
    for cluster in clusters:
        cells = cluster.cells
        short = cluster.label in _HEADED and cells and sum(len(cell.text) for cell in cells) <= LONGEST_HEADING
        if short and len({set_as(cell) for cell in cells}) == 1 and is_bold(cells[0]):
            alike.setdefault((*set_as(cells[0]), round(cluster.bbox.l)), []).append(cluster)
    for group in alike.values():
        labels = Counter(cluster.label for cluster in group)
        if len(group) > 2 and len(labels) > 1:  # noqa: PLR2004 - most of three at least
            for cluster in group:
                cluster.label = labels.most_common(1)[0][0]


def _text(cluster: Cluster) -> str:
    return " ".join(cell.text for cell in cluster.cells).strip()
