"""The manifest: one JSON object per published document that says what it is, who made it and of what.

Core. Readers look for `manifest.json`; it is written last, so where it is, everything that it names is. Figures
carry their units in their names. Times and hosts stand under `run` only: everything else is a function of the
document's bytes, its options and the engine.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from daemon import __version__
from daemon.ladder import failure_of
from daemon.model import Attempt, Cause, Conversion, Document, Outcome, PageReport, PageState, ResultStatus, Settled

#: Raised when a field changes its meaning.
SCHEMA = 1


def status_of(pages: Sequence[PageReport]) -> ResultStatus:
    """`PARTIAL` as soon as one page failed; else `CONVERTED`."""
    failed = any(page.state is PageState.FAILED for page in pages)
    return ResultStatus.PARTIAL if failed else ResultStatus.CONVERTED


def pages_by_state(pages: Sequence[PageReport]) -> dict[str, int]:
    """Number of pages by state, states without a page left out; sums to the number of pages."""
    return {str(state): number for state, number in sorted(Counter(page.state for page in pages).items())}


def build(
    *,
    document: Document,
    attempt: Attempt,
    conversion: Conversion,
    outcomes: Sequence[Outcome],
    sha256: str,
    size_bytes: int,
    media_type: str,
    converted_at: datetime,
    elapsed_s: float,
) -> dict[str, object]:
    """The manifest of a conversion about to be published; `outcomes` are this document's children so far."""
    return {
        "schema": SCHEMA,
        "document_id": document.id,
        "status": str(status_of(conversion.pages)),
        "source": {
            "uri": document.uri,
            "version_id": document.version_id,
            "etag": document.etag,
            "sha256": sha256,
            "size_bytes": size_bytes,
            "media_type": media_type,
        },
        "options": {"ocr": document.options.ocr},
        "pages": [_page(page, outcomes) for page in conversion.pages],
        "pages_by_state": pages_by_state(conversion.pages),
        "artefacts": {
            name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in sorted(conversion.artefacts.items())
        },
        "warnings": list(conversion.warnings),
        "engine": dict(conversion.engine),
        "fencing_token": attempt.number,
        "run": {
            "bulkhead": __version__,
            "attempt": attempt.number,
            "host": attempt.holder.host,
            "converted_at": converted_at.isoformat(),
            "elapsed_s": round(elapsed_s, 3),
            "page_elapsed_s": [round(page.elapsed_s, 3) for page in conversion.pages],
            "children": [child_account(outcome) for outcome in outcomes],
        },
    }


def _page(page: PageReport, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """One page's account; `failures` are the children that it ended, in order, as reason codes."""
    return {
        "page": page.page,
        "state": str(page.state),
        "engine": page.engine,
        "reason": page.reason,
        "failures": [_code(outcome) for outcome in outcomes if outcome.page == page.page and failure_of(outcome)],
    }


def _code(outcome: Outcome) -> str:
    """`crashed:SIGSEGV in ocr (full)` and the like."""
    signal = f":{outcome.signal}" if outcome.signal else ""
    mode = f" ({outcome.mode})" if outcome.mode else ""
    return f"{outcome.cause}{signal} in {outcome.stage}{mode}"


def child_account(outcome: Outcome) -> dict[str, object]:
    """One child's life, as the manifest and `explain` tell it."""
    return {
        "child": outcome.child,
        "cause": str(outcome.cause),
        "detail": outcome.detail,
        "ocr": outcome.ocr,
        "mode": None if outcome.mode is None else str(outcome.mode),
        "pages_done": outcome.pages_done,
        "signal": outcome.signal,
        "stage": None if outcome.stage is None else str(outcome.stage),
        "page": outcome.page,
        "elapsed_s": round(outcome.elapsed_s, 3),
        "peak_rss_bytes": outcome.peak_rss_bytes,
    }


def settled_from(
    manifest: Mapping[str, object], *, document_id: str, attempt: int, location: str, settled_at: datetime
) -> Settled:
    """The terminal record of a document whose manifest lies in the store at `location`.

    Raises `ValueError` when the manifest is not one that `build` made.
    """
    by_state = manifest.get("pages_by_state")
    pages = manifest.get("pages")
    status = manifest.get("status")
    if not isinstance(by_state, Mapping) or not isinstance(pages, list) or not isinstance(status, str):
        message = f"cannot read the manifest at {location}: pages, pages_by_state or status is missing"
        raise ValueError(message)  # noqa: TRY004 - it is data that is wrong, not a program
    return Settled(
        document_id=document_id,
        status=ResultStatus(status),
        attempt=attempt,
        settled_at=settled_at,
        cause=Cause.CONVERTED,
        detail="",
        manifest=location,
        pages=len(pages),
        pages_by_state={str(state): int(number) for state, number in by_state.items()},
    )
