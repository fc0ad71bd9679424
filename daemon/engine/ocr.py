"""Text out of pictures: which parts of a page need it, which way up, and what they say.

Engine. A Docling OCR stage in two halves, because layout lies between them: `look` finds the lines of a page
without text and turns it upright, the stage itself reads the lines. A part that the text layer covers is
not read again; small pictures are decoration. With OCR off neither half is entered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from docling.datamodel.accelerator_options import AcceleratorOptions
from docling.datamodel.base_models import Cluster, Page
from docling.datamodel.document import ConversionResult
from docling.datamodel.pipeline_options import OcrMode, OcrOptions
from docling.models.base_layout_model import TABLE_LABELS, TEXT_ELEM_LABELS
from docling.models.base_ocr_model import BaseOcrModel
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel
from docling_core.types.doc.page import BoundingRectangle, TextCell

from daemon.engine import triage
from daemon.engine.api import Progress
from daemon.engine.frames import against_rules, stand_side_by_side
from daemon.engine.gutters import columns, cut_at_gutters, cut_at_rules
from daemon.engine.pages import Line, SourcePage, visible
from daemon.engine.reader import Reader, turn_picture, turn_quad
from daemon.engine.regions import (
    covered_share,
    disjoint,
    free_text_from_pictures,
    in_order,
    keep_text_of_bare_page,
    paragraphs,
    whole,
)
from daemon.engine.skew import skew_of, straight_quad
from daemon.engine.strokes import rules_on
from daemon.engine.wording import clean
from daemon.model import Stage

#: Least confidence of a line that is kept; RapidOCR's own default.
_LEAST_CONFIDENCE = 0.5
#: A mean below is said in the page's account: handwriting, vertical writing, or noise taken for text.
_DOUBTFUL = 0.8
#: Pictures that together cover this share of a page are read as a whole page.
_WHOLE_PAGE = 0.7
#: A page or picture with a smaller share of ink is blank: nobody searches it for text.
LEAST_INK = 2e-4


class ReaderOptions(OcrOptions):  # type: ignore[misc]
    """RapidOCR on onnxruntime with the models of the wheel; the bounds are what `bench.ocr` compares."""

    #: A picture with this share of it under text is that text's background.
    background: float = 0.1
    #: Smaller pictures are decoration.
    least_edge_pt: float = 24.0
    least_area_pt2: float = 2_000.0
    kind: ClassVar[str] = "bulkhead_rapidocr"
    lang: list[str] = []  # noqa: RUF012 - a pydantic field
    mode: OcrMode = OcrMode.PDF_AWARE_LAYOUT_REGIONS


class PageReaderModel(BaseOcrModel):  # type: ignore[misc]
    """Docling's OCR stage."""

    def __init__(self, *, options: ReaderOptions, reader: Reader | None) -> None:
        """With `reader` None the stage is off."""
        super().__init__(
            enabled=reader is not None,
            artifacts_path=None,
            options=options,
            accelerator_options=AcceleratorOptions(num_threads=1, device="cpu"),
        )
        self._reader = reader
        #: Replaced for each document.
        self.progress: Progress | None = None

    @classmethod
    def get_options_type(cls) -> type[OcrOptions]:
        """Docling asks for it."""
        return ReaderOptions

    def look(self, page: SourcePage) -> None:
        """Before layout: find the lines of a page that has no text worth having, and turn the page upright."""
        self._doubt(page)
        if self._reader is not None:
            page.unread = _take_out_undecoded(page)
        if self._reader is None or not needs_reading(page):
            return
        self._announce(page)
        picture, scale = page.picture()
        quads = self._reader.find(picture)
        degrees = self._reader.turn_needed(picture, quads)
        if degrees:
            quads = [turn_quad(quad, degrees, picture.shape) for quad in quads]
            picture = turn_picture(picture, degrees)
            page.turn(degrees)
            page.notes.remarks.append(f"turned by {degrees} degrees to be read")
        page.skew = skew_of(quads)
        if page.skew:
            page.notes.remarks.append(f"straightened by {page.skew:.1f} degrees to be read")
        page.lines = in_order([self._line(picture, quad, scale, (0.0, 0.0), skew=page.skew) for quad in quads])

    def _doubt(self, page: SourcePage) -> None:
        """Put aside a text layer that is none."""
        cells = list(page.get_text_cells())
        text = "\n".join(cell.text for cell in cells)
        why = triage.plainly_garbage(text)
        if not why and self._reader is not None and triage.suspicious(text):
            self._announce(page)
            why = triage.contradicted([cell.text for cell in cells], lambda number: self._seen(page, cells[number]))
        if not why:
            return
        if self._reader is None:
            page.notes.degraded.append(f"its text layer is garbage: {why}; and OCR was off")
        else:
            page.drop_text()
            page.notes.remarks.append(f"read from its picture, since its text layer is garbage: {why}")

    def _seen(self, page: SourcePage, cell: TextCell) -> str:
        """What the picture says where the layer has this line."""
        assert self._reader is not None
        picture, _ = page.picture(cell.to_bounding_box().expand_by_scale(0.01, 0.1))
        ((text, confidence),) = self._reader.read([picture])
        return text if confidence >= _LEAST_CONFIDENCE else ""

    def __call__(self, conv_res: ConversionResult, page_batch: Iterable[Page]) -> Iterable[Page]:
        """Read the lines, join them with the text layer's cells, and mend the clusters where text came up."""
        for page in page_batch:
            if self._reader is not None:
                self._read_page(conv_res, page, page._backend)  # noqa: SLF001 - Docling's stages reach the backend so
            yield page

    def _read_page(self, conv_res: ConversionResult, page: Page, source: SourcePage) -> None:
        assert self._reader is not None
        lines = source.lines
        if lines is None:
            lines = self._lines_in_pictures(source) + [_cut_out(source, box) for box in source.unread]
        if not lines:
            return
        layout = page.predictions.layout
        if source.lines is not None and layout is not None:
            parted: list[BoundingBox] = []
            if stand_side_by_side(lines) or any(cluster.label in TABLE_LABELS for cluster in layout.clusters):
                layout.clusters, parted = against_rules(layout.clusters, rules_on(source), lines)
            lines = cut_at_gutters(lines, _text_regions(layout.clusters, lines))
            lines = in_order(cut_at_rules(lines, rules_on(source), parted) if parted else lines)
        self._announce(source)
        for line, (text, confidence) in zip(lines, self._reader.read([line.picture for line in lines]), strict=True):
            line.text, line.confidence = clean(text).strip(), confidence
        kept = [line for line in lines if line.text and line.confidence >= _LEAST_CONFIDENCE]
        if not kept:
            return
        source.notes.engines["ocr"] = "rapidocr"
        mean = sum(line.confidence for line in kept) / len(kept)
        if mean < _DOUBTFUL:
            source.notes.remarks.append(f"read with low confidence ({mean:.2f} on average)")
        self.post_process_cells([_cell(number, line) for number, line in enumerate(kept)], page, conv_res)
        if layout is not None:
            alone = all(cell.from_ocr for cell in page.cells)
            layout.clusters = _mend(layout.clusters, kept, alone=alone)

    def _lines_in_pictures(self, page: SourcePage) -> list[Line]:
        """Lines in those pictures of a page with text that the text does not cover."""
        assert self._reader is not None
        lines: list[Line] = []
        for box in picture_regions(page, self.options):
            self._announce(page)
            picture, scale = page.picture(box)
            origin = (max(0.0, box.l), max(0.0, box.t))
            found = (self._line(picture, quad, scale, origin) for quad in self._reader.find(picture))
            lines.extend(in_order(list(found)))
        return lines

    def _line(
        self, picture: np.ndarray, quad: np.ndarray, scale: float, origin: tuple[float, float], *, skew: float = 0.0
    ) -> Line:
        """The line in a quad of a picture whose top left lies at `origin` (pt) of the page; its place is straight."""
        assert self._reader is not None
        straight = straight_quad(quad, skew, picture.shape) if skew else quad
        low, high = straight.min(axis=0) / scale, straight.max(axis=0) / scale
        box = BoundingBox(
            l=float(low[0]) + origin[0],
            t=float(low[1]) + origin[1],
            r=float(high[0]) + origin[0],
            b=float(high[1]) + origin[1],
            coord_origin=CoordOrigin.TOPLEFT,
        )
        return Line(box=box, picture=self._reader.cut(picture, quad))

    def _announce(self, page: SourcePage) -> None:
        if self.progress is not None:
            self.progress.stage(Stage.OCR, page.number)


