"""Docling's StandardPdfPipeline, one page after the other in the calling thread.

Engine. The stages and their order are Docling's (preprocess, layout, OCR, layout post-processing, tables,
assembly); what differs: no stage has a thread, so one page is in memory at a time, a crash belongs to the
page and stage announced last, and the process that converted has no more threads than before. No stage is
made by Docling's factories, which import torch. A page leaves as a `FinishedPage`, and assembly knows no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from docling.datamodel.base_models import AssembledUnit, Page
from docling.datamodel.document import ConversionResult
from docling.datamodel.pipeline_options import (
    HeadingHierarchyOptions,
    LayoutPostprocessorOptions,
    ThreadedPdfPipelineOptions,
)
from docling.models.stages.heading_hierarchy.heading_hierarchy_model import HeadingHierarchyModel
from docling.models.stages.layout.layout_postprocessing_model import LayoutPostprocessingModel
from docling.models.stages.page_assemble.page_assemble_model import PageAssembleModel, PageAssembleOptions
from docling.models.stages.page_preprocessing.page_preprocessing_model import (
    PagePreprocessingModel,
    PagePreprocessingOptions,
)
from docling.models.stages.reading_order.readingorder_model import ReadingOrderOptions
from docling.pipeline.base_pipeline import BasePipeline
from docling.pipeline.standard_pdf_pipeline import StandardPdfPipeline
from docling_core.types.doc import BoundingBox, DocItemLabel, DoclingDocument

from daemon.engine import blocks, lines, listings
from daemon.engine.api import Progress
from daemon.engine.checkpoint import FinishedPage
from daemon.engine.layout import PageLayoutModel
from daemon.engine.ocr import LEAST_INK, PageReaderModel, states
from daemon.engine.order import ReadingOrder
from daemon.engine.pages import SourcePage, turn_for_text
from daemon.engine.regions import keep_text_of_bare_page
from daemon.engine.tables import PageTableModel
from daemon.heap import give_back_free_memory
from daemon.model import PageMode, PageReport, PageState, Stage

#: The layout network needs memory by the pieces of text; a full page has a hundred, a page of an index a thousand.
_MANY_CELLS = 200


class CellsOnly(PagePreprocessingModel):  # type: ignore[misc]
    """Docling's preprocessing without the picture that it makes of every page and that no stage of ours uses."""

    def _populate_page_images(self, page: Page) -> Page:
        return page


