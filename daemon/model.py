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

from daemon.causes import PERMANENT_CAUSES, WORLD_CAUSES, Cause, Problem, problem_of
from daemon.page import OCR_MODES, PageMode, PageRecord, PageReport, PageState, Plan

__all__ = [
    "ARTEFACTS",
    "MANIFEST",
    "OCR_MODES",
    "PERMANENT_CAUSES",
    "WORLD_CAUSES",
    "Attempt",
    "Cause",
    "Conversion",
    "Document",
    "Exit",
    "Holder",
    "KillReason",
    "MediaType",
    "Message",
    "Options",
    "Outcome",
    "PageMode",
    "PageRecord",
    "PageReport",
    "PageState",
    "Plan",
    "Problem",
    "ResultStatus",
    "Settled",
    "Stage",
    "problem_of",
]


class MediaType(StrEnum):
    """What a document is, by its first bytes and never by its name."""

    #: `%PDF-` within the first 1024 bytes.
    PDF = "application/pdf"
    PNG = "image/png"
    JPEG = "image/jpeg"
    #: One or many frames; each frame is a page.
    TIFF = "image/tiff"


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
    #: Its scratch folder grew beyond its limit.
    SCRATCH = "scratch"
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
    #: Of the bytes, options and engine that this is about (`checkpoints.fingerprint`); empty: no bytes were there yet.
    fingerprint: str = ""
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
