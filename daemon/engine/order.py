"""Docling's reading order, with columns from the right where writing runs so, and with headings in their column.

Engine. Its predictor takes columns from the left. A page most of whose letters run from right to left is shown to it
mirrored, its ruled lines too. It also takes a short heading at the left, with nothing right above it, for the top of
the page, before a title in the middle: it is shown as wide as the text below. What comes out are the elements
themselves, which nobody has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from docling.datamodel.base_models import Page
from docling.datamodel.document import ConversionResult
from docling.models.stages.reading_order.readingorder_model import ReadingOrderModel
from docling_core.types.doc import BoundingBox, DocItemLabel

from daemon.engine import bidi

_HEADINGS = frozenset({DocItemLabel.SECTION_HEADER, DocItemLabel.TEXT})
_HEADED = frozenset({DocItemLabel.TEXT, DocItemLabel.LIST_ITEM})
#: A heading's height at the most, and how many of its heights the text begins below it.
_MOST_HEIGHT_PT, _NEAR = 20.0, 2.0
#: Most of a page's letters.
_MOST = 0.5


class ReadingOrder(ReadingOrderModel):  # type: ignore[misc]
    """Docling's stage."""

    def _assembled_to_readingorder_elements(self, conv_res: ConversionResult) -> list[Any]:
        elements = super()._assembled_to_readingorder_elements(conv_res)
        texts: dict[int, list[str]] = {}
        for element in elements:
            texts.setdefault(element.page_no, []).append(element.text)
        mirrored = {number for number, said in texts.items() if bidi.share_of_right_to_left(said) > _MOST}
        for element in elements:
            if element.page_no in mirrored:
                width = element.page_size.width
                element.l, element.r = width - element.r, width - element.l
        for page in conv_res.pages:
            if page.page_no in mirrored:
                _mirror_shapes(page)
        _widen_headings(elements)
        return list(elements)


def _widen_headings(elements: Sequence[Any]) -> None:
    """Let a line with nothing above it be as wide as the text that begins just below it; in bottom-left coordinates."""
    by_page: dict[int, list[Any]] = {}
    for element in elements:
        by_page.setdefault(element.page_no, []).append(element)
    for page in by_page.values():
        widths = [(element, _headed(element, page)) for element in page]
        for element, headed in widths:
            if headed is not None:
                element.l, element.r = min(element.l, headed.l), headed.r


def _headed(element: Any, page: Sequence[Any]) -> Any:
    """The text whose first line's place a heading shares, or None."""
    if element.label not in _HEADINGS or element.height > _MOST_HEIGHT_PT:
        return None
    others = [other for other in page if other is not element and other.l < element.r and other.r > element.l]
    if any(other.b >= element.t - 1 for other in others):
        return None
    return next(
        (
            other
            for other in others
            if other.label in _HEADED
            and -1 <= element.b - other.t <= _NEAR * element.height
            and abs(element.l - other.l) <= element.height
            and element.r < other.r
        ),
        None,
    )


def _mirror_shapes(page: Page) -> None:
    assert page.size is not None, "a page without a size has no elements"
    page._shape_lines = mirror(page._shape_lines, page.size.width)  # noqa: SLF001 - as Docling's own stages do
    page._shape_bounding_boxes = mirror(page._shape_bounding_boxes, page.size.width)  # noqa: SLF001


def mirror(boxes: Iterable[BoundingBox] | None, width: float) -> list[BoundingBox] | None:
    """Boxes as a mirror at the middle of a page of `width` points shows them."""
    if boxes is None:
        return None
    return [
        BoundingBox(l=width - box.r, t=box.t, r=width - box.l, b=box.b, coord_origin=box.coord_origin) for box in boxes
    ]
