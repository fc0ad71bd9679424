"""Figures on a page that has text of its own: images are pictures, and a "picture" without any image is text.

Engine. The layout network sees text boxes: an image that no text surrounds closely has no region of its own, and words
that stand alone are often called a picture. The page itself knows where images and drawings lie. Boxes are points
with the origin at the top left.
"""

from __future__ import annotations

from collections.abc import Sequence

from docling.datamodel.base_models import Cluster
from docling_core.types.doc import BoundingBox, DocItemLabel

from daemon.engine.pages import SourcePage
from daemon.engine.regions import covered_share, disjoint

#: Smaller images are decoration: a logo, a rule, a bullet.
_LEAST_EDGE_PT = 36.0
_LEAST_AREA_PT2 = 5_000.0
#: So many strips of one figure are joined, no more.
_MOST_IMAGES = 500
#: A larger share of the page is a scan or a background, and no figure on a page.
_MOST_OF_PAGE = 0.5
#: With this share of it under text, or with a whole paragraph on it, an image is that text's background.
_BACKGROUND = 0.1
#: An image that lies in a region of the layout by this share has a region.
_HAS_REGION = 0.5
#: Lines of this height over the page's median are a heading.
_HEADING_HEIGHT = 1.5
_GRAPHIC = frozenset({DocItemLabel.PICTURE, DocItemLabel.TABLE, DocItemLabel.DOCUMENT_INDEX})


def with_figures(clusters: list[Cluster], page: SourcePage) -> list[Cluster]:
    """The clusters, with one more for each figure that has none, and without pictures of nothing but text."""
    images = disjoint(_not_too_many(list(page.get_bitmap_rects())))
    texts = [cell.to_bounding_box() for cell in page.get_visible_text_cells()]
    if any(cluster.label is DocItemLabel.PICTURE for cluster in clusters):
        shapes = page.get_connected_shape_bounding_boxes()
        whole = page.get_size().width * page.get_size().height
        if shapes is not None:
            # A frame around most of the page says nothing about what is in it.
            _name_text(clusters, [box for box in (*images, *shapes) if box.area() < _MOST_OF_PAGE * whole], texts)
    return clusters + _figures(clusters, images, texts, page)


def _not_too_many(images: Sequence[BoundingBox]) -> list[BoundingBox]:
    """The images; of very many only those that are figures by themselves, since joining strips takes their square."""
    if len(images) <= _MOST_IMAGES:
        return list(images)
    return [box for box in images if min(box.width, box.height) >= _LEAST_EDGE_PT][:_MOST_IMAGES]


def _figures(
    clusters: Sequence[Cluster], images: Sequence[BoundingBox], texts: Sequence[BoundingBox], page: SourcePage
) -> list[Cluster]:
    size = page.get_size()
    regions = [cluster.bbox for cluster in clusters if cluster.label in _GRAPHIC]
    blocks = [cluster.bbox for cluster in clusters if cluster.label not in _GRAPHIC]
    first = max((cluster.id for cluster in clusters), default=-1) + 1
    boxes = [
        box
        for box in images
        if min(box.width, box.height) >= _LEAST_EDGE_PT
        and _LEAST_AREA_PT2 <= box.area() <= _MOST_OF_PAGE * size.width * size.height
        and covered_share(box, texts) < _BACKGROUND
        and not any(block.intersection_over_self(box) > _HAS_REGION for block in blocks)
        and covered_share(box, regions) < _HAS_REGION
    ]
    return [
        Cluster(id=first + number, label=DocItemLabel.PICTURE, bbox=box, confidence=1.0)
        for number, box in enumerate(boxes)
    ]


def _name_text(clusters: Sequence[Cluster], drawn: Sequence[BoundingBox], texts: Sequence[BoundingBox]) -> None:
    """Pictures in which nothing is drawn are text after all, a heading where its letters are large; in place."""
    heights = sorted(box.height for box in texts)
    for cluster in clusters:
        inside = [box for box in texts if box.intersection_over_self(cluster.bbox) > _HAS_REGION]
        if cluster.label is not DocItemLabel.PICTURE or not inside or any(box.overlaps(cluster.bbox) for box in drawn):
            continue
        usual = heights[len(heights) // 2]
        large = min(box.height for box in inside) >= _HEADING_HEIGHT * usual
        cluster.label = DocItemLabel.SECTION_HEADER if large else DocItemLabel.TEXT
