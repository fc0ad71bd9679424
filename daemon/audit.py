"""Whether ledger, store, checkpoints and queues agree: nothing lost, nothing published twice, every page accounted for.

Shell; `examined` is a pure table of what a clean run cannot produce. Reads only. A daemon may run meanwhile: a document
about which something is found is looked at once more, and only what is still so counts. Manifests of documents that
this ledger does not know are another host's, and no finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from daemon.checkpoints import Checkpoints
from daemon.clock import Clock
from daemon.decide import counted
from daemon.model import ARTEFACTS, WORLD_CAUSES, Attempt, Cause, Holder, ResultStatus, Settled
from daemon.queue import Queue
from daemon.recovery import Recovery, Standing
from daemon.store import Store

log = structlog.get_logger()

#: A dead parent's attempt is taken over within minutes while a daemon runs; after this nobody has come.
ABANDONED_AFTER = timedelta(hours=1)
#: Ids read from the ledger at once.
_PAGE = 500
_PUBLISHED = frozenset({ResultStatus.CONVERTED, ResultStatus.PARTIAL})


class Check(StrEnum):
    """What can be wrong."""

    #: Settled as published, and no manifest lies in the store.
    NOT_PUBLISHED = "not_published"
    #: A manifest lies in the store, nobody works on the document, and the ledger has not settled it so.
    NOT_SETTLED = "not_settled"
    #: The manifest is of another attempt than the one that settled the document, and not one that was adopted.
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a fencing token is no secret
    #: Pages, their numbers and their sums by state differ within or between ledger and manifest.
    PAGES_DIFFER = "pages_differ"
    #: Finished pages are still kept although the document has ended.
    CHECKPOINTS_LEFT = "checkpoints_left"
    #: An attempt has no end, its lease ran out long ago, and nobody has taken it over.
    ABANDONED = "abandoned"
    #: The document was settled by an attempt that was not its newest.
    OVERTAKEN = "overtaken"
    #: Parked, and published all the same.
    PARKED_AND_PUBLISHED = "parked_and_published"
    #: The manifest speaks of files that are not in the store.
    ARTEFACT_MISSING = "artefact_missing"
    #: More attempts count against it than `retry.max_attempts` allows.
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    #: It has not ended, it is not parked, and all queues are empty: nothing will bring it back.
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One disagreement."""

    check: Check
    document_id: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of one document at about one instant."""

    document_id: str
    standing: Standing
    #: What the store has; None: nothing.
    manifest: Mapping[str, object] | None
    #: Finished pages are kept.
    kept: bool
    #: Files of the manifest that are not in the store.
    lacking: tuple[str, ...] = ()
    #: Counted attempts beyond the limit.
    over_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEdges:
    """What an audit reads."""

    recovery: Recovery
    store: Store
    checkpoints: Checkpoints
    queue: Queue
    clock: Clock
    #: Who asks. None: attempts are not counted.
    holder: Holder | None = None
    max_attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What an audit came to."""

    #: Documents of the ledger.
    documents: int
    #: Findings by check; every check is there.
    findings: Mapping[Check, int]

    @property
    def clean(self) -> bool:
        """Everything agrees."""
        return not any(self.findings.values())


def audit(edges: AuditEdges, *, tell: Callable[[Finding], None]) -> Audited:
    """Look at every document of the ledger, and `tell` each finding as it is found.

    Holds one page of ids, whatever the number of documents and findings. Raises `WorldError` when an edge does not
    answer.
    """
    counts: Counter[Check] = Counter()
    first: Finding | None = None
    documents = unended = 0
    kept = frozenset(edges.checkpoints.documents())
    for document_id in _every_document(edges.recovery):
        documents += 1
        seen, found = _confirmed(edges, document_id, kept)
        unended += _is_open(seen.standing)
        for finding in found:
            first = first or finding
            counts[finding.check] += 1
            tell(finding)
    for finding in _lost(edges) if unended else ():
        first = first or finding
        counts[finding.check] += 1
        tell(finding)
    if first is not None:
        log.error(
            "audit.failed", documents=documents, detail=first.detail, **{str(check): counts[check] for check in counts}
        )
    else:
        log.info("audit.passed", documents=documents)
    return Audited(documents=documents, findings={check: counts[check] for check in Check})


def _is_open(standing: Standing) -> bool:
    return standing.settled is None and standing.parked is None


def _every_document(recovery: Recovery) -> Iterator[str]:
    after = ""
    while ids := recovery.documents(after=after, limit=_PAGE):
        yield from ids
        after = ids[-1]


def _confirmed(edges: AuditEdges, document_id: str, kept: frozenset[str]) -> tuple[Seen, list[Finding]]:
    """What is found twice: a daemon may have settled the document between two of our questions."""
    seen = _seen(edges, document_id, kept=document_id in kept)
    if not examined(seen, now=edges.clock.now()):
        return seen, []
    seen = _seen(edges, document_id, kept=edges.checkpoints.holds(document_id))
    return seen, examined(seen, now=edges.clock.now())


def _seen(edges: AuditEdges, document_id: str, *, kept: bool) -> Seen:
    """The ledger first: what it says is published was stored before."""
    standing = edges.recovery.standing(document_id)
    manifest = edges.store.manifest(document_id)
    named = manifest.get("artefacts") if manifest is not None and standing.settled is not None else None
    lacking = edges.store.lacking(document_id, set(named) & set(ARTEFACTS)) if isinstance(named, Mapping) else ()
    return Seen(
        document_id=document_id,
        standing=standing,
        manifest=manifest,
        kept=kept,
        lacking=tuple(lacking),
        over_limit=_over_limit(_since_reopened(standing), edges.max_attempts) if edges.holder is not None else 0,
    )


