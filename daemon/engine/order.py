"""Docling's reading order, from right to left on pages that are written so.

Engine. Its predictor takes columns from the left. A page most of whose letters run from right to left is shown to it
mirrored, its ruled lines too; what comes out are the elements themselves, which nobody has moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from docling.datamodel.base_models import Page
from docling.datamodel.document import ConversionResult
from docling.models.stages.reading_order.readingorder_model import ReadingOrderModel
from docling_core.types.doc import BoundingBox

from daemon.engine import bidi

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
        return list(elements)


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
