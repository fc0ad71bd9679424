"""What the child and the engine owe each other.

Engine, but imports nothing native: the child, the zygote and the tests' small engines know the real one
only through this page. A factory is named `package.module:function` and is called once per process,
before any document is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from daemon.model import Conversion, MediaType, PageRecord, Plan, Stage

if TYPE_CHECKING:
    from daemon.config_engine import EngineSettings

#: The engine that production runs.
DEFAULT_FACTORY = "daemon.engine.pipeline:load"


class Progress(Protocol):
    """How an engine says where it is; both methods may be called from any thread of the child."""

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """Announce `stage`, of `page` (from 1) where there is one, *before* native code is entered."""
        ...

    def opened(self, pages: int) -> None:
        """Say how many pages the document has, as soon as that is known and before the first page."""
        ...

    def page_done(self, record: PageRecord) -> None:
        """Hand over one finished page with its account; each page once, in ascending order."""
        ...


class Engine(Protocol):
    """A loaded engine: all models in memory, nothing converted yet."""

    @property
    def manifest(self) -> Mapping[str, object]:
        """What it is made of, as JSON values: versions, model digests, OCR backend, languages, threads."""
        ...

    def warm_up(self) -> None:
        """Do once what every conversion would otherwise do again; leaves no thread behind."""
        ...

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
        """Convert what `plan` wants of one document; only `scratch` may be written.

        `finished` holds the blobs of pages that earlier children handed over; one that cannot be read counts as not
        finished. When every page is finished, all of them, restored and fresh alike through the same blobs, are
        assembled, and the conversion is the same bytes as that of one child without a plan. None: pages are left.
        Raises DocumentError with the cause when the document, and not the engine, is at fault.
        """
        ...


class Factory(Protocol):
    """Loads an engine."""

    def __call__(self, settings: EngineSettings, *, threads: int) -> Engine:
        """Load everything that a conversion needs.

        Raises EngineError naming the package when a declared part is missing or is another than declared.
        """
        ...
