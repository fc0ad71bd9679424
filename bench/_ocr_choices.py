"""The choices that `bench.ocr` compares, each as an OCR stage of its own in the same pipeline.

Imports native code: only after `daemon.engine.runtime.prepare`. Rules: a choice differs from production in what
it names and in nothing else, through the parameters of the engine's own objects; `Watched` measures a stage from
outside. RapidOCR's parameters are those of its own `config.yaml` unless named here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from docling.datamodel.accelerator_options import AcceleratorOptions
from docling.datamodel.base_models import Page
from docling.datamodel.document import ConversionResult
from docling.datamodel.pipeline_options import OcrOptions, RapidOcrOptions
from docling.models.base_ocr_model import BaseOcrModel
from docling_core.types.doc import BoundingBox, CoordOrigin
from docling_core.types.doc.page import BoundingRectangle, TextCell
from rapidocr import RapidOCR

from daemon.engine.api import Progress
from daemon.engine.layout import PageLayoutModel, PageLayoutOptions
from daemon.engine.ocr import PageReaderModel, ReaderOptions
from daemon.engine.pages import SourcePage
from daemon.engine.reader import Reader
from daemon.engine.stages import PagePipeline
from daemon.engine.tables import PageTableModel, PageTableOptions

#: What production does: lines searched at 960 px, and at 1280 px where the print is small; one at a time.
PRODUCTION = "as it is"
#: What every other choice's words are compared with where there is no reference: it sees most.
CAREFUL = "lines searched at 1568 px"
#: What Docling's stock stage would do.
STOCK = "stock: RapidOCR's defaults on each region"
_LANGUAGES = ("en", "zh")
_QUIET = {"Global.log_level": "critical"}


class StockStage(BaseOcrModel):  # type: ignore[misc]
    """RapidOCR as Docling's own `RapidOcrModel` calls it, without the torch that this imports.

    The same regions (Docling's `get_ocr_rects` in its default mode), the same scale, one call of the whole RapidOCR
    for each region, its cells handed to Docling's own merging. Written anew; only the calls are alike.
    """

    def __init__(self, parameters: Mapping[str, object]) -> None:
        options = RapidOcrOptions()
        accelerator = AcceleratorOptions(num_threads=1, device="cpu")
        super().__init__(enabled=True, artifacts_path=None, options=options, accelerator_options=accelerator)
        self._scale = options.scale
        self._ocr = RapidOCR(params={"Global.text_score": options.text_score, **_QUIET, **parameters})
        #: As in `PageReaderModel`; nothing is announced.
        self.progress: Progress | None = None

    @classmethod
    def get_options_type(cls) -> type[OcrOptions]:
        """Docling asks for it."""
        kind: type[OcrOptions] = RapidOcrOptions
        return kind

    def look(self, page: SourcePage) -> None:
        """Docling's stage does nothing before layout."""

    def __call__(self, conv_res: ConversionResult, page_batch: Iterable[Page]) -> Iterable[Page]:
        """Read every region."""
        for page in page_batch:
            cells: list[TextCell] = []
            for region in self.get_ocr_rects(page):
                if region.area() > 0:
                    cells += self._cells(page._backend, region)  # noqa: SLF001 - Docling's stages reach the backend so
            self.post_process_cells(cells, page, conv_res)
            yield page

    def _cells(self, page: SourcePage, region: BoundingBox) -> list[TextCell]:
        found = self._ocr(np.asarray(page.get_page_image(scale=self._scale, cropbox=region)))
        if found.boxes is None:
            return []
        cells: list[TextCell] = []
        for quad, text, confidence in zip(found.boxes, found.txts, found.scores, strict=True):
            box = BoundingBox(
                l=float(quad[0][0]) / self._scale + region.l,
                t=float(quad[0][1]) / self._scale + region.t,
                r=float(quad[2][0]) / self._scale + region.l,
                b=float(quad[2][1]) / self._scale + region.t,
                coord_origin=CoordOrigin.TOPLEFT,
            )
            rect = BoundingRectangle.from_bounding_box(box)
            cell = TextCell(
                index=len(cells), text=text, orig=text, confidence=float(confidence), from_ocr=True, rect=rect
            )
            cells.append(cell)
        return cells


class DefaultSearch(Reader):
    """Our reader, but lines are searched as RapidOCR does by default: the shorter edge at least 736 px."""

    def __init__(self) -> None:
        super().__init__(_LANGUAGES)
        self._detector: Any = RapidOCR(params=_QUIET)._load_det_model()  # noqa: SLF001 - as the reader itself loads it

    def find(self, picture: np.ndarray) -> list[np.ndarray]:
        """See Reader."""
        found = self._detector(np.ascontiguousarray(picture[:, :, ::-1]))
        return [] if found.boxes is None else [np.asarray(quad, dtype=np.float32) for quad in found.boxes]


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a stage took and gave, over the pages of one document."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    pages: int = 0
    #: Texts of all lines, its own and those of the text layer.
    texts: list[str] = field(default_factory=list)


class Watched:
    """An OCR stage, measured."""

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self.progress: Progress | None = None
        self.seen = Seen()

    def look(self, page: SourcePage) -> None:
        """Before layout."""
        with self._clocks():
            self._stage.look(page)

    def __call__(self, conv_res: ConversionResult, page_batch: Iterable[Page]) -> Iterable[Page]:
        """After layout."""
        with self._clocks():
            pages = list(self._stage(conv_res, page_batch))
        for page in pages:
            self.seen.pages += 1
            self.seen.texts += [cell.text for cell in page.cells]
        return pages

    def _clocks(self) -> _Clocks:
        return _Clocks(self.seen)


class _Clocks:
    """Adds what passes within to a `Seen`."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._seen.wall_s += time.perf_counter() - self._started[0]
        self._seen.cpu_s += time.process_time() - self._started[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to do OCR."""

    name: str
    stage: Callable[[], Any]
    #: What it changes is only met on pages that have text and pictures.
    mixed_only: bool = False


def _at(edge_px: int) -> Reader:
    """Lines searched once, at this edge, whatever the print."""
    return Reader(_LANGUAGES, detection_edge_px=edge_px, small_print_edge_px=0)


def ours(*, reader: Callable[[], Reader] | None = None, **bounds: float) -> Callable[[], Any]:
    """A stage like production's, with another reader or other bounds."""
    made = reader or (lambda: Reader(_LANGUAGES))
    return lambda: PageReaderModel(options=ReaderOptions(**bounds), reader=made())


CHOICES = (
    Choice(name=PRODUCTION, stage=ours()),
    Choice(name="lines searched at 640 px", stage=ours(reader=lambda: _at(640))),
    Choice(name="lines searched at 960 px", stage=ours(reader=lambda: _at(960))),
    Choice(name="lines searched at 1280 px", stage=ours(reader=lambda: _at(1280))),
    Choice(name=CAREFUL, stage=ours(reader=lambda: _at(1568))),
    Choice(name="lines searched at 736 px or more", stage=ours(reader=DefaultSearch)),
    Choice(name="6 lines at once", stage=ours(reader=lambda: Reader(_LANGUAGES, lines_at_once=6))),
    Choice(name="16 lines at once", stage=ours(reader=lambda: Reader(_LANGUAGES, lines_at_once=16))),
    Choice(name="short lines padded to 320 px", stage=ours(reader=lambda: Reader(_LANGUAGES, least_line_px=320))),
    Choice(name="short lines not padded", stage=ours(reader=lambda: Reader(_LANGUAGES, least_line_px=48))),
    Choice(name="pictures under text too", stage=ours(background=float("inf")), mixed_only=True),
    Choice(name="decoration too", stage=ours(least_edge_pt=0.0, least_area_pt2=0.0), mixed_only=True),
    Choice(
        name="each region by itself, at 960 px",
        stage=lambda: StockStage({"Det.limit_type": "max", "Det.limit_side_len": 960}),
    ),
    Choice(name=STOCK, stage=lambda: StockStage({})),
)


class Pipelines:
    """A pipeline for each choice; they share everything but the OCR stage."""

    def __init__(self) -> None:
        self._layout = PageLayoutModel(options=PageLayoutOptions())
        self._tables = PageTableModel(options=PageTableOptions())
        self._silent = PageReaderModel(options=ReaderOptions(), reader=None)
        self._made: dict[str, tuple[PagePipeline, Watched]] = {}

    def of(self, choice: Choice) -> tuple[PagePipeline, Watched]:
        """The choice's pipeline, made once, and its stage with nothing seen yet."""
        if choice.name not in self._made:
            watched: Any = Watched(choice.stage())
            pipeline = PagePipeline(layout=self._layout, tables=self._tables, reading=watched, silent=self._silent)
            self._made[choice.name] = pipeline, watched
        pipeline, watched = self._made[choice.name]
        watched.seen = Seen()
        return pipeline, watched
