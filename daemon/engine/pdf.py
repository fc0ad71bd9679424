"""PDF documents: opened by MuPDF, which lays out and renders; their text parsed by docling-parse.

Engine. MuPDF opens first, because it tells encrypted, broken and empty files apart without allocating
much; docling-parse reads the text of one page at a time, in this thread, and never decodes an image. Where
it fails, MuPDF's text stands in and the page says so. No password is ever tried but the empty one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pymupdf
from docling.backend.pdf_backend import PdfDocumentBackend
from docling.datamodel.base_models import InputFormat
from docling_core.types.doc import BoundingBox, CoordOrigin, Size
from docling_core.types.doc.page import BoundingRectangle, SegmentedPdfPage, TextCell
from docling_parse.pdf_parser import ContentConfig, ContentLevel, DecodeConfig, DoclingPdfParser

from daemon.engine.budget import READING_SCALE, Budget
from daemon.engine.pages import SourcePage, empty_segmented_page, turn_box, turn_cells
from daemon.errors import DocumentError
from daemon.model import Cause

#: Text lines and the places of images; no pixels, so a broken image codec is never entered.
_CONTENT = ContentConfig(
    char_cells_content_level=ContentLevel.COMPUTE,
    word_cells_content_level=ContentLevel.SKIP,
    line_cells_content_level=ContentLevel.COMPUTE_AND_MATERIALIZE,
    shapes_content_level=ContentLevel.COMPUTE,
    bitmaps_content_level=ContentLevel.COMPUTE_AND_MATERIALIZE,
    include_bitmap_bytes=False,
)


class PdfSource(PdfDocumentBackend):  # type: ignore[misc]
    """An open PDF; Docling's document backend."""

    has_text_layers = True

    def __init__(self, data: bytes, *, budget: Budget, max_pages: int) -> None:
        """Open `data`. Raises DocumentError: ENCRYPTED, MALFORMED, NO_PAGES or TOO_LARGE."""
        self.input_format = InputFormat.PDF
        self.path_or_stream = None
        self.budget = budget
        self.warnings: list[str] = []
        self._mupdf = _open(data)
        self._pages = _count_pages(self._mupdf, max_pages)
        self._parsed = self._open_text(data)

    def _open_text(self, data: bytes) -> Any:
        """The document in docling-parse, or None with a warning."""
        try:
            parsed = DoclingPdfParser(loglevel="fatal").load(io.BytesIO(data), decode_config=DecodeConfig())
            pages = parsed.number_of_pages()
        except (RuntimeError, ValueError, IndexError) as error:
            self.warnings.append(f"text parser could not open the document ({_first_line(error)}); MuPDF read its text")
            return None
        if pages != self._pages:
            self.warnings.append(f"MuPDF sees {self._pages} pages, the text parser {pages}")
        return parsed

    def page_count(self) -> int:
        """Pages by MuPDF's count, which is what is converted."""
        return self._pages

    def is_valid(self) -> bool:
        """A document that could not be opened has no instance."""
        return True

    def load_page(self, page_no: int) -> PdfPage:
        """The page with the index `page_no`, counted from 0. Raises DocumentError(MALFORMED)."""
        try:
            page = self._mupdf.load_page(page_no)
        except (RuntimeError, ValueError, pymupdf.mupdf.FzErrorBase) as error:
            raise DocumentError(Cause.MALFORMED, f"cannot load page {page_no + 1}: {_first_line(error)}") from error
        return PdfPage(page, self._parsed, budget=self.budget)

    def iter_pages(self) -> Iterator[PdfPage]:
        """All pages in order."""
        return (self.load_page(index) for index in range(self._pages))

    def unload(self) -> None:
        """Close both parsers."""
        if self._parsed is not None:
            self._parsed.unload()
        self._mupdf.close()