def _since_reopened(standing: Standing) -> list[Attempt]:
    return [attempt for attempt in standing.attempts if attempt.number > standing.reopened_after]


def _over_limit(attempts: Sequence[Attempt], most: int) -> int:
    """Attempts in which a child was at the document although those before had spent the limit.

    One without a child is how a document is given up, and its parent too may die before that is written down.
    """
    return sum(
        any(outcome.child for outcome in each.outcomes) and counted(attempts[:index], now=each.holder) >= most
        for index, each in enumerate(attempts)
    )


def _lost(edges: AuditEdges) -> Iterator[Finding]:
    """Numbers of messages are approximate and one message may ask for many documents, so only none at all counts.

    The ledger is read once more, since what is open must not all be held in memory.
    """
    if sum(edges.queue.depth().values()):
        return
    for document_id in _every_document(edges.recovery):
        if _is_open(edges.recovery.standing(document_id)):
            detail = f"{document_id} has not ended, and neither queue holds any message"
            yield Finding(check=Check.LOST, document_id=document_id, detail=detail)


def examined(seen: Seen, *, now: datetime) -> list[Finding]:
    """What a clean run cannot have produced."""
    settled = seen.standing.settled
    found = [*(_open(seen, now) if settled is None else _ended(seen, settled)), *_spent(seen)]
    return [Finding(check=check, document_id=seen.document_id, detail=detail) for check, detail in found]


def _open(seen: Seen, now: datetime) -> Iterator[tuple[Check, str]]:
    newest = seen.standing.attempts[-1] if seen.standing.attempts else None
    if newest is not None and newest.ended_at is None:
        if newest.lease_until > now:  # between storing and settling, for instance
            return
        if newest.lease_until + ABANDONED_AFTER < now:
            yield Check.ABANDONED, f"attempt {newest.number}: its lease ended at {newest.lease_until.isoformat()}"
    if _token(seen) > seen.standing.reopened_after:
        yield Check.NOT_SETTLED, f"attempt {_token(seen)} has stored a result, and the ledger has not settled it"


def _ended(seen: Seen, settled: Settled) -> Iterator[tuple[Check, str]]:
    standing, token = seen.standing, _token(seen)
    numbers = [attempt.number for attempt in standing.attempts]
    if settled.attempt != max(numbers, default=0):
        yield Check.OVERTAKEN, f"settled by attempt {settled.attempt} of {len(numbers)}"
    if seen.kept:
        yield Check.CHECKPOINTS_LEFT, "its finished pages are still kept; `bulkhead sweep` removes them"
    if settled.status not in _PUBLISHED:
        if token > standing.reopened_after:
            yield Check.NOT_SETTLED, f"settled as failed, and attempt {token} has stored a result"
        return
    if standing.parked is not None:
        yield Check.PARKED_AND_PUBLISHED, f"parked for {standing.parked.cause}; `bulkhead parked drop` it"
    if seen.manifest is None:
        yield Check.NOT_PUBLISHED, f"settled as {settled.status}, and there is no manifest at {settled.manifest}"
        return
    if seen.lacking:
        yield Check.ARTEFACT_MISSING, f"the manifest speaks of {', '.join(seen.lacking)}, and the store has none"
    if token != settled.attempt and not _adopted(standing, token):
        yield Check.WRONG_TOKEN, f"settled by attempt {settled.attempt}, and the manifest is of attempt {token}"
    if difference := _pages(settled, seen.manifest):
        yield Check.PAGES_DIFFER, difference


def _spent(seen: Seen) -> Iterator[tuple[Check, str]]:
    if seen.over_limit:
        yield Check.TOO_MANY_ATTEMPTS, f"{seen.over_limit} attempt(s) beyond retry.max_attempts, or was it lowered?"


def _token(seen: Seen) -> int:
    """Of the manifest; 0 where there is none."""
    token = None if seen.manifest is None else seen.manifest.get("fencing_token")
    return token if isinstance(token, int) else 0


def _adopted(standing: Standing, token: int) -> bool:
    """Stored by an earlier attempt that did not come to settle it: its parent died, or the store answered too late."""

    def left(attempt: Attempt) -> bool:
        return attempt.ended_at is None or attempt.last_cause in WORLD_CAUSES | {Cause.PARENT_DIED}

    return token > standing.reopened_after and any(each.number == token and left(each) for each in standing.attempts)


def _pages(settled: Settled, manifest: Mapping[str, object]) -> str:
    """How the pages differ; empty where they do not."""
    pages, by_state = manifest.get("pages"), manifest.get("pages_by_state")
    if not isinstance(pages, list) or not isinstance(by_state, Mapping):
        return "the manifest has no pages or pages_by_state"
    numbers = [page.get("page") for page in pages]
    if numbers != list(range(1, len(pages) + 1)):
        return f"the manifest's pages are numbered {numbers[:20]}"
    if dict(Counter(str(page.get("state")) for page in pages)) != dict(by_state):
        return f"the manifest sums its pages up as {dict(by_state)}, and lists {len(pages)} pages otherwise"
    if (settled.pages, dict(settled.pages_by_state)) != (len(pages), dict(by_state)):
        return f"the ledger has {settled.pages} pages {dict(settled.pages_by_state)}, the manifest {dict(by_state)}"
    return ""