def _take_out_undecoded(page: SourcePage) -> list[BoundingBox]:
    """Take lines out of the text layer whose font does not say which letters they are; where they stand."""
    segmented = page.get_segmented_page()
    boxes = [cell.to_bounding_box() for cell in segmented.textline_cells if visible(cell) and undecoded(cell.text)]
    if boxes:
        segmented.textline_cells = [cell for cell in segmented.textline_cells if not undecoded(cell.text)]
        page.notes.remarks.append(f"{len(boxes)} line(s) in a font without letters were read from their picture")
    return boxes


def undecoded(text: str) -> bool:
    """Whether most of a line are replacement characters; a single one is a bullet."""
    signs = text.replace(" ", "")
    return len(signs) > 2 and signs.count("�") > len(signs) / 2  # noqa: PLR2004 - a bullet and its blank


def _cut_out(page: SourcePage, box: BoundingBox) -> Line:
    """A line whose place is known, to be read; nothing has to be searched."""
    return Line(box=box, picture=page.picture(box.expand_by_scale(0.01, 0.15))[0])


def needs_reading(page: SourcePage) -> bool:
    """Whether a page has no text of its own, and ink; a fair hidden layer of a scan counts as text."""
    cells = list(page.get_text_cells())
    if any(visible(cell) for cell in cells):
        return False
    if fair_text(cell.text for cell in cells):
        page.notes.remarks.append("hidden text layer of a scan")
        return False
    page.notes.ink = page.ink()
    return page.notes.ink >= LEAST_INK


