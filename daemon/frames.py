"""What a child and its parent may say to each other, as values.

Core. Each frame is a frozen model with exact types, bounded texts and no unknown names; `wire.py` turns them
into bytes and back. Texts of a child are data: they are shown, never followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, field_validator

from daemon.model import Cause, MediaType, PageMode, PageReport, PageState, Plan, Stage

#: Largest chunk of an artefact or of a page's blob.
CHUNK_BYTES = 2**20
#: What a child may blame. The parent's and the world's causes are not its to claim.
CLAIMABLE_CAUSES = frozenset(
    {
        Cause.ENGINE_ERROR,
        Cause.MEMORY,
        Cause.EMPTY,
        Cause.ENCRYPTED,
        Cause.NOT_A_DOCUMENT,
        Cause.NO_PAGES,
        Cause.TOO_LARGE,
        Cause.MALFORMED,
    }
)
_DETAIL = 1000
_FIELD = 500

Count = Annotated[int, Field(ge=1, le=2**31)]
Amount = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
#: JSON has no numbers as keys: exactly the digits of a page's number, and no other spelling of it.
PageKey = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,8}$")]
Line = Annotated[str, StringConstraints(max_length=_FIELD)]
Detail = Annotated[str, StringConstraints(max_length=_DETAIL)]
LogValue: TypeAlias = Line | Annotated[int, Field(ge=-(2**53), le=2**53)] | float | bool | None


def _finite(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse NaN and infinities, which JSON does not have and others could not read again."""
    json.dumps(value, allow_nan=False)
    return value


Manifest: TypeAlias = Annotated[dict[str, JsonValue], AfterValidator(_finite)]


class Kind(IntEnum):
    """A frame's second byte."""

    #: Child to parent.
    HELLO = 1
    STAGE = 2
    PAGE = 3
    LOG = 4
    ARTEFACT = 5
    FAILURE = 6
    RESULT = 7
    OPENED = 8
    BLOB = 9
    SLICED = 10
    #: Parent to child.
    JOB = 16


class Payload(BaseModel):
    """A JSON payload: exact types, no unknown names, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Hello(Payload):
    """The child runs its own code; it has not seen the job."""

    pid: Count
    #: The engine's manifest, from a child that loaded its own engine.
    engine: Manifest | None = None


class StageStarted(Payload):
    """Sent before native code is entered."""

    stage: Stage
    page: Count | None = None


class Opened(Payload):
    """The document can be read and has so many pages; comes before the first page."""

    pages: Count


class PageAccount(Payload):
    """A `model.PageReport` on the wire; same meanings."""

    page: Count
    state: PageState
    engine: Line
    reason: Line = ""
    elapsed_s: Seconds = 0.0

    @classmethod
    def of(cls, report: PageReport) -> PageAccount:
        """Shorten and clean the texts of `report`."""
        return cls(
            page=report.page,
            state=report.state,
            engine=clean(report.engine, _FIELD),
            reason=clean(report.reason, _FIELD),
            elapsed_s=report.elapsed_s,
        )

    def report(self) -> PageReport:
        """Return the model's noun."""
        return PageReport(
            page=self.page, state=self.state, engine=self.engine, reason=self.reason, elapsed_s=self.elapsed_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobChunk:
    """The next bytes of one page's blob."""

    #: From 1.
    page: int
    #: At most CHUNK_BYTES, never empty.
    data: bytes


class PageDone(Payload):
    """One page is finished; its blob was sent before, and amounts to this."""

    account: PageAccount
    size_bytes: Amount
    sha256: Sha256


class LogLine(Payload):
    """A line of the child's own log."""

    level: Literal["debug", "info", "warning", "error"]
    event: Line
    fields: Annotated[dict[Line, LogValue], Field(max_length=20)] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The next bytes of one artefact."""

    #: Out of `model.ARTEFACTS`.
    name: str
    #: At most CHUNK_BYTES, never empty.
    data: bytes


class Failure(Payload):
    """The child could not convert, and lives to tell."""

    cause: Cause
    detail: Detail
    stage: Stage | None = None
    page: Count | None = None

    @field_validator("cause")
    @classmethod
    def _claimable(cls, value: Cause) -> Cause:
        if value not in CLAIMABLE_CAUSES:
            raise ValueError(f"a child may not claim {value}")
        return value


class Digest(Payload):
    """What an artefact must amount to."""

    size_bytes: Amount
    sha256: Sha256


class Sliced(Payload):
    """This child's share of the pages is done and sent; so many are left to others."""

    left: Count


class Result(Payload):
    """Everything is sent; this accounts for it."""

    pages: tuple[PageAccount, ...]
    engine: Manifest
    artefacts: dict[Literal["document.md", "document.json", "preview.webp"], Digest]
    warnings: Annotated[tuple[Line, ...], Field(max_length=100)] = ()


class WorkPlan(Payload):
    """A `model.Plan` on the wire; same meanings."""

    default: PageMode
    modes: dict[PageKey, PageMode]
    skip: tuple[Count, ...]
    only: Count | None
    most_pages: Count
    preview: bool

    @classmethod
    def of(cls, plan: Plan) -> WorkPlan:
        """Spell `plan` as JSON can carry it."""
        return cls(
            default=plan.default,
            modes={str(page): mode for page, mode in sorted(plan.modes.items())},
            skip=tuple(sorted(plan.skip)),
            only=plan.only,
            most_pages=plan.most_pages,
            preview=plan.preview,
        )

    def plan(self) -> Plan:
        """Return the model's noun."""
        return Plan(
            default=self.default,
            modes={int(page): mode for page, mode in self.modes.items()},
            skip=frozenset(self.skip),
            only=self.only,
            most_pages=self.most_pages,
            preview=self.preview,
        )


class Job(Payload):
    """What the child is to do."""

    document_id: Line
    attempt: Count
    child: Count
    plan: WorkPlan
    media_type: MediaType
    scratch: str
    #: The child refuses to send more than this, politely.
    max_output_bytes: Amount
    failpoints: str = ""


Frame: TypeAlias = (
    Hello | StageStarted | Opened | BlobChunk | PageDone | LogLine | Chunk | Failure | Sliced | Result | Job
)

#: The model of each kind with a JSON payload.
MODELS: Mapping[Kind, type[Payload]] = {
    Kind.HELLO: Hello,
    Kind.STAGE: StageStarted,
    Kind.OPENED: Opened,
    Kind.PAGE: PageDone,
    Kind.LOG: LogLine,
    Kind.FAILURE: Failure,
    Kind.SLICED: Sliced,
    Kind.RESULT: Result,
    Kind.JOB: Job,
}
_KINDS: Mapping[type[object], Kind] = {model: kind for kind, model in MODELS.items()} | {
    Chunk: Kind.ARTEFACT,
    BlobChunk: Kind.BLOB,
}


def kind_of(frame: Frame) -> Kind:
    """Return the kind byte of `frame`."""
    return _KINDS[type(frame)]


def clean(text: str, limit: int = _FIELD) -> str:
    """Return at most `limit` characters of `text` that UTF-8 can carry; what is cut is marked by `…`."""
    sound = text[: limit + 1].encode("utf-8", "replace").decode("utf-8")
    return sound if len(sound) <= limit else sound[: limit - 1] + "…"


def detail(text: str) -> str:
    """Return `text` as a Failure's detail may carry it."""
    return clean(text, _DETAIL)
