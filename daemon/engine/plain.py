"""Text layers without layout: paragraphs in the parser's own order, for pages on which the whole engine failed.

Engine. No network runs and nothing is rendered. `PlainText` of a MuPDF page comes from MuPDF alone; `SecondParser` is
pdfium, a program of other people with other bugs, and is opened only when somebody asks for it.
Coordinates are points with the origin at the top left, after `/Rotate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pymupdf
import pypdfium2
from docling.backend.pdf_backend import PdfDocumentBackend
from docling.datamodel.base_models import Cluster, InputFormat, TextElement
from docling_core.types.doc import BoundingBox, DocItemLabel, Size

from daemon.engine.pages import turn_box
from daemon.engine.pdf import PdfPage
from daemon.engine.regions import follows, union
from daemon.engine.wording import clean
from daemon.errors import DocumentError
from daemon.model import Cause

#: What pdfium's codes for a document that it does not open mean; it has no code for one without pages.
_REFUSALS = {
    0: (Cause.NO_PAGES, "cannot convert the PDF: it has no pages"),
    4: (Cause.ENCRYPTED, "cannot open the PDF: it asks for a password; send a copy without one"),
    5: (Cause.ENCRYPTED, "cannot open the PDF: its encryption is not supported; send a copy without it"),
}
#: A page of more characters is a book in one page, or a trap.
_MOST_CHARACTERS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainText:
    """What a parser says of one page."""

    size: Size
    #: Text and place of each paragraph.
    paragraphs: tuple[tuple[str, BoundingBox], ...]

    def elements(self, page_no: int) -> tuple[TextElement, ...]:
        """The paragraphs as Docling's elements."""
        return tuple(
            TextElement(
                id=number,
                label=DocItemLabel.TEXT,
                page_no=page_no,
                text=text,
                cluster=Cluster(id=number, label=DocItemLabel.TEXT, bbox=box),
            )
            for number, (text, box) in enumerate(self.paragraphs)
        )


def by_mupdf(page: PdfPage) -> PlainText:
    """MuPDF's blocks of text. Raises DocumentError(MALFORMED) for a page without a size."""
    found = []
    for left, top, right, bottom, text, _, kind in page.mupdf.get_text("blocks"):
        if kind == 0:
            # PyMuPDF reports text as if the page were not rotated.
            box = pymupdf.Rect(left, top, right, bottom) * page.mupdf.rotation_matrix
            found.append((text, BoundingBox(l=box.x0, t=box.y0, r=box.x1, b=box.y1)))
    return _plain(page.get_size(), found)


class SecondParser:
    """A PDF in pdfium."""

    def __init__(self, data: bytes) -> None:
        """Open `data`. Raises DocumentError: ENCRYPTED or MALFORMED."""
        try:
            self._document = pypdfium2.PdfDocument(data)
            self.pages = len(self._document)
        except pypdfium2.PdfiumError as error:
            malformed = (Cause.MALFORMED, f"cannot open the PDF with pdfium: {error}")
            cause, detail = _REFUSALS.get(getattr(error, "err_code", -1), malformed)
            raise DocumentError(cause, detail) from error

    def read(self, number: int) -> PlainText:
        """The text of page `number`, from 1. Raises DocumentError(MALFORMED)."""
        try:
            page = self._document[number - 1]
        except (pypdfium2.PdfiumError, IndexError) as error:
            raise DocumentError(Cause.MALFORMED, f"cannot load page {number} with pdfium: {error}") from error
        try:
            return self._read(page)
        except pypdfium2.PdfiumError as error:
            raise DocumentError(Cause.MALFORMED, f"cannot read page {number} with pdfium: {error}") from error
        finally:
            page.close()

    def _read(self, page: Any) -> PlainText:
        width, height = page.get_size()
        left, _, _, top = page.get_cropbox()
        degrees = page.get_rotation()
        upright = Size(width=height, height=width) if degrees in {90, 270} else Size(width=width, height=height)
        text = page.get_textpage()
        try:
            lines = list(self._lines(text, left, top))
        finally:
            text.close()
        if degrees:
            lines = [(words, turn_box(box, degrees, upright)) for words, box in lines]
        return _plain(Size(width=width, height=height), _joined(lines))

    def _lines(self, text: Any, left: float, top: float) -> Iterator[tuple[str, BoundingBox]]:
        """Lines in pdfium's order, their boxes in the frame of the page before `/Rotate`."""
        words: list[str] = []
        boxes: list[BoundingBox] = []
        for index in range(min(text.count_chars(), _MOST_CHARACTERS)):
            letter = chr(pypdfium2.raw.FPDFText_GetUnicode(text, index))
            if letter in "\r\n":
                if boxes:
                    yield _text(words), union(boxes)
                words, boxes = [], []
                continue
            words.append(letter)
            if not letter.isspace():
                x0, y0, x1, y1 = text.get_charbox(index, loose=True)
                boxes.append(BoundingBox(l=x0 - left, t=top - y1, r=x1 - left, b=top - y0))
        if boxes:
            yield _text(words), union(boxes)

    def close(self) -> None:
        """Let go of the document."""
        self._document.close()


class SecondSource(PdfDocumentBackend):  # type: ignore[misc]
    """A PDF that only pdfium may open; it counts pages and has none to give to Docling's stages."""

    has_text_layers = True

    def __init__(self, parser: SecondParser, *, max_pages: int) -> None:
        """Raises DocumentError: NO_PAGES or TOO_LARGE."""
        self.input_format = InputFormat.PDF
        self.path_or_stream = None
        self.warnings: list[str] = []
        if parser.pages <= 0:
            raise DocumentError(Cause.NO_PAGES, "cannot convert the PDF: it has no pages")
        if parser.pages > max_pages:
            detail = f"it says it has {parser.pages} pages, the limit is {max_pages} (engine.max_pages)"
            raise DocumentError(Cause.TOO_LARGE, f"cannot convert the PDF: {detail}")
        self._pages = parser.pages

    def page_count(self) -> int:
        """Pages by pdfium's count."""
        return self._pages

    def is_valid(self) -> bool:
        """A document that could not be opened has no instance."""
        return True

    def load_page(self, page_no: int) -> Any:
        """Nobody may. Raises DocumentError(ENGINE_ERROR)."""
        raise DocumentError(Cause.ENGINE_ERROR, f"cannot load page {page_no + 1}: only pdfium may read this document")

    def iter_pages(self) -> Iterator[Any]:
        """None."""
        return iter(())

    def unload(self) -> None:
        """Whoever opened the parser closes it."""


def _text(units: list[str]) -> str:
    """Surrogates joined: pdfium counts in UTF-16: pairs of surrogates are one letter."""
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(size: Size, found: Iterable[tuple[str, BoundingBox]]) -> PlainText:
    if not (math.isfinite(size.width * size.height) and size.width > 0 and size.height > 0):
        raise DocumentError(Cause.MALFORMED, f"cannot place text on a page of {size.width} by {size.height} pt")
    cleaned = ((" ".join(clean(text).split()), box) for text, box in found)
    return PlainText(size=size, paragraphs=tuple((text, box) for text, box in cleaned if text))


def _joined(lines: Iterable[tuple[str, BoundingBox]]) -> list[tuple[str, BoundingBox]]:
    """Lines that follow each other closely, as paragraphs."""
    paragraphs: list[tuple[str, BoundingBox]] = []
    last: BoundingBox | None = None
    for text, box in lines:
        if last is not None and follows(last, box):
            before, around = paragraphs[-1]
            paragraphs[-1] = (f"{before} {text}", union((around, box)))
        else:
            paragraphs.append((text, box))
        last = box
    return paragraphs
