"""One page in the mode that the plan gives it, and in lesser ones when a library raises.

Engine. A page always ends as a `FinishedPage`, if its child lives: what raises in a fuller mode is tried with the text
layer alone, then with the second parser, then the page is failed and says why. Only memory ends the child. A stage is
announced with the page before each try; a page in SECOND_PARSER is never loaded by MuPDF, one in GAP by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from docling.datamodel.document import ConversionResult, InputDocument

from daemon.clock import Clock
from daemon.engine.api import Progress
from daemon.engine.budget import Budget
from daemon.engine.checkpoint import FinishedPage
from daemon.engine.plain import PlainText, SecondParser, by_mupdf
from daemon.engine.stages import PagePipeline
from daemon.engine.wording import is_memory, say
from daemon.errors import DocumentError
from daemon.model import OCR_MODES, Cause, PageMode, PageReport, PageState, Stage

#: What is tried in the same child when a mode raises.
_THEN: Mapping[PageMode, tuple[PageMode, ...]] = {
    PageMode.FULL: (PageMode.TEXT_ONLY, PageMode.SECOND_PARSER),
    PageMode.REDUCED: (PageMode.TEXT_ONLY, PageMode.SECOND_PARSER),
    PageMode.WITHOUT_OCR: (PageMode.TEXT_ONLY, PageMode.SECOND_PARSER),
    PageMode.TEXT_ONLY: (PageMode.SECOND_PARSER,),
    PageMode.SECOND_PARSER: (),
}
#: Said of a page that the plan gives up.
LOST = "lost: it ended every child that opened it"
_WHY = {
    PageMode.REDUCED: "rendered at a quarter of the pixel budget",
    PageMode.WITHOUT_OCR: "read without OCR",
    PageMode.TEXT_ONLY: "text layer only, in its own order",
    PageMode.SECOND_PARSER: "text layer only, by the second parser",
}
#: A quarter of the pixels.
_REDUCED = 4


class PageConverter:
    """Converts the pages of one open document."""

    def __init__(
        self,
        *,
        pipeline: PagePipeline,
        entry: InputDocument,
        source: Any,
        second: Callable[[], SecondParser],
        progress: Progress,
        clock: Clock,
    ) -> None:
        """`second` opens the second parser, once; `source` is what `entry` has as its backend."""
        self._pipeline = pipeline
        self._entry = entry
        self._source = source
        self._second = second
        self._progress = progress
        self._clock = clock

    def convert(self, number: int, mode: PageMode, *, lowered: bool) -> FinishedPage:
        """Page `number`; `lowered` says that `mode` is this page's own and not the whole document's.

        Raises DocumentError(MEMORY) when memory ran out: no page may go on in this process.
        """
        started = self._clock.monotonic()
        page = gap(number) if mode is PageMode.GAP else self._tried(number, mode, lowered=lowered)
        elapsed_s = round(self._clock.monotonic() - started, 3)
        return replace(page, report=replace(page.report, elapsed_s=elapsed_s))

    def _tried(self, number: int, mode: PageMode, *, lowered: bool) -> FinishedPage:
        why = [_WHY[mode]] if mode in _WHY and (lowered or mode is not PageMode.WITHOUT_OCR) else []
        first: Exception | None = None
        lesser = _THEN[mode] if self._source.has_text_layers else ()
        for rung in (mode, *lesser):
            self._progress.stage(Stage.PARSE, number)
            try:
                return _degraded(self._at(number, rung), why)
            except Exception as error:  # whatever a library raises, it costs this page only
                if is_memory(error):
                    detail = f"cannot convert page {number}: out of memory ({say(error)})"
                    raise DocumentError(Cause.MEMORY, detail) from error
                first = first or error
                why = [*why, f"{rung.value} failed ({say(error)})"]
        assert first is not None, "every mode is tried once at least"
        return _failed(number, mode, first)

    def _at(self, number: int, mode: PageMode) -> FinishedPage:
        if mode is PageMode.SECOND_PARSER and self._source.has_text_layers:
            return _plain_page(number, mode, self._second().read(number), by="pypdfium2")
        if mode in {PageMode.TEXT_ONLY, PageMode.SECOND_PARSER} and not self._source.has_text_layers:
            raise DocumentError(Cause.ENGINE_ERROR, "a picture has no text layer, and may not be read in full")
        page = load(self._source, number, mode)
        try:
            if mode is PageMode.TEXT_ONLY:
                return _plain_page(number, mode, by_mupdf(page), by="mupdf")
            result = ConversionResult(input=self._entry)
            return replace(self._pipeline.convert(result, page, ocr=mode in OCR_MODES), mode=mode)
        finally:
            page.unload()


def load(source: Any, number: int, mode: PageMode) -> Any:
    """A page of an open document, with the pixel budget of its mode. Raises DocumentError."""
    budget: Budget = source.budget
    if mode is PageMode.REDUCED:
        source.budget = replace(budget, page_px=budget.page_px // _REDUCED)
    try:
        return source.load_page(number - 1)
    finally:
        source.budget = budget


def gap(number: int) -> FinishedPage:
    """A page that nobody touches."""
    report = PageReport(page=number, state=PageState.FAILED, engine="", reason=LOST)
    return FinishedPage(report=report, mode=PageMode.GAP, size=None)


def _failed(number: int, mode: PageMode, error: Exception) -> FinishedPage:
    cause = error.cause if isinstance(error, DocumentError) else Cause.MALFORMED
    report = PageReport(page=number, state=PageState.FAILED, engine="", reason=say(error))
    return FinishedPage(report=report, mode=mode, size=None, cause=cause)


def _plain_page(number: int, mode: PageMode, text: PlainText, *, by: str) -> FinishedPage:
    """A page of which only the text layer was read; without one, nobody knows whether there is ink."""
    report = PageReport(page=number, state=PageState.DEGRADED, engine=f"text={by}")
    return FinishedPage(
        report=report, mode=mode, size=text.size, elements=text.elements(number), inked=not text.paragraphs
    )


def _degraded(page: FinishedPage, why: list[str]) -> FinishedPage:
    """The page with what was left out in front of its reason."""
    reasons = list(why)
    if page.mode in {PageMode.TEXT_ONLY, PageMode.SECOND_PARSER}:
        said = _WHY[page.mode]
        reasons = [*(reason for reason in reasons if reason != said), said]
        if not page.elements:
            reasons.append("there is no text in it")
    if not reasons:
        return page
    reason = "; ".join([*reasons, page.report.reason] if page.report.reason else reasons)
    return replace(page, report=replace(page.report, state=PageState.DEGRADED, reason=reason))
