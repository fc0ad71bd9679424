"""The engine: Docling without torch, loaded once, one document at a time.

Engine. `load` is the factory that production names. Everything a conversion needs is in memory when it
returns; nothing is fetched, ever. Neither `load` nor `warm_up` nor `convert` leaves a thread behind, and
`warm_up` converts nothing. The bytes are the same for the same document: no clock, no path and no
random id goes into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from daemon.clock import SystemClock
from daemon.config_engine import EngineSettings
from daemon.engine import runtime
from daemon.engine.api import Progress
from daemon.errors import EngineError
from daemon.model import Conversion, MediaType, Plan, Stage


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
        from daemon.engine.document import OpenDocument  # noqa: PLC0415
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
        )
        self._clock = SystemClock()
        self._open = OpenDocument
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
        self,
        data: bytes,
        *,
        media_type: MediaType,
        plan: Plan,
        finished: Mapping[int, bytes],
        scratch: Path,
        progress: Progress,
    ) -> Conversion | None:
        """See daemon.engine.api.Engine. Nothing is written to `scratch`: all work is in memory."""
        del scratch
        progress.stage(Stage.OPEN)
        document = self._open(
            data,
            media_type=media_type,
            plan=plan,
            budget=self._budget,
            max_pages=self._settings.max_pages,
            pipeline=self._pipeline,
            progress=progress,
            clock=self._clock,
        )
        try:
            return document.convert(finished, manifest=self._manifest)
        finally:
            document.close()
