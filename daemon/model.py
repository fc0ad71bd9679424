"""The nouns of the daemon: what a message points to, what was tried, what came of it.

Core. Values only: frozen, slotted, keyword-only, no I/O and no clock. Instants ending in `_at` are
aware UTC and only ever shown or stored; deadlines that decide something are monotonic and live with
whoever enforces them. Counting starts at 1 for pages, attempts and children.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class MediaType(StrEnum):
    """What a document is, by its first bytes and never by its name."""

    #: `%PDF-` within the first 1024 bytes.
    PDF = "application/pdf"
    PNG = "image/png"
    JPEG = "image/jpeg"
    #: One or many frames; each frame is a page.
    TIFF = "image/tiff"


class Problem(StrEnum):
    """Whose problem a failure is; it decides what becomes of the message."""

    #: Dead-letter: another try on another host would end the same way.
    DOCUMENT = "document"
    #: Release with back-off: the document was not at fault, and the attempt is not counted.
    WORLD = "world"
    #: Refuse to start, or stop receiving: a person must change something first.
    OPERATOR = "operator"


class Cause(StrEnum):
    """Why a child's life, or an attempt, ended as it did."""

    #: The child reported a valid result and left with status 0.
    CONVERTED = "converted"
    #: The child converted its share of the pages and left with status 0; a fresh one goes on.
    SLICED = "sliced"

    # The document killed, or outlasted, its child. Transient: an engine change may cure it.
    #: A signal that we did not send, or an end without a result, whatever the exit status.
    CRASHED = "crashed"
    #: Bytes that are no frame, frames out of order, or more than the limit: the child is not to be believed.
    PROTOCOL = "protocol"
    #: The document's deadline passed and the child was killed.
    TIMEOUT = "timeout"
    #: No sign of life from one page and stage for `child.stall_s`; the child was killed.
    STALLED = "stalled"
    #: The child reached its memory limit (it said so, or it was killed for it).
    MEMORY = "memory"
    #: The engine raised an exception and the child lived to tell.
    ENGINE_ERROR = "engine_error"
    #: Every page was read and there is no text, although there is ink.
    EMPTY = "empty"
    #: Pages were lost, and `retry.partial` does not let a partial result be published.
    INCOMPLETE = "incomplete"
    #: The parent died in that many attempts that the document is not tried again.
    PARENT_DIED = "parent_died"
    #: SQS's redrive policy moved its message: it was received too often, and nobody ended it.
    REDRIVEN = "redriven"

    # Permanent: never reclaimed until the bytes change or a person asks.
    ENCRYPTED = "encrypted"
    #: Neither `%PDF-` nor one of the image types.
    NOT_A_DOCUMENT = "not_a_document"
    NO_PAGES = "no_pages"
    #: More bytes, pages or frames than the settings allow.
    TOO_LARGE = "too_large"
    #: It calls itself a document, and no parser can open it.
    MALFORMED = "malformed"
    #: The message, not the document: no URI could be read from it.
    MALFORMED_MESSAGE = "malformed_message"
    #: 404: the object is gone, or never was.
    SOURCE_MISSING = "source_missing"
    #: The URI is one that the settings do not allow (scheme, root folder, private address).
    SOURCE_REFUSED = "source_refused"

    # The world's: released, costs no attempt.
    #: 403, 5xx, throttling, DNS, TLS or a fetch that passed its deadline.
    SOURCE_UNAVAILABLE = "source_unavailable"
    STORE_UNAVAILABLE = "store_unavailable"
    QUEUE_UNAVAILABLE = "queue_unavailable"
    DISK_FULL = "disk_full"
    #: Our receipt or lease is no longer ours; whoever holds it now decides.
    LEASE_LOST = "lease_lost"
    #: We were told to stop.
    DRAINED = "drained"
    #: The process that forks children went away under this child.
    ZYGOTE_DIED = "zygote_died"


#: Causes that a retry can never cure while the bytes stay as they are.
PERMANENT_CAUSES = frozenset(
    {
        Cause.ENCRYPTED,
        Cause.NOT_A_DOCUMENT,
        Cause.NO_PAGES,
        Cause.TOO_LARGE,
        Cause.MALFORMED,
        Cause.MALFORMED_MESSAGE,
        Cause.SOURCE_MISSING,
        Cause.SOURCE_REFUSED,
    }
)

#: Causes for which the document was not at fault: the message is released and no attempt is counted.
WORLD_CAUSES = frozenset(
    {
        Cause.SOURCE_UNAVAILABLE,
        Cause.STORE_UNAVAILABLE,
        Cause.QUEUE_UNAVAILABLE,
        Cause.DISK_FULL,
        Cause.LEASE_LOST,
        Cause.DRAINED,
        Cause.ZYGOTE_DIED,
    }
)


def problem_of(cause: Cause) -> Problem:
    """Whose problem `cause` is. `CONVERTED` is nobody's and must not be asked."""
    assert cause is not Cause.CONVERTED, "a converted document is no problem"
    return Problem.WORLD if cause in WORLD_CAUSES else Problem.DOCUMENT