class PdfPage(SourcePage):
    """A page of a PDF."""

    def __init__(self, page: Any, parsed: Any, *, budget: Budget) -> None:
        super().__init__(page.number + 1, budget)
        #: For the layout predictor.
        self.mupdf = page
        self._parsed = parsed
        self._bitmaps: list[BoundingBox] | None = None
        #: Whether docling-parse's boxes needed no scaling; known once the text was read.
        self._same_frame = False

    def get_size(self) -> Size:
        """Points, by MuPDF: crop box, `/Rotate` and `UserUnit` applied."""
        return Size(width=self.mupdf.rect.width, height=self.mupdf.rect.height)

    def picture(self, clip: BoundingBox | None = None, *, wanted: float | None = None) -> tuple[np.ndarray, float]:
        """See SourcePage."""
        box = None if clip is None else pymupdf.Rect(*clip.to_top_left_origin(self.get_size().height).as_tuple())
        picture = self.budget.render(self.mupdf, wanted=READING_SCALE if wanted is None else wanted, clip=box)
        width = self.mupdf.rect.width if box is None else (box & self.mupdf.rect).width
        return picture, picture.shape[1] / width

    def turn(self, degrees: int) -> None:
        """See SourcePage."""
        size = self.get_size()
        if self._segmented is not None:
            turn_cells(self._segmented.textline_cells, degrees, size)
        self._bitmaps = [turn_box(box, degrees, size) for box in self.get_bitmap_rects()]
        self.mupdf.set_rotation((self.mupdf.rotation + degrees) % 360)
        self.turned = (self.turned + degrees) % 360

    def read_text(self) -> SegmentedPdfPage:
        """See SourcePage."""
        if self._parsed is not None:
            try:
                segmented = self._parsed.get_page(self.number, content_config=_CONTENT)
            except (RuntimeError, ValueError, IndexError) as error:
                self.notes.degraded.append(f"text parser failed ({_first_line(error)}), MuPDF read the text")
            else:
                self.notes.engines["text"] = "docling-parse"
                return self._fitted(segmented)
        self.notes.engines["text"] = "mupdf"
        return self._read_text_by_mupdf()

    def _fitted(self, segmented: SegmentedPdfPage) -> SegmentedPdfPage:
        """Bring docling-parse's boxes to MuPDF's frame, where `UserUnit` makes them differ."""
        size = self.get_size()
        box = segmented.dimension.rect.to_bounding_box()
        width, height = abs(box.r - box.l), abs(box.t - box.b)
        if segmented.dimension.angle in {90, 270, -90, -270} and (width > height) != (size.width > size.height):
            width, height = height, width
        self._bitmaps = [
            _scaled(image.rect.to_bounding_box().to_top_left_origin(height), size, width, height)
            for image in segmented.bitmap_resources
        ]
        self._same_frame = abs(width - size.width) <= 1 and abs(height - size.height) <= 1
        for cell in segmented.textline_cells:
            cell.to_top_left_origin(height)
            if not self._same_frame:
                cell.rect = BoundingRectangle.from_bounding_box(_scaled(cell.to_bounding_box(), size, width, height))
        return segmented

    def _read_text_by_mupdf(self) -> SegmentedPdfPage:
        segmented = empty_segmented_page(self.get_size())
        flags = pymupdf.TEXTFLAGS_DICT & ~pymupdf.TEXT_PRESERVE_IMAGES
        for block in self.mupdf.get_text("dict", flags=flags)["blocks"]:
            for line in block.get("lines", ()):
                text = "".join(span["text"] for span in line["spans"])
                # PyMuPDF reports text and images as if the page were not rotated.
                left, top, right, bottom = pymupdf.Rect(line["bbox"]) * self.mupdf.rotation_matrix
                box = BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)
                cell = TextCell(
                    index=len(segmented.textline_cells),
                    text=text,
                    orig=text,
                    rect=BoundingRectangle.from_bounding_box(box),
                    from_ocr=False,
                )
                segmented.textline_cells.append(cell)
        segmented.has_lines = bool(segmented.textline_cells)
        return segmented

    def get_bitmap_rects(self, scale: float = 1) -> Iterable[BoundingBox]:
        """Where images lie on the page, clipped to it."""
        self.get_segmented_page()
        if self._bitmaps is None:
            boxes = (pymupdf.Rect(info["bbox"]) * self.mupdf.rotation_matrix for info in self.mupdf.get_image_info())
            self._bitmaps = [
                BoundingBox(l=b.x0, t=b.y0, r=b.x1, b=b.y1, coord_origin=CoordOrigin.TOPLEFT) for b in boxes
            ]
        size = self.get_size()
        clipped = (_clip(box, size) for box in self._bitmaps)
        return [box.scaled(scale) for box in clipped if box.r > box.l and box.b > box.t]

    def get_shape_lines(
        self, *, horizontal: bool = True, vertical: bool = True, tolerance: float = 1e-3
    ) -> list[BoundingBox] | None:
        """Ruled lines, for the reading order; None where the frames differ."""
        decoder = self.shapes()
        if decoder is None:
            return None
        return self._boxes(decoder.get_shape_lines(horizontal=horizontal, vertical=vertical, tolerance=tolerance))

    def get_connected_shape_bounding_boxes(self, *, tolerance: float = 0.0) -> list[BoundingBox] | None:
        """Drawn shapes, for the reading order; None where the frames differ."""
        decoder = self.shapes()
        return None if decoder is None else self._boxes(decoder.get_connected_shape_bounding_boxes(tolerance=tolerance))

    def shapes(self) -> Any:
        """See SourcePage."""
        if self._parsed is None or self.turned or not self._same_frame:
            return None
        return self._parsed._ensure_page_decoder(self.number, _CONTENT)  # noqa: SLF001 - no public way to the shapes without rendering

    def _boxes(self, found: Iterable[Any]) -> list[BoundingBox]:
        height = self.get_size().height
        return [
            BoundingBox(l=box[0], t=height - box[3], r=box[2], b=height - box[1], coord_origin=CoordOrigin.TOPLEFT)
            for box in found
        ]

    def unload(self) -> None:
        """See SourcePage."""
        super().unload()
        self._bitmaps = []
        if self._parsed is not None:
            self._parsed.unload_pages((self.number, self.number + 1))


