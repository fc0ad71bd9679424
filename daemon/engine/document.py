"""One open document in one child: its parsers, its pages, its preview.

Engine. MuPDF opens a PDF unless the plan's default is SECOND_PARSER; then only pdfium does. The second parser is
opened at the first page that needs it. Whatever is opened here is closed here. Causes are those of `DocumentError`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from docling.datamodel.document import InputDocument

from daemon.clock import Clock
from daemon.engine import conversion, preview
from daemon.engine.api import Progress
from daemon.engine.budget import Budget
from daemon.engine.checkpoint import FinishedPage, engine_digest
from daemon.engine.images import ImageSource
from daemon.engine.modes import PageConverter, load
from daemon.engine.pdf import PdfSource
from daemon.engine.plain import SecondParser, SecondSource
from daemon.engine.stages import PagePipeline
from daemon.engine.wording import say
from daemon.model import Conversion, MediaType, PageMode, Plan, Stage

#: Modes in which the usual parsers saw the first page and lived.
_PICTURED = frozenset({PageMode.FULL, PageMode.REDUCED, PageMode.WITHOUT_OCR})


class OpenDocument:
    """See the module."""

    def __init__(
        self,
        data: bytes,
        *,
        media_type: MediaType,
        plan: Plan,
        budget: Budget,
        max_pages: int,
        pipeline: PagePipeline,
        progress: Progress,
        clock: Clock,
    ) -> None:
        """Open `data`, and say how many pages it has. Raises DocumentError."""
        self._data = data
        self._plan = plan
        self._pipeline = pipeline
        self._progress = progress
        self._parser: SecondParser | None = None
        self._second_only = media_type is MediaType.PDF and plan.default is PageMode.SECOND_PARSER
        self._source = self._open(media_type, budget, max_pages)
        self.pages: int = self._source.page_count()
        progress.opened(self.pages)
        # Docling would open the document itself; it is open already, with our causes told apart.
        opened: Any = lambda *_, **__: self._source  # noqa: E731
        self._entry = InputDocument(
            path_or_stream=io.BytesIO(data),
            format=self._source.input_format,
            backend=opened,
            filename=f"document.{media_type.value.rpartition('/')[2]}",
        )
        self._converter = PageConverter(
            pipeline=pipeline,
            entry=self._entry,
            source=self._source,
            second=self._second,
            progress=progress,
            clock=clock,
        )

    def _open(self, media_type: MediaType, budget: Budget, max_pages: int) -> Any:
        if media_type is not MediaType.PDF:
            return ImageSource(self._data, media_type=media_type, budget=budget, max_pages=max_pages)
        if self._second_only:
            return SecondSource(self._second(), max_pages=max_pages)
        return PdfSource(self._data, budget=budget, max_pages=max_pages)

    def _second(self) -> SecondParser:
        """The second parser, opened once. Raises DocumentError."""
        if self._parser is None:
            self._parser = SecondParser(self._data)
            if not self._second_only and self._parser.pages != self.pages:
                self._source.warnings.append(f"MuPDF sees {self.pages} pages, pdfium {self._parser.pages}")
        return self._parser

    def convert(self, finished: Mapping[int, bytes], *, manifest: Mapping[str, object]) -> Conversion | None:
        """See daemon.engine.api.Engine."""
        self._pipeline.begin(self._progress)
        blobs = conversion.Blobs(engine=engine_digest(manifest), earlier=finished, fresh={})
        left = [number for number in range(1, self.pages + 1) if not blobs.holds(number)]
        pages: list[FinishedPage] = []
        while left or not pages:
            done = len(blobs.fresh)
            conversion.convert_wanted(blobs, left, plan=self._plan, convert=self._convert_page, progress=self._progress)
            if len(blobs.fresh) - done < len(left):
                return None
            # A blob may be intact and still not a page: then that page is converted after all.
            pages, left = conversion.all_pages(blobs, self.pages)
        return self._whole(pages, manifest)

    def _whole(self, pages: list[FinishedPage], manifest: Mapping[str, object]) -> Conversion:
        made = conversion.assembled(self._pipeline, self._entry, pages, progress=self._progress)
        picture, warnings = self._preview(pages[0])
        return Conversion(
            artefacts=made | picture,
            pages=tuple(page.report for page in pages),
            engine=manifest,
            warnings=(*self._source.warnings, *warnings),
        )

    def _convert_page(self, number: int) -> FinishedPage:
        mode = self._plan.mode_of(number)
        if self._second_only and mode is not PageMode.GAP:
            mode = PageMode.SECOND_PARSER
        return self._converter.convert(number, mode, lowered=number in self._plan.modes)

    def _preview(self, first: FinishedPage) -> tuple[dict[str, bytes], list[str]]:
        """The first page's picture, or why there is none."""
        if not self._plan.preview:
            return {}, ["no preview: it ended the child that made it"]
        if first.mode not in _PICTURED:
            return {}, ["no preview: the first page may not be rendered"]
        self._progress.stage(Stage.PREVIEW, 1)
        try:
            page = load(self._source, 1, first.mode)
            if first.turned:
                page.turn(first.turned)
            return {"preview.webp": preview.preview(page, self._source.budget)}, []
        except Exception as error:  # noqa: BLE001 - side information: whatever fails, fails alone
            return {}, [f"no preview: {say(error)}"]

    def close(self) -> None:
        """Close every parser."""
        self._source.unload()
        if self._parser is not None:
            self._parser.close()