class Stage(StrEnum):
    """Where in the engine a child is; announced before native code is entered."""

    #: The child runs and has not opened the document.
    START = "start"
    OPEN = "open"
    #: Parsing of a page's content stream.
    PARSE = "parse"
    LAYOUT = "layout"
    OCR = "ocr"
    TABLES = "tables"
    ASSEMBLE = "assemble"
    #: Markdown and JSON.
    EXPORT = "export"
    PREVIEW = "preview"
    #: Sending what was made.
    RESULT = "result"


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
class Options:
    """What a sender may choose for one document; part of its identity, since it changes the result."""

    #: Read pictures of text. Off: only text layers are used.
    ocr: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a message points to.

    `id` names its folder in the store (`[A-Za-z0-9][A-Za-z0-9._-]{0,127}`) and is the same for every
    delivery of the same version, so a duplicate is recognised.
    """

    id: str
    #: `s3://bucket/key` (the key raw, not percent-encoded), `https://…` or `file:///…`.
    uri: str
    #: S3 version id to fetch, where the sender named one.
    version_id: str | None = None
    #: What the sender says the bytes are: an ETag or `sha256:…`; part of the id, never trusted as a check.
    etag: str | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What SQS delivered, once."""

    #: SQS MessageId; the same for every delivery of one message, a new one after a native redrive.
    message_id: str
    #: Valid for this delivery only.
    receipt_handle: str
    body: str
    #: ApproximateReceiveCount: counts released deliveries too, so it decides nothing.
    receive_count: int
    #: Monotonic instant just before the call that received it, so never later than SQS's own count of 12 h.
    received_monotonic_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who makes an attempt."""

    host: str
    #: `/proc/sys/kernel/random/boot_id`: tells a rebooted host from a parent that died.
    boot_id: str
    #: One life of the parent (systemd's INVOCATION_ID, else a fresh UUID).
    invocation: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What the kernel says of an ended process: exactly one of `status` and `signal` is set."""

    #: 0 to 255, when the process left by itself.
    status: int | None = None
    #: A signal's number, when a signal ended it.
    signal: int | None = None

    def __post_init__(self) -> None:
        assert (self.status is None) != (self.signal is None), "a process ends in one way"


class KillReason(StrEnum):
    """Why *we* killed a child; without one, a fatal signal is the document's doing."""

    DEADLINE = "deadline"
    #: Nothing was heard of it for `child.stall_s`.
    STALL = "stall"
    MEMORY = "memory"
    #: It sent bytes that are no frame, or too many.
    PROTOCOL = "protocol"
    DRAIN = "drain"
    LEASE_LOST = "lease_lost"
    #: It closed its end, or sent its result, and then did not leave.
    LINGERED = "lingered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the parent concludes from one child's life (or from a step that needed none)."""

    cause: Cause
    #: One sentence for a person: what happened, with the figures in force.
    detail: str
    #: Which child of the attempt, from 1; 0 when no child was started.
    child: int = 0
    #: Whether pictures of the page in hand might be read (of the document, where there is no page).
    ocr: bool = True
    #: How much of the engine the page in hand was given; None where there was no page.
    mode: PageMode | None = None
    #: Pages that this child finished, and pages of the document, once that was known.
    pages_done: int = 0
    pages: int | None = None
    #: `SIGSEGV` and the like, when a signal ended the child.
    signal: str | None = None
    #: What was announced last before the end.
    stage: Stage | None = None
    page: int | None = None
    elapsed_s: float = 0.0
    #: The kernel's ru_maxrss of the child.
    peak_rss_bytes: int = 0
    #: faulthandler's traceback and the tail of stderr, for the crash record; bounded.
    traceback: str = ""
    stderr_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One holder's try at one document; durable before anything risky happens."""

    document_id: str
    #: Counts every try, from 1; also the fencing token: a higher one exists → this one is stale.
    number: int
    holder: Holder
    started_at: datetime
    #: Until when nobody else may claim the document.
    lease_until: datetime
    ended_at: datetime | None = None
    #: One per child, in order; None entries never occur. Empty while the attempt runs.
    outcomes: tuple[Outcome, ...] = ()

    @property
    def last_cause(self) -> Cause | None:
        """Cause of the last outcome; None while the attempt runs or when its parent died."""
        return self.outcomes[-1].cause if self.outcomes else None


class ResultStatus(StrEnum):
    """A document's terminal state."""

    #: All pages accounted for, none failed.
    CONVERTED = "converted"
    #: Published, and at least one page failed.
    PARTIAL = "partial"
    #: Dead-lettered.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A document's terminal record in the ledger; it never changes back."""

    document_id: str
    status: ResultStatus
    #: The attempt that settled it.
    attempt: int
    settled_at: datetime
    #: CONVERTED for a published one.
    cause: Cause
    detail: str
    #: Where the manifest lies (`s3://…` or a path); None for a failed one.
    manifest: str | None = None
    pages: int = 0
    #: Number of pages by state.
    pages_by_state: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRecord:
    """One finished page as a child sent it: the checkpoint.

    `blob` is opaque to the parent: only a child of the same document, options and engine opens it.
    """

    page: int
    report: PageReport
    blob: bytes


#: What `store.put` publishes, and the only names a child may send. The manifest is the parent's own.
ARTEFACTS = ("document.md", "document.json", "preview.webp")
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a child made of a document: checked by the parent for size, order and digest, otherwise opaque."""

    #: By name out of `ARTEFACTS`; `preview.webp` may be missing, the other two never are.
    artefacts: Mapping[str, bytes]
    pages: tuple[PageReport, ...]
    #: What the engine says of itself, as logged at start.
    engine: Mapping[str, object]
    #: Side information that failed and cost only itself.
    warnings: tuple[str, ...] = ()