class PagePipeline(StandardPdfPipeline):  # type: ignore[misc]
    """See the module. `begin` comes before each document."""

    progress: Progress
    #: A page of this document went through here.
    _used: bool

    def __init__(
        self,
        *,
        layout: PageLayoutModel,
        tables: PageTableModel,
        reading: PageReaderModel,
        silent: PageReaderModel,
    ) -> None:
        options = ThreadedPdfPipelineOptions()
        BasePipeline.__init__(self, options)
        self.pipeline_options = options
        self._reading, self._silent = reading, silent
        self.layout_model = layout
        self.table_model = tables
        self.keep_images = self.keep_backend = False
        self._init_stages()

    def _init_stages(self) -> None:
        """The stages that are Docling's own, as its pipeline makes them."""
        separators = self.pipeline_options.use_reading_order_separators
        self.preprocessing_model = CellsOnly(
            PagePreprocessingOptions(images_scale=None, capture_reading_order_separators=separators)
        )
        layout_options = self.layout_model.options
        self.layout_postprocessing_model = LayoutPostprocessingModel(
            options=LayoutPostprocessorOptions(
                skip_cell_assignment=layout_options.skip_cell_assignment,
                keep_empty_clusters=layout_options.keep_empty_clusters,
                create_orphan_clusters=layout_options.create_orphan_clusters,
            )
        )
        self.assemble_model = PageAssembleModel(options=PageAssembleOptions())
        self.reading_order_model = ReadingOrder(options=ReadingOrderOptions(use_page_separators=separators))
        self.heading_hierarchy_model = HeadingHierarchyModel(options=HeadingHierarchyOptions())
        self.enrichment_pipe: list[Any] = []

    def begin(self, progress: Progress) -> None:
        """Take up a document."""
        self.progress = progress
        self._used = False
        for model in (self.layout_model, self.table_model, self._reading, self._silent):
            model.progress = progress

    def convert(self, conv_res: ConversionResult, backend: SourcePage, *, ocr: bool) -> FinishedPage:
        """One page through all stages; `conv_res` is the page's own. Raises whatever a library raises."""
        page = Page(page_no=backend.number)
        conv_res.pages.append(page)
        page._backend = backend  # noqa: SLF001 - Docling's pipelines reach the backend so
        reading = self._reading if ocr else self._silent
        if self._used and len(backend.get_segmented_page().textline_cells) > _MANY_CELLS:
            give_back_free_memory()
        self._used = True
        _set_upright(backend)
        reading.look(backend)
        page.size = backend.get_size()
        stages = (
            self.preprocessing_model,
            self.layout_model,
            reading,
            self.layout_postprocessing_model,
            self.table_model,
            self.assemble_model,
        )
        for stage in stages:
            list(stage(conv_res, [page]))
            if stage is self.layout_postprocessing_model:
                _keep_text_of_furniture(page)
                _refine(page)
                lines.mend(page.predictions.layout.clusters if page.predictions.layout is not None else ())
        _set_code(page)
        report, inked = account(page, backend, ocr=ocr)
        assert page.assembled is not None, "the last stage assembles"
        return FinishedPage(
            report=report,
            mode=PageMode.FULL if ocr else PageMode.WITHOUT_OCR,
            size=page.size,
            elements=tuple(page.assembled.elements),
            shape_lines=_shapes(page._shape_lines),  # noqa: SLF001 - they steer the reading order
            shape_boxes=_shapes(page._shape_bounding_boxes),  # noqa: SLF001
            scores=conv_res.confidence.pages[page.page_no],
            turned=backend.turned,
            inked=inked,
        )

    def assemble(self, conv_res: ConversionResult, pages: Iterable[FinishedPage]) -> DoclingDocument:
        """The document of all pages, in order; those that failed are empty pages in it. `conv_res` has no pages yet."""
        self.progress.stage(Stage.ASSEMBLE)
        for finished in pages:
            number = finished.report.page
            assert finished.size is not None, "sizes are known or guessed by now"
            conv_res._page_sizes_by_no[number] = finished.size  # noqa: SLF001 - as Docling's own loop does
            if finished.report.state is PageState.FAILED:
                continue
            # Assembly reads `elements` alone; headers and body are the same again.
            page = Page(page_no=number, size=finished.size, assembled=AssembledUnit(elements=list(finished.elements)))
            page._shape_lines = _listed(finished.shape_lines)  # noqa: SLF001
            page._shape_bounding_boxes = _listed(finished.shape_boxes)  # noqa: SLF001
            conv_res.pages.append(page)
            conv_res.confidence.pages[number] = finished.scores
        return self._assemble_document(conv_res).document


def account(page: Page, backend: SourcePage, *, ocr: bool) -> tuple[PageReport, bool]:
    """What became of a page that went through all stages, and whether it has ink and no text."""
    notes = backend.notes
    layer, read = states(page.cells)
    inked = False
    if layer or read:
        state = PageState.MIXED if layer and read else PageState.TEXT if layer else PageState.OCR
    else:
        state = PageState.BLANK
        ink = backend.ink() if notes.ink is None else notes.ink
        inked = ink >= LEAST_INK
        if inked:
            lost = "there is ink, and no text was found in it" if ocr else "no text layer, and OCR was off"
            notes.degraded.append(lost)
    if notes.degraded:
        state = PageState.DEGRADED
    engine = " ".join(f"{role}={name}" for role, name in notes.engines.items())
    reason = "; ".join([*notes.degraded, *notes.remarks])
    return PageReport(page=page.page_no, state=state, engine=engine, reason=reason), inked


def _keep_text_of_furniture(page: Page) -> None:
    """A page with nothing on it but headers and footers is a page of text."""
    layout = page.predictions.layout
    if layout is not None and not any(c.label is DocItemLabel.PICTURE for c in layout.clusters):
        keep_text_of_bare_page(layout.clusters)


def _refine(page: Page) -> None:
    """Look at the letters of what the layout found."""
    layout = page.predictions.layout
    if layout is not None:
        layout.clusters = blocks.refine(layout.clusters)


def _set_code(page: Page) -> None:
    """Docling joins the lines of any text; code keeps its own."""
    assert page.assembled is not None, "the last stage assembles"
    for element in page.assembled.elements:
        if element.label is DocItemLabel.CODE:
            element.text = listings.code_text(element.cluster.cells)


def _shapes(boxes: list[BoundingBox] | None) -> tuple[BoundingBox, ...] | None:
    return None if boxes is None else tuple(boxes)


def _listed(boxes: tuple[BoundingBox, ...] | None) -> list[BoundingBox] | None:
    return None if boxes is None else list(boxes)


def _set_upright(page: SourcePage) -> None:
    """Turn a page whose own text runs another way than from left to right."""
    degrees = turn_for_text(page.get_visible_text_cells())
    if degrees:
        page.turn(degrees)
        page.notes.remarks.append(f"turned by {degrees} degrees to be read")
