"""One document in one child: which pages are left, their conversion, and assembly when none is.

Engine. Pages are taken in ascending order, and a finished page is its blob at once: the page itself is dropped, and
restored pages are read when they are needed. All pages reach assembly through their blobs, so a resumed document
ends in the same bytes as an undisturbed one. Side information (preview) that fails costs itself only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from docling.datamodel.document import ConversionResult, InputDocument
from docling_core.types.doc import DoclingDocument, Size

from daemon.engine import checkpoint, export
from daemon.engine.api import Progress
from daemon.engine.checkpoint import FinishedPage
from daemon.engine.stages import PagePipeline
from daemon.engine.wording import is_memory, say
from daemon.errors import DocumentError
from daemon.heap import give_back_free_memory
from daemon.model import Cause, PageMode, PageRecord, PageState, Plan, Stage

#: Up to so many pages, assembling them needs less than converting one did.
_SHORT_PAGES = 8
#: The size of a page that nobody looked at, in a document of such pages.
_LETTER = Size(width=612.0, height=792.0)


@dataclass(slots=True, kw_only=True)
class Blobs:
    """The finished pages of one document: earlier children's, and those of this one."""

    engine: str
    earlier: Mapping[int, bytes]
    fresh: dict[int, bytes]

    def holds(self, number: int) -> bool:
        """Whether the page is finished, as far as its blob's checksum tells."""
        if number in self.fresh:
            return True
        blob = self.earlier.get(number)
        return blob is not None and checkpoint.intact(blob, page=number, engine=self.engine)

    def page(self, number: int) -> FinishedPage:
        """The page before assembly. Raises ValueError when its blob cannot be read."""
        blob = self.fresh.get(number) or self.earlier.get(number)
        if blob is None:
            raise ValueError(f"cannot restore page {number}: its blob is gone")
        return checkpoint.decode(blob, page=number, engine=self.engine)


def convert_wanted(
    blobs: Blobs, unfinished: Iterable[int], *, plan: Plan, convert: Callable[[int], FinishedPage], progress: Progress
) -> None:
    """Convert the pages that the plan wants, as many as the slice holds, and hand each over as it is finished."""
    room = plan.most_pages - len(blobs.fresh)
    wanted = [number for number in unfinished if plan.wants(number)][:room]
    for number in wanted:
        page = convert(number)
        blob = checkpoint.encode(page, engine=blobs.engine)
        blobs.fresh[number] = blob
        progress.page_done(PageRecord(page=number, report=page.report, blob=blob))
        if "ocr=" in page.report.engine and number != wanted[-1]:
            # A scan's next page needs as much again, in other pieces; text needs a third of it, and the same each time.
            give_back_free_memory()


def all_pages(blobs: Blobs, pages: int) -> tuple[list[FinishedPage], list[int]]:
    """All pages in order, and the numbers of those whose blobs cannot be read after all."""
    found: list[FinishedPage] = []
    damaged: list[int] = []
    for number in range(1, pages + 1):
        try:
            found.append(blobs.page(number))
        except ValueError:
            # One that this process wrote is a bug, and would be one again.
            if number in blobs.fresh:
                raise
            damaged.append(number)
    return found, damaged


def assembled(
    pipeline: PagePipeline, entry: InputDocument, pages: list[FinishedPage], *, progress: Progress
) -> dict[str, bytes]:
    """Markdown and JSON of all pages, whose elements are gone afterwards. Raises DocumentError, EMPTY among others."""
    if all(page.report.state is PageState.FAILED for page in pages):
        _raise_total_failure(pages)
    if len(pages) > _SHORT_PAGES:
        give_back_free_memory()  # a long document takes its place
    document = _document(pipeline, entry, with_sizes(pages))
    pages[:] = [replace(page, elements=()) for page in pages]  # the document has its own; export needs their place
    progress.stage(Stage.EXPORT)
    markdown = export.markdown(document)
    if any(page.inked for page in pages) and not export.can_be_read(markdown):
        raise DocumentError(Cause.EMPTY, _empty(pages))
    failures = {page.report.page: page.report.reason for page in pages if page.report.state is PageState.FAILED}
    if failures:
        export.mark_failed_pages(document, failures)
        markdown = export.markdown(document)
    return {"document.md": markdown, "document.json": export.lossless(document)}


def with_sizes(pages: list[FinishedPage]) -> list[FinishedPage]:
    """The pages, those without a size as large as the nearest one before them that has one, else after, else letter."""
    known = next((page.size for page in pages if page.size is not None), _LETTER)
    result = []
    for page in pages:
        known = known if page.size is None else page.size
        result.append(page if page.size is not None else replace(page, size=known))
    return result


def _document(pipeline: PagePipeline, entry: InputDocument, pages: list[FinishedPage]) -> DoclingDocument:
    try:
        return pipeline.assemble(ConversionResult(input=entry), pages)
    except DocumentError:
        raise
    except Exception as error:  # whatever a library raises here, the document has no result
        if is_memory(error):
            raise DocumentError(Cause.MEMORY, f"cannot assemble the document: out of memory ({say(error)})") from error
        raise DocumentError(Cause.ENGINE_ERROR, f"cannot assemble the document: {say(error)}") from error


def _empty(pages: list[FinishedPage]) -> str:
    detail = "every page was read and there is no text, although there is ink"
    silent = any(page.mode is PageMode.WITHOUT_OCR for page in pages)
    return f"{detail}; OCR was off" if silent else detail


def _raise_total_failure(pages: list[FinishedPage]) -> NoReturn:
    """No page was converted: the first page's own cause, or, where all were given up, that the engine could not."""
    first = pages[0]
    cause = next((page.cause for page in pages if page.cause is not None), Cause.ENGINE_ERROR)
    if len(pages) == 1 and first.cause is not None:
        raise DocumentError(cause, first.report.reason)
    detail = f"none of {len(pages)} pages could be converted; the first: {first.report.reason}"
    raise DocumentError(cause, detail)
