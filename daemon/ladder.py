"""The ladder of one page and of one document: which rung comes after which failure.

Core. Tables only, and a replay of what happened: `Standing.after` is a pure function of the outcomes so far, so every
parent that reads the same ledger stands on the same rung. A page only ever moves down, each failure moves something,
and failures are counted, so the number of children that one document can cost is bounded (`most_failures`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from daemon.model import Cause, Outcome, PageMode, Stage


class Failure(StrEnum):
    """What a page did to its child."""

    #: A crash while its picture was being read.
    CRASH_IN_OCR = "crash_in_ocr"
    #: A crash anywhere else.
    CRASH = "crash"
    MEMORY = "memory"
    #: No sign of life for `stall_s`.
    STALL = "stall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """Where a page stands."""

    mode: PageMode
    #: In a child of its own, so that it costs nobody else their work.
    alone: bool = False

    @property
    def rank(self) -> int:
        """Grows with each step down."""
        return 2 * list(PageMode).index(self.mode) + self.alone


_M, _F = PageMode, Failure
_APART = {mode: Footing(mode=mode, alone=True) for mode in PageMode}
_LOST = Footing(mode=PageMode.GAP)

#: (mode, alone) and failure → the next footing. A mode that is missing for "not alone" moves like its "alone" row.
_PAGE: Mapping[tuple[PageMode, bool], Mapping[Failure, Footing]] = {
    (_M.FULL, False): {
        _F.CRASH_IN_OCR: Footing(mode=_M.WITHOUT_OCR),
        _F.CRASH: _APART[_M.FULL],
        _F.MEMORY: _APART[_M.REDUCED],
        _F.STALL: Footing(mode=_M.WITHOUT_OCR),
    },
    (_M.FULL, True): {
        _F.CRASH_IN_OCR: _APART[_M.WITHOUT_OCR],
        _F.CRASH: _APART[_M.TEXT_ONLY],
        _F.MEMORY: _APART[_M.REDUCED],
        _F.STALL: _APART[_M.WITHOUT_OCR],
    },
    (_M.REDUCED, True): {
        _F.CRASH_IN_OCR: _APART[_M.WITHOUT_OCR],
        _F.CRASH: _APART[_M.TEXT_ONLY],
        _F.MEMORY: _APART[_M.TEXT_ONLY],
        _F.STALL: _APART[_M.WITHOUT_OCR],
    },
    (_M.WITHOUT_OCR, False): dict.fromkeys(Failure, _APART[_M.TEXT_ONLY]) | {_F.STALL: _APART[_M.SECOND_PARSER]},
    (_M.WITHOUT_OCR, True): dict.fromkeys(Failure, _APART[_M.TEXT_ONLY]) | {_F.STALL: _APART[_M.SECOND_PARSER]},
    (_M.TEXT_ONLY, True): dict.fromkeys(Failure, _APART[_M.SECOND_PARSER]),
    (_M.SECOND_PARSER, False): dict.fromkeys(Failure, _LOST),
    (_M.SECOND_PARSER, True): dict.fromkeys(Failure, _LOST),
    # Terminal: nothing of the page is touched, so nothing of it can fail again.
    (_M.GAP, False): dict.fromkeys(Failure, _LOST),
}

#: Modes of a whole document that could not even be opened, in the order in which they are tried.
_DOCUMENT: Mapping[PageMode, PageMode | None] = {
    _M.FULL: _M.WITHOUT_OCR,
    _M.WITHOUT_OCR: _M.SECOND_PARSER,
    _M.SECOND_PARSER: None,
}

#: Causes that move something, by what they are to a page.
_FAILURES: Mapping[Cause, Failure] = {
    Cause.CRASHED: Failure.CRASH,
    Cause.PROTOCOL: Failure.CRASH,
    Cause.SCRATCH: Failure.CRASH,
    Cause.ENGINE_ERROR: Failure.CRASH,
    Cause.MEMORY: Failure.MEMORY,
    Cause.STALLED: Failure.STALL,
}
#: All pages are done here; what fails is the document as a whole.
_TOGETHER = frozenset({Stage.ASSEMBLE, Stage.EXPORT, Stage.RESULT})


def failure_of(outcome: Outcome) -> Failure | None:
    """What the outcome is to the ladder; None for one that the ladder does not answer."""
    failure = _FAILURES.get(outcome.cause)
    if failure is Failure.CRASH and outcome.stage is Stage.OCR:
        return Failure.CRASH_IN_OCR
    return failure


def most_failures(max_page_crashes: int) -> int:
    """How many failures a document can have before it is given up, whatever it does.

    Pages: `max_page_crashes`, then as many again without OCR. The document as a whole: three modes of opening, two
    tries to assemble, one preview.
    """
    return 2 * (max_page_crashes + 1) + 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a document and its pages stand after what has happened."""

    #: Mode of every page that `footings` does not name.
    default: PageMode
    footings: Mapping[int, Footing] = field(default_factory=dict)
    #: Failures that named a page, since the last time that all of them were moved.
    page_failures: int = 0
    #: Everything was moved to WITHOUT_OCR because too many pages failed.
    reduced: bool = False
    assembly_failures: int = 0
    #: Make a picture of the first page.
    preview: bool = True
    #: Nothing more is tried.
    given_up: bool = False

    @classmethod
    def after(cls, outcomes: Sequence[Outcome], *, ocr: bool, max_page_crashes: int) -> Standing:
        """Replay `outcomes`, oldest first; `ocr` is what the sender asked for."""
        standing = cls(default=PageMode.FULL if ocr else PageMode.WITHOUT_OCR)
        for outcome in outcomes:
            standing = standing.moved(outcome, max_page_crashes=max_page_crashes)
        return standing

    def mode_of(self, page: int) -> PageMode:
        """How much of the engine `page` may use."""
        footing = self.footings.get(page)
        return self.default if footing is None else footing.mode

    def leaves_nothing_of(self, pages: int) -> bool:
        """Each of so many pages is a gap: no child can make anything of them, since none may touch them."""
        return all(self.mode_of(page) is PageMode.GAP for page in range(1, pages + 1))

    @property
    def apart(self) -> frozenset[int]:
        """Pages that get a child of their own."""
        return frozenset(page for page, footing in self.footings.items() if footing.alone)

    def moved(self, outcome: Outcome, *, max_page_crashes: int) -> Standing:
        """Where it stands after one more outcome; unmoved by one that is no failure."""
        failure = failure_of(outcome)
        if failure is None or self.given_up:
            return self
        if outcome.stage is Stage.PREVIEW:
            return replace(self, preview=False) if self.preview else replace(self, given_up=True)
        if outcome.stage in _TOGETHER:
            tries = self.assembly_failures + 1
            return replace(self, assembly_failures=tries, given_up=tries > 1)
        if outcome.page is None:
            default = _DOCUMENT.get(self.default)
            return replace(self, given_up=True) if default is None else self.all_at(default)
        return self._page_moved(outcome.page, failure, max_page_crashes)

    def _page_moved(self, page: int, failure: Failure, max_page_crashes: int) -> Standing:
        footing = self.footings.get(page, Footing(mode=self.default))
        footings = {**self.footings, page: _PAGE[footing.mode, footing.alone][failure]}
        standing = replace(self, footings=footings, page_failures=self.page_failures + 1)
        if standing.page_failures <= max_page_crashes:
            return standing
        if standing.reduced:
            return replace(standing, given_up=True)
        return replace(standing.all_at(PageMode.WITHOUT_OCR), reduced=True, page_failures=0)

    def all_at(self, mode: PageMode) -> Standing:
        """Every page at `mode`, but for those that stand lower."""
        default = max(self.default, mode, key=list(PageMode).index)
        floor = Footing(mode=default).rank
        lower = {page: footing for page, footing in self.footings.items() if footing.rank > floor}
        return replace(self, default=default, footings=lower)
