"""The engine: Docling without torch, loaded once, one document at a time.

Engine. `load` is the factory that production names. Everything a conversion needs is in memory when it
returns; nothing is fetched, ever. Neither `load` nor `warm_up` nor `convert` leaves a thread behind, and
`warm_up` converts nothing. The bytes are the same for the same document: no clock, no path and no
random id goes into them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from daemon.clock import SystemClock
from daemon.config import EngineSettings
from daemon.engine import runtime
from daemon.engine.api import Progress
from daemon.errors import DocumentError, EngineError
from daemon.model import Cause, Conversion, MediaType, Stage


def load(settings: EngineSettings, *, threads: int) -> DoclingEngine:
    """Load all models into this process.

    Raises EngineError naming the package when a declared part is missing or is another than declared.
    """
    runtime.prepare(threads)
    try:
        return DoclingEngine(settings, threads=threads)
    except ImportError as error:
        raise EngineError(f"cannot load the engine: package {error.name} is missing or broken ({error})") from error


class DoclingEngine:
    """See daemon.engine.api.Engine."""

    def __init__(self, settings: EngineSettings, *, threads: int) -> None:
        # Imported here, because all of them bring native code that `runtime.prepare` must come before.
        from daemon.engine import manifest  # noqa: PLC0415
        from daemon.engine.budget import Budget  # noqa: PLC0415
        from daemon.engine.layout import PageLayoutModel, PageLayoutOptions  # noqa: PLC0415
        from daemon.engine.ocr import PageReaderModel, ReaderOptions  # noqa: PLC0415
        from daemon.engine.reader import Reader  # noqa: PLC0415
        from daemon.engine.stages import PagePipeline  # noqa: PLC0415
        from daemon.engine.tables import PageTableModel, PageTableOptions  # noqa: PLC0415

        manifest.installed_packages()
        self._settings = settings
        self._budget = Budget(
            page_px=settings.page_budget_px, image_px=settings.image_budget_px, preview_px=settings.preview_budget_px
        )
        self._reader = Reader(settings.languages)
        self._layout = PageLayoutModel(options=PageLayoutOptions())
        self._pipeline = PagePipeline(
            layout=self._layout,
            tables=PageTableModel(options=PageTableOptions()),
            reading=PageReaderModel(options=ReaderOptions(), reader=self._reader),
            silent=PageReaderModel(options=ReaderOptions(), reader=None),
            clock=SystemClock(),
        )
        self._manifest = manifest.check(settings, threads=threads, models=runtime.loaded_models())

    @property
    def manifest(self) -> Mapping[str, object]:
        """What it is made of, as JSON values."""
        return self._manifest

    def warm_up(self) -> None:
        """Run each network once, parse and render a page, load the serializers; converts nothing."""
        from daemon.engine.warm import warm_up  # noqa: PLC0415 - native, see above

        warm_up(self._budget, self._layout, self._reader)

    def convert(
        self, data: bytes, *, media_type: MediaType, ocr: bool, scratch: Path, progress: Progress
    ) -> Conversion:
        """Convert one document. Nothing is written to `scratch`: all work is in memory.

        Raises DocumentError with the cause.
        """
        del scratch
        progress.stage(Stage.OPEN)
        source = self._open(data, media_type)
        try:
            return self._convert(source, data, media_type, ocr=ocr, progress=progress)
        finally:
            source.unload()

    def _open(self, data: bytes, media_type: MediaType) -> Any:
        from daemon.engine.images import ImageSource  # noqa: PLC0415 - native, see above
        from daemon.engine.pdf import PdfSource  # noqa: PLC0415

        if media_type is MediaType.PDF:
            return PdfSource(data, budget=self._budget, max_pages=self._settings.max_pages)
        return ImageSource(data, media_type=media_type, budget=self._budget, max_pages=self._settings.max_pages)

    def _convert(self, source: Any, data: bytes, media_type: MediaType, *, ocr: bool, progress: Progress) -> Conversion:
        from daemon.engine import export  # noqa: PLC0415 - native, see above
        from daemon.engine.stages import Job  # noqa: PLC0415

        job = Job(progress=progress, ocr=ocr, pages=source.page_count())
        self._pipeline.begin(job)
        document = self._run(source, data, media_type)
        if len(job.failures) == job.pages:
            _raise_total_failure(job)
        if job.inked and not export.has_text(document):
            detail = "every page was read and there is no text, although there is ink"
            raise DocumentError(Cause.EMPTY, detail if ocr else f"{detail}; OCR was off")
        progress.stage(Stage.EXPORT)
        export.mark_failed_pages(document, job.failures)
        artefacts = {"document.md": export.markdown(document), "document.json": export.lossless(document)}
        warnings = list(source.warnings)
        progress.stage(Stage.PREVIEW, 1)
        picture = self._preview(source, job, warnings)
        if picture is not None:
            artefacts["preview.webp"] = picture
        return Conversion(
            artefacts=artefacts, pages=tuple(job.reports), engine=self._manifest, warnings=tuple(warnings)
        )

    def _run(self, source: Any, data: bytes, media_type: MediaType) -> Any:
        """Docling's pipeline over the open document. Raises DocumentError."""
        from docling.datamodel.document import InputDocument  # noqa: PLC0415 - native, see above

        from daemon.engine.stages import is_memory, say  # noqa: PLC0415

        name = f"document.{media_type.value.rpartition('/')[2]}"
        # Docling would open the document itself; it is open already, with our causes told apart.
        opened: Any = lambda *_, **__: source  # noqa: E731
        entry = InputDocument(
            path_or_stream=io.BytesIO(data), format=source.input_format, backend=opened, filename=name
        )
        try:
            result = self._pipeline.execute(entry, raises_on_error=True)
        except RuntimeError as error:
            cause = error.__cause__ or error
            if isinstance(cause, DocumentError):
                raise cause from error
            if is_memory(cause):
                raise DocumentError(
                    Cause.MEMORY, f"cannot assemble the document: out of memory ({say(cause)})"
                ) from error
            raise DocumentError(Cause.ENGINE_ERROR, f"cannot assemble the document: {say(cause)}") from error
        return result.document

    def _preview(self, source: Any, job: Any, warnings: list[str]) -> bytes | None:
        """The first page's picture; its failure is a warning."""
        from daemon.engine.preview import preview  # noqa: PLC0415 - native, see above
        from daemon.engine.stages import say  # noqa: PLC0415

        try:
            page = source.load_page(0)
            if job.first_turn:
                page.turn(job.first_turn)
            return preview(page, self._budget)
        except Exception as error:  # noqa: BLE001 - side information: whatever fails, fails alone
            warnings.append(f"no preview: {say(error)}")
            return None


def _raise_total_failure(job: Any) -> NoReturn:
    """No page was converted: the first page's own cause, or that the document is malformed."""
    error = job.first_error
    first = next(iter(job.failures.values()))
    if isinstance(error, DocumentError):
        raise DocumentError(error.cause, first) from error
    raise DocumentError(Cause.MALFORMED, f"none of {job.pages} pages could be converted; the first: {first}") from error
