"""One page as all stages see it: text cells, pictures within the budget, and a way to turn it upright.

Engine. Coordinates are points with the origin at the top left, in the frame in which the page is read:
after `/Rotate`, and after `turn`. A stage that learns something that a later stage needs leaves it on the
page (`lines`, `grids`, `notes`); nothing about a page is kept anywhere else. Text never holds a lone surrogate.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from docling.backend.pdf_backend import PdfPageBackend
from docling_core.types.doc import BoundingBox, CoordOrigin, Size
from docling_core.types.doc.page import (
    BoundingRectangle,
    PdfCellRenderingMode,
    PdfPageBoundaryType,
    PdfPageGeometry,
    PdfTextCell,
    SegmentedPdfPage,
    TextCell,
)
from PIL import Image

from daemon.engine.budget import Budget, within_edge
from daemon.engine.rules import Rules
from daemon.engine.wording import clean

#: PDF rendering modes that leave no ink.
_INVISIBLE = frozenset({PdfCellRenderingMode.INVISIBLE, PdfCellRenderingMode.ONLY_CLIPPING})
#: Share of a page's letters that must run one way before the page is turned.
_MOST = 0.7


@dataclass(slots=True, kw_only=True)
class Line:
    """A line of text found in a page's picture."""

    #: Points, top-left origin.
    box: BoundingBox
    #: The line cut out of the picture, upright, RGB.
    picture: np.ndarray
    text: str = ""
    #: The recogniser's own, 0 to 1.
    confidence: float = 0.0


@dataclass(slots=True, kw_only=True)
class Grid:
    """Boundaries of one table: rows and columns lie between consecutive values, in points of the page."""

    rows: list[float]
    columns: list[float]
    #: (first row, end row, first column, end column) of each cell that was found, ends exclusive.
    cells: list[tuple[int, int, int, int]]
    #: The page's words in and around it, as MuPDF reads them: (text, box).
    words: list[tuple[str, BoundingBox]] = field(default_factory=list)
    #: What is drawn in and around it.
    rules: Rules = field(default_factory=Rules)


@dataclass(slots=True, kw_only=True)
class Notes:
    """What the account of this page will say."""

    #: Names of what read it, by role: `text`, `layout`, `ocr`, `tables`.
    engines: dict[str, str] = field(default_factory=dict)
    #: Why the page was read with less than the whole engine.
    degraded: list[str] = field(default_factory=list)
    #: Worth knowing, and no degradation.
    remarks: list[str] = field(default_factory=list)
    #: Share of the page's picture that is ink; None before anyone looked.
    ink: float | None = None


class SourcePage(PdfPageBackend):  # type: ignore[misc]
    """A page of any document; Docling's page backend with what our stages need besides."""

    def __init__(self, number: int, budget: Budget) -> None:
        #: Counted from 1.
        self.number = number
        self.budget = budget
        #: Degrees clockwise by which the page was turned to be upright.
        self.turned = 0
        #: Degrees by which the text of the page's picture slopes clockwise, after `turn`; its `lines` are straight.
        self.skew = 0.0
        self.notes = Notes()
        #: Found by the text detector; None before it ran.
        self.lines: list[Line] | None = None
        #: Places of lines in the text layer that only their picture tells.
        self.unread: list[BoundingBox] = []
        #: By cluster id.
        self.grids: dict[int, Grid] = {}
        #: What is drawn on the page, in the frame of `lines`; None before anyone looked.
        self.rules: Rules | None = None
        self._segmented: SegmentedPdfPage | None = None

    @property
    def page_no(self) -> int:
        """Docling's name for `number`."""
        return self.number

    @abstractmethod
    def picture(self, clip: BoundingBox | None = None, *, wanted: float | None = None) -> tuple[np.ndarray, float]:
        """The page, or its part `clip`, as RGB within the budget, and its pixels per point.

        `wanted` is the scale asked for; None: the scale for reading text.
        """

    @abstractmethod
    def turn(self, degrees: int) -> None:
        """Turn the page clockwise by 90, 180 or 270 degrees: its text, its pictures and its size."""

    @abstractmethod
    def read_text(self) -> SegmentedPdfPage:
        """Parse the page's own text layer; a page without one yields an empty segmented page."""

    def shapes(self) -> Any:
        """What the page draws, as docling-parse's decoder has it in this page's frame; None where nothing does."""
        return None

    def get_segmented_page(self) -> SegmentedPdfPage:
        """The text layer, parsed once, its text cleaned."""
        if self._segmented is None:
            segmented = self.read_text()
            height = self.get_size().height
            for cell in segmented.textline_cells:
                cell.to_top_left_origin(height)
                cell.text, cell.orig = clean(cell.text), clean(cell.orig)
            self._segmented = segmented
        return self._segmented

    def get_text_cells(self) -> Iterable[TextCell]:
        """Lines of the text layer, invisible ones included."""
        return list(self.get_segmented_page().textline_cells)

    def drop_text(self) -> None:
        """Put the text layer aside: from now on the page has only its picture."""
        list(self.get_bitmap_rects())  # the parser of the text knows them too
        self._segmented = empty_segmented_page(self.get_size())

    def get_visible_text_cells(self) -> list[TextCell]:
        """Lines of the text layer that leave ink."""
        return [cell for cell in self.get_text_cells() if visible(cell)]

    def get_text_in_rect(self, bbox: BoundingBox) -> str:
        """Text of the lines that lie in `bbox` by more than half."""
        inside = (c.text for c in self.get_text_cells() if c.to_bounding_box().intersection_over_self(bbox) > 0.5)  # noqa: PLR2004 - half
        return " ".join(inside)

    def get_page_image(self, scale: float = 1, cropbox: BoundingBox | None = None) -> Image.Image:
        """For Docling's own stages: the picture at `scale`, or smaller where the budget says so."""
        return Image.fromarray(self.picture(cropbox, wanted=scale)[0])

    def is_valid(self) -> bool:
        """A page that could not be opened has no instance."""
        return True

    def unload(self) -> None:
        """Let go of the parsed text and the pictures."""
        self._segmented = None
        self.lines = None

    def ink(self, clip: BoundingBox | None = None) -> float:
        """Share of pixels, 0 to 1, that stand out from their surroundings in a small picture of the page."""
        size = self.get_size()
        edge = max(size.width, size.height) if clip is None else max(clip.width, clip.height)
        picture, _ = self.picture(clip, wanted=min(1.0, 400 / max(edge, 1.0)))
        return ink_share(picture)


