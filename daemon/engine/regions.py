"""Geometry of regions on a page: which overlap, which lines belong together, which picture hides text.

Engine, but pure: boxes in, boxes out, all in points with the origin at the top left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from docling.datamodel.base_models import Cluster
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel, Size

from daemon.engine.pages import Line

#: A picture of whose area text lines cover more than this is text with something around it.
_TEXT_IN_PICTURE = 0.15
#: Fewer characters are a label or a logo.
LEAST_TEXT = 20
#: A line of so many characters is prose, and no label.
_PROSE = 25
#: Strips of one image are no farther apart, and their ends no farther out of line.
_SEAM_PT = 1.0
#: What Docling's Markdown leaves out.
_FURNITURE = frozenset({DocItemLabel.PAGE_HEADER, DocItemLabel.PAGE_FOOTER})


def union(boxes: Iterable[BoundingBox]) -> BoundingBox:
    """The smallest box around all; there must be one."""
    listed = list(boxes)
    return BoundingBox(
        l=min(b.l for b in listed),
        t=min(b.t for b in listed),
        r=max(b.r for b in listed),
        b=max(b.b for b in listed),
        coord_origin=CoordOrigin.TOPLEFT,
    )


def merge_clusters(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Drop what repeats: of two boxes that lie in each other, the surer one stays, grown where both agree.

    A network that is asked for every class by itself reports one paragraph several times. It does not grow over what
    else was found: a less sure box around two columns is neither of them.
    """
    kept: list[Cluster] = []
    for cluster in sorted(clusters, key=lambda c: (-c.confidence, c.bbox.t, c.bbox.l)):
        for other in kept:
            if _mostly_within(cluster.bbox, other.bbox) or _mostly_within(other.bbox, cluster.bbox):
                if cluster.label == other.label:
                    grown = union((cluster.bbox, other.bbox))
                    if not any(_mostly_within(third.bbox, grown) for third in kept if third is not other):
                        other.bbox = grown
                    break
                if DocItemLabel.PICTURE not in {cluster.label, other.label}:
                    break
        else:
            kept.append(cluster)
    for number, cluster in enumerate(kept):
        cluster.id = number
    return kept


def disjoint(boxes: Sequence[BoundingBox]) -> list[BoundingBox]:
    """Images that overlap, or are strips of one, are joined until none does: a figure is often saved in strips."""
    pending = list(boxes)
    result: list[BoundingBox] = []
    while pending:
        box = pending.pop()
        touching = [other for other in result if box.overlaps(other) or _are_strips(box, other)]
        if touching:
            result = [other for other in result if other not in touching]
            pending.append(union([box, *touching]))
        else:
            result.append(box)
    return sorted(result, key=lambda b: (b.t, b.l))


def _are_strips(a: BoundingBox, b: BoundingBox) -> bool:
    """Whether two boxes meet along a whole side of both."""
    below = max(abs(a.l - b.l), abs(a.r - b.r), max(a.t, b.t) - min(a.b, b.b))
    beside = max(abs(a.t - b.t), abs(a.b - b.b), max(a.l, b.l) - min(a.r, b.r))
    return bool(min(below, beside) <= _SEAM_PT)


def free_text_from_pictures(clusters: Sequence[Cluster], lines: Sequence[Line], *, alone: bool) -> list[Cluster]:
    """The clusters without those pictures that are really text: Docling's Markdown leaves out a picture's text.

    With `alone` the lines are the only text of the page, and pictures that hold all of it are left out too. On a page
    with other text, short lines are the labels of a chart, a map or a screen, which belong to their picture.
    """
    pictures = [c for c in clusters if c.label is DocItemLabel.PICTURE]
    hidden = [line for line in lines if any(_mostly_within(line.box, c.bbox) for c in pictures)]
    if alone and len(hidden) == len(lines):
        return [c for c in clusters if c not in pictures or not any(_mostly_within(x.box, c.bbox) for x in lines)]
    read = lines if alone else [line for line in lines if len(line.text) >= _PROSE]
    return [
        c
        for c in clusters
        if c not in pictures or not (_is_text(c.bbox, read) or (alone and _holds_paragraph(c.bbox, lines)))
    ]


def keep_text_of_bare_page(clusters: Sequence[Cluster]) -> None:
    """Where all text of a page was taken for header or footer, it is the page's text after all; in place."""
    texts = [c for c in clusters if c.label is not DocItemLabel.PICTURE]
    if texts and all(c.label in _FURNITURE for c in texts):
        for cluster in texts:
            cluster.label = DocItemLabel.TEXT


def paragraphs(lines: Sequence[Line]) -> list[BoundingBox]:
    """Boxes around lines that follow each other closely: paragraphs of text that no layout box holds."""
    groups: list[list[BoundingBox]] = []
    for box in sorted((line.box for line in lines), key=lambda b: (b.t, b.l)):
        for group in groups:
            if follows(group[-1], box):
                group.append(box)
                break
        else:
            groups.append([box])
    return [union(group) for group in groups]


def in_order(lines: Sequence[Line]) -> list[Line]:
    """Lines from top to bottom, those side by side from left to right."""
    ordered: list[Line] = []
    row: list[Line] = []
    for line in sorted(lines, key=lambda x: (x.box.t + x.box.b, x.box.l)):
        if row and (line.box.t + line.box.b) / 2 > row[0].box.b:
            ordered += sorted(row, key=lambda x: x.box.l)
            row = []
        row.append(line)
    return ordered + sorted(row, key=lambda x: x.box.l)


def covered_share(box: BoundingBox, others: Iterable[BoundingBox]) -> float:
    """Share of `box` that `others` cover, overlaps among them counted twice."""
    return float(sum(box.intersection_area_with(other) for other in others) / max(box.area(), 1e-6))


def whole(size: Size) -> BoundingBox:
    """The page itself."""
    return BoundingBox(l=0, t=0, r=size.width, b=size.height, coord_origin=CoordOrigin.TOPLEFT)


def _mostly_within(inner: BoundingBox, outer: BoundingBox) -> bool:
    return bool(inner.area() > 0 and inner.intersection_over_self(outer) > 0.7)  # noqa: PLR2004 - most of it


def _is_text(box: BoundingBox, lines: Sequence[Line]) -> bool:
    inside = [line for line in lines if _mostly_within(line.box, box)]
    if sum(len(line.text) for line in inside) < LEAST_TEXT:
        return False
    return covered_share(box, (line.box for line in inside)) >= _TEXT_IN_PICTURE


def _holds_paragraph(box: BoundingBox, lines: Sequence[Line]) -> bool:
    """Whether lines of prose follow each other in a box: no label has so many."""
    prose = [line.box for line in lines if len(line.text) >= _PROSE and _mostly_within(line.box, box)]
    starts = {n: [m for m, lower in enumerate(prose) if follows(upper, lower)] for n, upper in enumerate(prose)}
    return any(starts[m] for below in starts.values() for m in below)


def follows(upper: BoundingBox, lower: BoundingBox) -> bool:
    """Whether `lower` is the next line of the same paragraph: near, about as high, and below most of it."""
    height = min(upper.height, lower.height)
    shared = min(upper.r, lower.r) - max(upper.l, lower.l)
    near = -0.5 * height < lower.t - upper.b < 0.8 * height
    alike = max(upper.height, lower.height) < 1.6 * height
    return bool(near and alike and shared > 0.5 * min(upper.width, lower.width))