def _open(data: bytes) -> Any:
    """The document in MuPDF. Raises DocumentError: ENCRYPTED or MALFORMED."""
    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    try:
        document = pymupdf.open(stream=data, filetype="pdf")
        locked = bool(document.needs_pass) and not document.authenticate("")
    except (RuntimeError, ValueError, pymupdf.mupdf.FzErrorBase) as error:
        reason = _first_line(error.__cause__ or error)
        if "encryption" in reason or "crypt" in reason:
            detail = f"cannot open the PDF: its encryption is not supported ({reason}); send a copy without it"
            raise DocumentError(Cause.ENCRYPTED, detail) from error
        raise DocumentError(Cause.MALFORMED, f"cannot open the PDF: {reason}") from error
    if locked:
        raise DocumentError(Cause.ENCRYPTED, "cannot open the PDF: it asks for a password; send a copy without one")
    return document


def _count_pages(document: Any, max_pages: int) -> int:
    """Raises DocumentError: NO_PAGES, MALFORMED or TOO_LARGE."""
    try:
        pages = int(document.page_count)
    except (RuntimeError, ValueError, pymupdf.mupdf.FzErrorBase) as error:
        raise DocumentError(Cause.MALFORMED, f"cannot count the pages: {_first_line(error)}") from error
    if pages <= 0:
        raise DocumentError(Cause.NO_PAGES, "cannot convert the PDF: it has no pages")
    if pages > max_pages:
        detail = f"cannot convert the PDF: it says it has {pages} pages, the limit is {max_pages} (engine.max_pages)"
        raise DocumentError(Cause.TOO_LARGE, detail)
    return pages


def _scaled(box: BoundingBox, size: Size, width: float, height: float) -> BoundingBox:
    x, y = size.width / max(width, 1e-6), size.height / max(height, 1e-6)
    return BoundingBox(l=box.l * x, t=box.t * y, r=box.r * x, b=box.b * y, coord_origin=CoordOrigin.TOPLEFT)


def _clip(box: BoundingBox, size: Size) -> BoundingBox:
    return BoundingBox(
        l=max(0.0, box.l),
        t=max(0.0, box.t),
        r=min(size.width, box.r),
        b=min(size.height, box.b),
        coord_origin=CoordOrigin.TOPLEFT,
    )


def _first_line(error: BaseException) -> str:
    """At most 200 characters of what a library said; the rest may be document text."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