def visible(cell: TextCell) -> bool:
    """Whether a cell of the text layer leaves ink, and holds more than blanks."""
    if not cell.text.strip():
        return False
    return not (isinstance(cell, PdfTextCell) and cell.rendering_mode in _INVISIBLE)


def ink_share(picture: np.ndarray) -> float:
    """Share of pixels that differ from the median of their surroundings by more than paper and shadow do."""
    import cv2  # noqa: PLC0415 - after runtime.prepare

    small, _ = within_edge(picture, 400)
    grey = cv2.cvtColor(np.ascontiguousarray(small), cv2.COLOR_RGB2GRAY)
    if min(grey.shape) < 3:  # noqa: PLR2004 - no surroundings
        return float(np.ptp(grey) > 40)  # noqa: PLR2004
    around = cv2.medianBlur(grey, 21 if min(grey.shape) > 21 else 3)  # noqa: PLR2004 - the filter's own size
    return float(np.mean(cv2.absdiff(grey, around) > 40))  # noqa: PLR2004 - grey levels; paper texture stays below


def empty_segmented_page(size: Size) -> SegmentedPdfPage:
    """A page without a text layer."""
    box = BoundingBox(l=0, b=0, r=size.width, t=size.height, coord_origin=CoordOrigin.BOTTOMLEFT)
    geometry = PdfPageGeometry(
        angle=0.0,
        rect=BoundingRectangle.from_bounding_box(box),
        boundary_type=PdfPageBoundaryType.CROP_BOX,
        art_bbox=box,
        bleed_bbox=box,
        crop_bbox=box,
        media_bbox=box,
        trim_bbox=box,
    )
    return SegmentedPdfPage(dimension=geometry, char_cells=[], word_cells=[], textline_cells=[])


def turn_box(box: BoundingBox, degrees: int, size: Size) -> BoundingBox:
    """Where a top-left box of a page of `size` lies after the page was turned clockwise."""
    w, h = size.width, size.height
    left, top, right, bottom = {
        90: (h - box.b, box.l, h - box.t, box.r),
        180: (w - box.r, h - box.b, w - box.l, h - box.t),
        270: (box.t, w - box.r, box.b, w - box.l),
    }[degrees]
    return BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)


def turn_for_text(cells: Iterable[TextCell]) -> int:
    """Degrees clockwise by which a page must be turned so that most of its text runs from left to right.

    0 where no direction holds most of the letters. Cells must have their corners in top-left coordinates.
    """
    letters = {0: 0, 90: 0, 180: 0, 270: 0}
    for cell in cells:
        across, down = cell.rect.r_x1 - cell.rect.r_x0, cell.rect.r_y1 - cell.rect.r_y0
        if abs(across) >= abs(down):
            letters[0 if across >= 0 else 180] += len(cell.text)
        else:
            letters[270 if down > 0 else 90] += len(cell.text)
    degrees = max(letters, key=lambda turn: letters[turn])
    return degrees if letters[degrees] > _MOST * sum(letters.values()) else 0


def turn_cells(cells: Iterable[Any], degrees: int, size: Size) -> None:
    """Turn text cells with their page, in place."""
    for cell in cells:
        box = turn_box(cell.to_bounding_box().to_top_left_origin(size.height), degrees, size)
        cell.rect = BoundingRectangle.from_bounding_box(box)
