"""Docling's StandardPdfPipeline, one page after the other in the calling thread.

Engine. The stages and their order are Docling's (preprocess, layout, OCR, layout post-processing, tables,
assembly); what differs: no stage has a thread, so one page is in memory at a time, a crash belongs to the
page and stage announced last, and the process that converted has no more threads than before. No stage is
made by Docling's factories, which import torch. A page that fails costs itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from docling.datamodel.base_models import Page
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
from docling.models.stages.reading_order.readingorder_model import ReadingOrderModel, ReadingOrderOptions
from docling.pipeline.base_pipeline import BasePipeline
from docling.pipeline.standard_pdf_pipeline import ProcessingResult, StandardPdfPipeline

from daemon.clock import Clock
from daemon.engine.api import Progress
from daemon.engine.layout import PageLayoutModel
from daemon.engine.ocr import LEAST_INK, PageReaderModel, states
from daemon.engine.pages import SourcePage, turn_for_text
from daemon.engine.tables import PageTableModel
from daemon.errors import DocumentError
from daemon.model import Cause, PageReport, PageState, Stage

#: What native libraries say when an allocation was refused.
_NO_MEMORY = ("bad_alloc", "malloc", "calloc", "realloc", "cannot allocate", "failed to allocate", "out of memory")


class CellsOnly(PagePreprocessingModel):  # type: ignore[misc]
    """Docling's preprocessing without the picture that it makes of every page and that no stage of ours uses."""

    def _populate_page_images(self, page: Page) -> Page:
        return page


@dataclass(slots=True, kw_only=True)
class Job:
    """One conversion: what the pipeline is told, and the account that it gives."""

    progress: Progress
    ocr: bool
    pages: int
    reports: list[PageReport] = field(default_factory=list)
    #: Reason of each failed page.
    failures: dict[int, str] = field(default_factory=dict)
    #: The first failure, as it was raised.
    first_error: Exception | None = None
    #: Whether any page that yielded no text has ink.
    inked: bool = False
    #: Turn of the first page, for the preview.
    first_turn: int = 0


