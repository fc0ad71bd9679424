"""What an operator asks of the ledger: `bulkhead status` and `bulkhead explain`.

Shell. Reads only, beside a running daemon; plain values out, so that `--json` and the tables show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from daemon.errors import ResourceError
from daemon.ledger import Ledger
from daemon.manifest import child_account
from daemon.model import Attempt, Document, Settled
from daemon.recovery import Recovery


def status(
    ledger: Ledger,
    *,
    now: datetime,
    suspended: Mapping[str, object] | None = None,
    notices: Mapping[str, object] | None = None,
    held_back: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    """What runs now, how many documents are in which state, and what ended last.

    `suspended` is why this host receives nothing, where it does not; `notices` is what waits to be sent;
    `held_back` is who waits for memory.
    """
    return {
        "suspended": None if suspended is None else dict(suspended),
        "notices": None if notices is None else dict(notices),
        "documents": dict(ledger.counts()),
        "held_back": [dict(row) for row in held_back],
        "running": [_running(attempt, now) for attempt in ledger.running()],
        "recent": [_settled(settled) for settled in ledger.recent(limit=10)],
    }


def _running(attempt: Attempt, now: datetime) -> dict[str, object]:
    return {
        "document_id": attempt.document_id,
        "attempt": attempt.number,
        "host": attempt.holder.host,
        "pid": attempt.holder.pid,
        "started_at": attempt.started_at.isoformat(),
        "running_s": round((now - attempt.started_at).total_seconds(), 1),
        "lease_left_s": round((attempt.lease_until - now).total_seconds(), 1),
    }


def _settled(settled: Settled) -> dict[str, object]:
    return {
        "document_id": settled.document_id,
        "status": str(settled.status),
        "settled_at": settled.settled_at.isoformat(),
        "pages": settled.pages,
        "pages_by_state": dict(settled.pages_by_state),
        "cause": str(settled.cause),
        "detail": settled.detail,
        "manifest": settled.manifest,
    }


def explain(ledger: Ledger, recovery: Recovery, wanted: str) -> dict[str, object]:
    """The whole story of one document: every attempt, every child, how it ended, and what sweeps did with it.

    `wanted` is an id, the beginning of one, or a URI. Raises `ResourceError` when it names no document or several.
    """
    document = only_one(ledger, wanted, command="explain")
    settled = ledger.settled(document.id)
    standing = recovery.standing(document.id)
    return {
        "document_id": document.id,
        "uri": document.uri,
        "version_id": document.version_id,
        "etag": document.etag,
        "options": {"ocr": document.options.ocr},
        "attempts": [_attempt(attempt) for attempt in ledger.attempts(document.id)],
        "settled": None if settled is None else _settled(settled),
        "reclaims": len(standing.reclaims),
        "parked_since": None if standing.parked is None else standing.parked.since.isoformat(),
    }


def only_one(ledger: Ledger, wanted: str, *, command: str) -> Document:
    """The document that a person means. Raises `ResourceError` when it is none, or several."""
    found = ledger.find(wanted)
    if not found:
        message = f"cannot {command} {wanted}: the ledger knows no document with this id, beginning of an id, or URI"
        raise ResourceError(message)
    if len(found) > 1:
        names = ", ".join(document.id for document in found[:5])
        message = f"cannot {command} {wanted}: {len(found)} documents match ({names}); give a whole id"
        raise ResourceError(message)
    return found[0]


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "attempt": attempt.number,
        "host": attempt.holder.host,
        "boot_id": attempt.holder.boot_id,
        "invocation": attempt.holder.invocation,
        "pid": attempt.holder.pid,
        "started_at": attempt.started_at.isoformat(),
        "lease_until": attempt.lease_until.isoformat(),
        "ended_at": None if attempt.ended_at is None else attempt.ended_at.isoformat(),
        "children": [
            child_account(outcome) | {"traceback": outcome.traceback, "stderr_tail": outcome.stderr_tail}
            for outcome in attempt.outcomes
        ],
    }


def told(story: Mapping[str, object]) -> list[str]:
    """An explanation as sentences, for a terminal."""
    lines = [f"{story['document_id']}", f"  from {story['uri']}"]
    attempts = story["attempts"]
    assert isinstance(attempts, list), "explain gives a list"
    for attempt in attempts:
        ended = attempt["ended_at"] or "never: its parent died, or it runs now"
        lines.append(f"  attempt {attempt['attempt']} on {attempt['host']} (pid {attempt['pid']})")
        lines.append(f"    began {attempt['started_at']}, ended {ended}")
        for child in attempt["children"]:
            who = f"child {child['child']}" if child["child"] else "no child"
            lines.append(f"    {who}: {child['cause']}: {child['detail'] or 'all pages accounted for'}")
            lines += [f"      | {line}" for line in str(child["traceback"]).splitlines()[:12]]
    settled = story["settled"]
    if isinstance(settled, Mapping):
        lines.append(f"  {settled['status']} at {settled['settled_at']}: {settled['detail'] or settled['manifest']}")
    else:
        lines.append("  not settled yet")
    if story["reclaims"]:
        lines.append(f"  sent back by a sweep {story['reclaims']} time(s)")
    if story["parked_since"]:
        lines.append(f"  parked since {story['parked_since']}: `bulkhead parked retry {story['document_id']}`, or drop")
    return lines
