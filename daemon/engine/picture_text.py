"""Text at the edge of a picture, and captions inside one.

Engine, but pure: clusters with their cells in, clusters out; no cell is lost and none is in two clusters. The layout
network draws a picture's box around most of its labels: those that stand half outside were paragraphs of one letter.
It also draws one box around two figures that stand close, with the caption of the upper one between them, and a
caption is no label. What belongs to a picture is in the lossless JSON below it, and not in the Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from docling.datamodel.base_models import Cluster
from docling_core.types.doc import DocItemLabel

from daemon.engine.listings import rows
from daemon.engine.regions import LEAST_TEXT, union

#: A short line with this share of it in a picture is its label; Docling gives it what lies in it by 0.8.
_PARTLY = 0.4
NUMBERED_CAPTION = re.compile(
    r"^[\[(<]?\s*(?:Table|Tab\.|Figure|Fig\.|Tabelle|Abbildung|Abb\.|Tableau|Tabla|Tabella|Figura|Figur|Tabell|표|그림|図|表|图)"
    r"\s*\d+",
    re.IGNORECASE,
)


def settle(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The clusters of one page, captions freed from pictures, and labels given to them; new ones have ids above all."""
    result: list[Cluster] = []
    for cluster in clusters:
        result += _cut_at_captions(cluster)
    first = max((one.id for cluster in clusters for one in (cluster, *cluster.children)), default=-1) + 1
    known = {id(cluster) for cluster in clusters} | {id(child) for cluster in clusters for child in cluster.children}
    for number, cluster in enumerate(cluster for cluster in result if id(cluster) not in known):
        cluster.id = first + number
    return _with_labels(result)


def _cut_at_captions(cluster: Cluster) -> list[Cluster]:
    """A picture as it is, or what of it stands above and below each caption in it, and the captions."""
    captions = sorted((c for c in cluster.children if _is_caption(c)), key=lambda c: float(c.bbox.t))
    if cluster.label is not DocItemLabel.PICTURE or not captions:
        return [cluster]
    parts: list[Cluster] = []
    whole = cluster.bbox
    top, rest = float(whole.t), [c for c in cluster.children if not _is_caption(c)]
    for caption in [*captions, None]:
        bottom = float(whole.b if caption is None else caption.bbox.t)
        inside = [c for c in rest if caption is None or c.bbox.t + c.bbox.b < 2 * bottom]
        rest = [c for c in rest if c not in inside]
        if inside:
            box = whole.model_copy(update={"t": top, "b": bottom})
            part = cluster if not parts else cluster.model_copy()
            part.bbox = union((box, *(c.bbox for c in inside)))
            part.children, part.cells = inside, [cell for c in inside for cell in c.cells]
            parts.append(part)
        if caption is not None:
            top = float(caption.bbox.b)
    if not parts:
        cluster.children, cluster.cells = [], []
        parts.append(cluster)
    return [*parts, *captions]


def _is_caption(cluster: Cluster) -> bool:
    text = " ".join(cell.text for cell in cluster.cells)
    return cluster.label is DocItemLabel.CAPTION and NUMBERED_CAPTION.match(text) is not None


def _with_labels(clusters: Sequence[Cluster]) -> list[Cluster]:
    """The clusters without short lines that stand partly in a picture, which has them."""
    pictures = [cluster for cluster in clusters if cluster.label is DocItemLabel.PICTURE]
    places = [picture.bbox for picture in pictures]
    kept: list[Cluster] = []
    for cluster in clusters:
        shares = [cluster.bbox.intersection_over_self(place) for place in places] if _is_short(cluster) else []
        if max(shares, default=0.0) < _PARTLY:
            kept.append(cluster)
            continue
        picture = pictures[shares.index(max(shares))]
        picture.children = [*picture.children, cluster]
        picture.cells = [*picture.cells, *cluster.cells]
        picture.bbox = union((picture.bbox, cluster.bbox))
    return kept


def _is_short(cluster: Cluster) -> bool:
    """Whether a block is one line of less than a sentence, and no caption."""
    text = " ".join(cell.text for cell in cluster.cells)
    return (
        cluster.label is DocItemLabel.TEXT
        and 0 < len(text) < LEAST_TEXT
        and len(rows(cluster.cells)) == 1
        and not NUMBERED_CAPTION.match(text)
    )