def fair_text(texts: Iterable[str]) -> bool:
    """Whether a hidden layer looks like language: enough of it, and most of its tokens are words or numbers."""
    tokens = " ".join(texts).split()
    words = sum(token.strip(".,;:!?()[]\"'«»-–—").isalnum() for token in tokens)  # noqa: RUF001 - dashes as printed
    return len(tokens) >= 20 and words > 0.7 * len(tokens)  # noqa: PLR2004 - a caption's worth; most of them


def picture_regions(page: SourcePage, options: ReaderOptions) -> list[BoundingBox]:
    """Pictures on a page with text that may hold text of their own; none for decoration and backgrounds."""
    size = page.get_size()
    texts = [
        cell.to_bounding_box().to_top_left_origin(size.height) for cell in page.get_text_cells() if cell.text.strip()
    ]
    regions = [
        box
        for box in page.get_bitmap_rects()
        if min(box.width, box.height) >= options.least_edge_pt
        and box.area() >= options.least_area_pt2
        and covered_share(box, texts) < options.background
    ]
    if covered_share(whole(size), disjoint(regions)) > _WHOLE_PAGE:
        return [whole(size)]
    return [box for box in disjoint(regions) if page.ink(box) >= LEAST_INK]


def _text_regions(clusters: list[Cluster], lines: list[Line]) -> list[BoundingBox]:
    """Regions of text by the layout, and columns of what lies in none."""
    regions = [cluster.bbox for cluster in clusters if cluster.label in TEXT_ELEM_LABELS]
    held = [*regions, *(cluster.bbox for cluster in clusters if cluster.label in TABLE_LABELS)]
    return regions + columns([line.box for line in lines if covered_share(line.box, held) < 0.2])  # noqa: PLR2004 - Docling's own bound for a cell's cluster


def _cell(number: int, line: Line) -> TextCell:
    return TextCell(
        index=number,
        text=line.text,
        orig=line.text,
        confidence=line.confidence,
        from_ocr=True,
        rect=BoundingRectangle.from_bounding_box(line.box),
    )


def _mend(clusters: list[Cluster], lines: list[Line], *, alone: bool) -> list[Cluster]:
    """Clusters after text was found: no picture hides it, none of it is alone, not all of it is furniture."""
    mended = free_text_from_pictures(clusters, lines, alone=alone)
    loose = [line for line in lines if covered_share(line.box, (c.bbox for c in mended)) < 0.2]  # noqa: PLR2004 - Docling's own bound for a cell's cluster
    first = max((c.id for c in mended), default=-1) + 1
    mended += [
        Cluster(id=first + n, label=DocItemLabel.TEXT, bbox=box, confidence=1.0)
        for n, box in enumerate(paragraphs(loose))
    ]
    keep_text_of_bare_page(mended)
    return mended


def states(cells: Iterable[Any]) -> tuple[bool, bool]:
    """Whether a page has text from its own layer, and text that was read from its picture."""
    written = [cell for cell in cells if cell.text.strip()]
    return any(not cell.from_ocr for cell in written), any(cell.from_ocr for cell in written)
