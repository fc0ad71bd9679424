"""The nouns of one page: how its text was come by, how much of the engine it may use, what is kept of it.

Core. Pages are counted from 1, in the document's own order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PageState(StrEnum):
    """How a page's text was come by."""

    #: From the page's own text layer.
    TEXT = "text"
    #: Read from its picture.
    OCR = "ocr"
    #: Both.
    MIXED = "mixed"
    #: No ink worth reading.
    BLANK = "blank"
    #: Converted with less than the whole engine (without OCR, without layout); `reason` says why.
    DEGRADED = "degraded"
    #: Not converted; `reason` says why, and the Markdown bears a mark.
    FAILED = "failed"


class PageMode(StrEnum):
    """How much of the engine a page may use; from most to least, which is the order in which they are tried."""

    #: Layout, OCR where needed, tables.
    FULL = "full"
    #: The same, rendered at a quarter of the pixel budget.
    REDUCED = "reduced"
    #: Layout and tables; no picture is read.
    WITHOUT_OCR = "without_ocr"
    #: The text layer in its own order; no network runs.
    TEXT_ONLY = "text_only"
    #: The text layer as another parser (pypdfium2) reads it; the usual parsers never see the page.
    SECOND_PARSER = "second_parser"
    #: The page is not touched: it is lost, and said so.
    GAP = "gap"


#: Modes in which a page's picture may be read.
OCR_MODES = frozenset({PageMode.FULL, PageMode.REDUCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one child is to do with which page. It takes unfinished pages in ascending order."""

    #: Mode of every page that `modes` does not name.
    default: PageMode = PageMode.FULL
    modes: Mapping[int, PageMode] = field(default_factory=dict)
    #: Pages that are left to later children.
    skip: frozenset[int] = frozenset()
    #: Convert this page and no other.
    only: int | None = None
    #: Convert so many pages at most, then leave; the slice that bounds a child's memory.
    most_pages: int = 1_000_000
    #: Make a picture of the first page.
    preview: bool = True

    def mode_of(self, page: int) -> PageMode:
        """How much of the engine `page` may use."""
        return self.modes.get(page, self.default)

    def wants(self, page: int) -> bool:
        """Whether this child converts `page`, if it is not finished and the slice is not full."""
        return page == self.only if self.only is not None else page not in self.skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReport:
    """One page's account in the manifest."""

    #: Counted from 1, in the document's own order.
    page: int
    state: PageState
    #: What read it, for instance `layout=pymupdf ocr=rapidocr`.
    engine: str
    #: Why the state is not plain `text` or `ocr`; empty where there is nothing to say.
    reason: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRecord:
    """One finished page as a child sent it: the checkpoint.

    `blob` is opaque to the parent: only a child of the same document, options and engine opens it.
    """

    page: int
    report: PageReport
    blob: bytes
