"""A finished page as bytes: what assembly needs of it, and nothing else.

Engine. Taken before assembly, which changes the elements. Kept are the elements with a tag for their type, floats in
full, ruled lines and shapes (they steer the reading order), Docling's scores and our own account. Not kept are
pictures, text cells that assembly does not read, and anything that a reader would have to execute. A blob names its
format, its engine and its page, and has a checksum; what is damaged, foreign or another page's is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from docling.datamodel.base_models import PageConfidenceScores
from docling_core.types.doc import BoundingBox, CoordOrigin, Size

from daemon.engine import elements as items
from daemon.model import Cause, PageMode, PageReport, PageState

#: Changes with everything that changes what a blob holds or means.
FORMAT = 1
#: A page whose JSON is larger is no page: what a blob may make of a reader's memory, in bytes.
_LARGEST = 512 * 2**20
_SCORES = ("parse_score", "layout_score", "table_score", "ocr_score")
#: What reading a foreign value can raise.
_FOREIGN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedPage:
    """A page before assembly."""

    report: PageReport
    #: How it was read in the end.
    mode: PageMode
    #: Points; None where nobody looked at the page.
    size: Size | None
    #: Docling's page elements, in the order in which the page yielded them.
    elements: tuple[Any, ...] = ()
    shape_lines: tuple[BoundingBox, ...] | None = None
    shape_boxes: tuple[BoundingBox, ...] | None = None
    scores: PageConfidenceScores = field(default_factory=PageConfidenceScores)
    #: Degrees clockwise by which the page was turned to be upright.
    turned: int = 0
    #: There is no text although there is ink, or nobody could look for ink.
    inked: bool = False
    #: Whose fault it was, for a page that failed by itself; None for any other.
    cause: Cause | None = None


def engine_digest(manifest: Mapping[str, object]) -> str:
    """What an engine's blobs are known by: 16 hexadecimal digits over its manifest."""
    text = json.dumps(manifest, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def encode(page: FinishedPage, *, engine: str) -> bytes:
    """The blob of a page; equal pages give equal bytes. `engine` is the maker's digest."""
    report = page.report
    value = {
        "report": [report.state.value, report.engine, report.reason, report.elapsed_s],
        "mode": page.mode.value,
        "size": None if page.size is None else [page.size.width, page.size.height],
        "elements": [items.to_value(element) for element in page.elements],
        "lines": _boxes_value(page.shape_lines),
        "boxes": _boxes_value(page.shape_boxes),
        "scores": [None if math.isnan(score) else score for score in _scores(page.scores)],
        "turned": page.turned,
        "inked": page.inked,
        "cause": None if page.cause is None else page.cause.value,
    }
    body = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 6)
    return _header(body, page=report.page, engine=engine) + body


def intact(blob: bytes, *, page: int, engine: str) -> bool:
    """Whether `blob` is page `page` by the engine `engine`, undamaged; says nothing about its contents."""
    header, _, body = blob.partition(b"\n")
    return header + b"\n" == _header(body, page=page, engine=engine)


def decode(blob: bytes, *, page: int, engine: str) -> FinishedPage:
    """The page in a blob. Raises ValueError for anything but an undamaged blob of this page by this engine."""
    if not intact(blob, page=page, engine=engine):
        raise ValueError(f"cannot restore page {page}: the blob is damaged, of another page or of another engine")
    try:
        return _finished_page(_json(blob.partition(b"\n")[2]), page)
    except _FOREIGN as error:
        raise ValueError(f"cannot restore page {page}: {type(error).__name__} in its blob") from error


def _header(body: bytes, *, page: int, engine: str) -> bytes:
    return f"bulkhead-page {FORMAT} {engine} {page} {len(body)} {zlib.crc32(body):08x}\n".encode()


def _json(body: bytes) -> dict[str, Any]:
    reader = zlib.decompressobj()
    text = reader.decompress(body, _LARGEST)
    if not reader.eof or reader.unused_data:
        raise ValueError("too long, or not one stream")
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value


def _finished_page(value: Mapping[str, Any], page: int) -> FinishedPage:
    state, engine, reason, elapsed_s = value["report"]
    size, cause = value["size"], value["cause"]
    return FinishedPage(
        report=PageReport(
            page=page, state=PageState(state), engine=_text(engine), reason=_text(reason), elapsed_s=float(elapsed_s)
        ),
        mode=PageMode(value["mode"]),
        size=None if size is None else Size(width=size[0], height=size[1]),
        elements=tuple(items.from_value(element, page) for element in value["elements"]),
        shape_lines=_boxes(value["lines"]),
        shape_boxes=_boxes(value["boxes"]),
        scores=PageConfidenceScores(**dict(zip(_SCORES, value["scores"], strict=True))),
        turned={0: 0, 90: 90, 180: 180, 270: 270}[value["turned"]],
        inked=value["inked"] is True,
        cause=None if cause is None else Cause(cause),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _scores(scores: PageConfidenceScores) -> list[float]:
    return [float(getattr(scores, name)) for name in _SCORES]


def _boxes_value(boxes: tuple[BoundingBox, ...] | None) -> list[list[float]] | None:
    """Four numbers each: all of them have a top-left origin."""
    if boxes is None:
        return None
    assert all(box.coord_origin is CoordOrigin.TOPLEFT for box in boxes), "shapes have a top-left origin"
    return [[box.l, box.t, box.r, box.b] for box in boxes]


def _boxes(value: list[list[float]] | None) -> tuple[BoundingBox, ...] | None:
    return None if value is None else tuple(BoundingBox(l=b[0], t=b[1], r=b[2], b=b[3]) for b in value)
