"""What a ledger keeps of failures, in memory, beside a `MemoryLedger`.

Fake: nothing is durable, everything else holds. `tests/contract/test_recovery.py` proves it against the real ones'
suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from daemon.ledger import id_conflict
from daemon.ledger_rows import text
from daemon.model import Document, ResultStatus
from daemon.notice import of_parked
from daemon.recovery import Listed, Parked, Standing
from tests.fakes.ledger import MemoryLedger


@dataclass
class _Reclaims:
    """Of one document."""

    numbers: dict[str, int] = field(default_factory=dict)
    #: Keys that count against the limit, in order of their instants.
    counting: list[tuple[datetime, int, str]] = field(default_factory=list)


class MemoryRecovery:
    """Reclaims, parked entries, debts and notes in dictionaries."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self._reclaims: dict[str, _Reclaims] = {}
        self._parked: dict[str, Parked] = {}
        #: Since when each is owed a message.
        self._owed: dict[str, datetime] = {}
        self._notes: dict[str, str] = {}

    def standing(self, document_id: str) -> Standing:
        """See `Recovery.standing`."""
        with self._ledger.lock:
            reclaims = self._reclaims.get(document_id, _Reclaims())
            return Standing(
                document=self._ledger.document(document_id),
                settled=self._ledger.settled(document_id),
                attempts=tuple(self._ledger.attempts(document_id)),
                reopened_after=self._ledger.reopened_after.get(document_id, 0),
                reclaims=dict(reclaims.numbers),
                spent=len(reclaims.counting),
                parked=self._parked.get(document_id),
            )

    def documents(self, *, after: str, limit: int) -> Sequence[str]:
        """See `Recovery.documents`."""
        with self._ledger.lock:
            return sorted(each for each in self._ledger.documents if each > after)[:limit]

    def reclaim(self, document: Document, *, key: str, attempt: int | None, now: datetime) -> int | None:
        """See `Recovery.reclaim`."""
        with self._ledger.lock:
            reclaims = self._reclaims.setdefault(document.id, _Reclaims())
            if key in reclaims.numbers:
                return reclaims.numbers[key]
            known, settled = self._ledger.document(document.id), self._ledger.settled(document.id)
            if attempt is None and settled is not None:
                return None
            given_up = settled is not None and settled.status is ResultStatus.FAILED and settled.attempt == attempt
            if attempt is not None and known is not None and not given_up:
                return None
            if known is not None and known.uri != document.uri:
                raise id_conflict(document, known)
            if attempt is not None:
                self._ledger.reopen(document.id)
            self._ledger.register(document, now)
            reclaims.numbers[key] = len(reclaims.counting) + 1
            reclaims.counting.append((now, reclaims.numbers[key], key))
            return reclaims.numbers[key]

    def park(self, parked: Parked) -> None:
        """See `Recovery.park`."""
        with self._ledger.lock:
            if parked.key not in self._parked:
                self._parked[parked.key] = replace(parked, body=text(parked.body))
                self._announce(parked)

    def _announce(self, parked: Parked) -> None:
        if parked.document_id is None or parked.uri is None:
            return
        document = self._ledger.document(parked.document_id) or Document(id=parked.document_id, uri=parked.uri)
        attempts = len(self._ledger.attempts(document.id))
        self._ledger.announce(of_parked(document, attempts=attempts, cause=parked.cause, at=parked.since))

    def parked(self) -> Sequence[Parked]:
        """See `Recovery.parked`."""
        with self._ledger.lock:
            return sorted(self._parked.values(), key=lambda each: (each.since, each.key))

    def mark_alerted(self, keys: Sequence[str], *, now: datetime) -> None:
        """See `Recovery.mark_alerted`."""
        del now
        with self._ledger.lock:
            for key in set(keys) & self._parked.keys():
                self._parked[key] = replace(self._parked[key], alerted=True)

    def retry(self, key: str, *, now: datetime) -> Parked | None:
        """See `Recovery.retry`."""
        del now
        with self._ledger.lock:
            found = self._parked.get(key)
            if found is not None and not found.retrying:
                self._grant(found.document_id)
                self._parked[key] = replace(found, retrying=True)
            return self._parked.get(key)

    def requeue(self, document_id: str, *, body: str, now: datetime) -> None:
        """See `Recovery.requeue`."""
        with self._ledger.lock:
            document, settled = self._ledger.document(document_id), self._ledger.settled(document_id)
            if document is None or settled is None:
                return
            entry = Parked(
                key=document_id,
                document_id=document_id,
                uri=document.uri,
                body=body,
                cause=settled.cause,
                detail=settled.detail,
                since=now,
            )
            self._parked.setdefault(document_id, replace(entry, body=text(entry.body)))
            self._grant(document_id)
            self._parked[document_id] = replace(self._parked[document_id], retrying=True, alerted=True)

    def unpark(self, key: str) -> bool:
        """See `Recovery.unpark`."""
        with self._ledger.lock:
            return self._parked.pop(key, None) is not None

    def strangers(self, listed: Sequence[Listed]) -> Sequence[Listed]:
        """See `Recovery.strangers`."""
        with self._ledger.lock:
            return [each for each in listed if not self._known(each)]

    def _known(self, listed: Listed) -> bool:
        found = listed.document
        if found.id in self._ledger.documents or found.id in self._parked:
            return True
        for known in self._ledger.documents.values():
            if known.uri != found.uri:
                continue
            if (found.version_id and found.version_id == known.version_id) or (found.etag and found.etag == known.etag):
                return True
            named = (known.version_id or known.etag) and (found.version_id or found.etag)
            if not named and self._ledger.registered_at[known.id] >= listed.modified_at:
                return True
        return False

    def register(self, document: Document, *, now: datetime) -> None:
        """See `Recovery.register`."""
        with self._ledger.lock:
            if document.id not in self._ledger.documents:
                self._ledger.register(document, now)
                self._owed[document.id] = now

    def forgotten(self, *, limit: int) -> Sequence[Document]:
        """See `Recovery.forgotten`."""
        with self._ledger.lock:
            owed = sorted((since, each) for each, since in self._owed.items() if not self._ledger.attempts(each))
            return [self._ledger.documents[each] for _, each in owed[:limit]]

    def enqueued(self, document_id: str) -> None:
        """See `Recovery.enqueued`."""
        with self._ledger.lock:
            self._owed.pop(document_id, None)

    def note(self, name: str) -> str | None:
        """See `Recovery.note`."""
        return self._notes.get(name)

    def write_note(self, name: str, value: str) -> None:
        """See `Recovery.write_note`."""
        self._notes[name] = text(value)

    def _grant(self, document_id: str | None) -> None:
        if document_id is None:
            return
        counting = self._reclaims.setdefault(document_id, _Reclaims()).counting
        if counting:
            counting.remove(max(counting))
        self._ledger.reopen(document_id)