class PagePipeline(StandardPdfPipeline):  # type: ignore[misc]
    """See the module. `job` is set before each `execute`."""

    job: Job

    def __init__(
        self,
        *,
        layout: PageLayoutModel,
        tables: PageTableModel,
        reading: PageReaderModel,
        silent: PageReaderModel,
        clock: Clock,
    ) -> None:
        options = ThreadedPdfPipelineOptions()
        BasePipeline.__init__(self, options)
        self.pipeline_options = options
        self._clock = clock
        self._reading, self._silent = reading, silent
        self.ocr_model = silent
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
        self.reading_order_model = ReadingOrderModel(options=ReadingOrderOptions(use_page_separators=separators))
        self.heading_hierarchy_model = HeadingHierarchyModel(options=HeadingHierarchyOptions())
        self.enrichment_pipe: list[Any] = []

    def begin(self, job: Job) -> None:
        """Take up a conversion."""
        self.job = job
        self.ocr_model = self._reading if job.ocr else self._silent
        for model in (self.layout_model, self.table_model, self.ocr_model):
            model.progress = job.progress

    def _build_document(self, conv_res: ConversionResult) -> ConversionResult:
        """Every page through every stage; Docling's own loop, without its threads."""
        source = conv_res.input._backend  # noqa: SLF001 - Docling's pipelines reach the backend so
        outcome = ProcessingResult(total_expected=self.job.pages)
        for number in range(1, self.job.pages + 1):
            page = Page(page_no=number)
            conv_res.pages.append(page)
            started = self._clock.monotonic()
            try:
                report = self._convert_page(conv_res, page, source)
            except Exception as error:  # noqa: BLE001 - whatever a library raises, it costs this page only
                report = self._failed(number, error)
                outcome.failed_pages.append((number, error, None))
            else:
                outcome.pages.append(page)
            finally:
                self._release(page)
            elapsed_s = round(self._clock.monotonic() - started, 3)
            self._account(report, elapsed_s)
        self._integrate_results(conv_res, outcome)
        return conv_res

    def _convert_page(self, conv_res: ConversionResult, page: Page, source: Any) -> PageReport:
        """One page through all stages."""
        self.job.progress.stage(Stage.PARSE, page.page_no)
        backend: SourcePage = source.load_page(page.page_no - 1)
        page._backend = backend  # noqa: SLF001
        backend.get_segmented_page()
        _set_upright(backend)
        if self.job.ocr:
            self.ocr_model.look(backend)
        page.size = backend.get_size()
        conv_res._page_sizes_by_no[page.page_no] = page.size  # noqa: SLF001 - as Docling's own loop does
        if page.page_no == 1:
            self.job.first_turn = backend.turned
        stages = (
            self.preprocessing_model,
            self.layout_model,
            self.ocr_model,
            self.layout_postprocessing_model,
            self.table_model,
            self.assemble_model,
        )
        for stage in stages:
            list(stage(conv_res, [page]))
        return self._report(page, backend)

    def _report(self, page: Page, backend: SourcePage) -> PageReport:
        notes = backend.notes
        layer, read = states(page.cells)
        remarks = list(notes.remarks)
        if layer or read:
            state = PageState.MIXED if layer and read else PageState.TEXT if layer else PageState.OCR
        else:
            state = PageState.BLANK
            ink = backend.ink() if notes.ink is None else notes.ink
            if ink >= LEAST_INK:
                self.job.inked = True
                if self.job.ocr:
                    remarks.append("there is ink, and no text was found in it")
                else:
                    notes.degraded.append("no text layer, and OCR was off")
        if notes.degraded:
            state = PageState.DEGRADED
        engine = " ".join(f"{role}={name}" for role, name in notes.engines.items())
        return PageReport(page=page.page_no, state=state, engine=engine, reason="; ".join([*notes.degraded, *remarks]))

    def _failed(self, number: int, error: Exception) -> PageReport:
        """The account of a page that raised. Raises DocumentError(MEMORY) when memory ran out: no page may go on."""
        if is_memory(error):
            raise DocumentError(Cause.MEMORY, f"cannot convert page {number}: out of memory ({say(error)})") from error
        if self.job.first_error is None:
            self.job.first_error = error
        reason = say(error)
        self.job.failures[number] = reason
        return PageReport(page=number, state=PageState.FAILED, engine="", reason=reason)

    def _account(self, report: PageReport, elapsed_s: float) -> None:
        timed = PageReport(
            page=report.page, state=report.state, engine=report.engine, reason=report.reason, elapsed_s=elapsed_s
        )
        self.job.reports.append(timed)
        self.job.progress.page_done(timed, self.job.pages)

    @staticmethod
    def _release(page: Page) -> None:
        page._image_cache = {}  # noqa: SLF001 - as Docling's own loop does
        page.parsed_page = None
        if page._backend is not None:  # noqa: SLF001
            page._backend.unload()  # noqa: SLF001
            page._backend = None  # noqa: SLF001

    def _unload(self, conv_res: ConversionResult) -> None:
        """The document stays open for the preview; whoever opened it closes it."""

    def _assemble_document(self, conv_res: ConversionResult) -> ConversionResult:
        self.job.progress.stage(Stage.ASSEMBLE)
        return super()._assemble_document(conv_res)


def _set_upright(page: SourcePage) -> None:
    """Turn a page whose own text runs another way than from left to right."""
    degrees = turn_for_text(page.get_visible_text_cells())
    if degrees:
        page.turn(degrees)
        page.notes.remarks.append(f"turned by {degrees} degrees to be read")


def is_memory(error: BaseException) -> bool:
    """Whether an exception, or one behind it, says that an allocation was refused."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).lower()
        if isinstance(seen, MemoryError) or any(sign in text for sign in _NO_MEMORY):
            return True
        seen = seen.__cause__
    return False


def say(error: BaseException) -> str:
    """The first line of what was raised, bounded: the rest may be document text or a foreign traceback."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
