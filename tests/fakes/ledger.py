"""A ledger in memory that keeps the contract of `daemon.ledger.Ledger`.

Fake: nothing is durable, everything else holds, from several threads too. `tests/contract/test_ledger.py` proves it
against the same suite as the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from daemon.errors import LeaseLostError
from daemon.ledger import AlreadySettled, Claim, Claimed, Held, excused, id_conflict, overtaken
from daemon.model import Attempt, Document, Holder, Outcome, ResultStatus, Settled
from daemon.notice import Notice, of_settled


class MemoryLedger:
    """Documents, attempts and settled results in three dictionaries; `fakes/recovery.py` looks into them too."""

    def __init__(self, *, notices: bool = False) -> None:
        self.lock = threading.RLock()
        self._notices = notices
        #: What waits to be sent; `fakes/outbox.py` takes it out.
        self.announced: list[Notice] = []
        self.documents: dict[str, Document] = {}
        self.registered_at: dict[str, datetime] = {}
        self._attempts: dict[str, list[Attempt]] = {}
        #: Number of the last attempt before the document was last reopened.
        self.reopened_after: dict[str, int] = {}
        #: In the order of settling.
        self._settled: dict[str, Settled] = {}

    def claim(self, document: Document, *, holder: Holder, now: datetime, lease_s: float) -> Claim:
        """See `Ledger.claim`."""
        with self.lock:
            known = self.register(document, now)
            if known.uri != document.uri:
                raise id_conflict(document, known)
            if document.id in self._settled:
                return AlreadySettled(settled=self._settled[document.id])
            attempts = self._attempts.setdefault(document.id, [])
            if attempts and attempts[-1].ended_at is None and attempts[-1].lease_until > now:
                return Held(holder=attempts[-1].holder, lease_until=attempts[-1].lease_until)
            if attempts and attempts[-1].ended_at is None:
                self._put(overtaken(attempts[-1], by=holder, now=now))
            forgotten = self.reopened_after.get(document.id, 0)
            history = tuple(each for each in attempts if each.number > forgotten)
            attempt = Attempt(
                document_id=document.id,
                number=len(attempts) + 1,
                holder=holder,
                started_at=now,
                lease_until=now + timedelta(seconds=lease_s),
            )
            attempts.append(attempt)
            return Claimed(attempt=attempt, history=history)

    def register(self, document: Document, now: datetime) -> Document:
        """What is registered under this id; `document` from `now` on, where nothing was."""
        self.registered_at.setdefault(document.id, now)
        return self.documents.setdefault(document.id, document)

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """See `Ledger.renew`."""
        with self.lock:
            current = self._require(attempt)
            self._put(replace(current, lease_until=now + timedelta(seconds=lease_s)))

    def check(self, attempt: Attempt) -> None:
        """See `Ledger.check`."""
        with self.lock:
            self._require(attempt)

    def record_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """See `Ledger.record_outcome`."""
        with self.lock:
            current = self._require(attempt)
            self._put(replace(current, outcomes=(*current.outcomes, outcome)))

    def end_attempt(self, attempt: Attempt, *, now: datetime) -> None:
        """See `Ledger.end_attempt`."""
        with self.lock:
            self._put(replace(self._require(attempt), ended_at=now))

    def excuse(self, attempt: Attempt) -> None:
        """See `Ledger.excuse`."""
        with self.lock:
            attempts = self._attempts.get(attempt.document_id, [])
            forgotten = self.reopened_after.get(attempt.document_id, 0)
            if forgotten < attempt.number < len(attempts):
                amended = excused(attempts[attempt.number - 1])
                self._put(amended or attempts[attempt.number - 1])

    def settle(self, attempt: Attempt, settled: Settled) -> None:
        """See `Ledger.settle`."""
        assert (settled.document_id, settled.attempt) == (attempt.document_id, attempt.number), (
            "settled by another attempt"
        )
        with self.lock:
            before = self._settled.get(attempt.document_id)
            if before is not None and replace(before, settled_at=settled.settled_at) == settled:
                return
            self._put(replace(self._require(attempt), ended_at=settled.settled_at))
            self._settled[attempt.document_id] = settled
            self.announce(of_settled(self.documents[attempt.document_id], settled))

    def announce(self, notice: Notice) -> None:
        """Let it wait, where notices are wanted and it does not wait already."""
        if self._notices and notice not in self.announced:
            self.announced.append(notice)

    def break_leases(self, *, host: str, invocation: str, now: datetime) -> int:
        """See `Ledger.break_leases`."""
        with self.lock:
            left = [
                attempt
                for attempt in self.running()
                if attempt.holder.host == host and attempt.holder.invocation != invocation and attempt.lease_until > now
            ]
            for attempt in left:
                self._put(replace(attempt, lease_until=now))
            return len(left)

    def reopen(self, document_id: str) -> bool:
        """See `Ledger.reopen`."""
        with self.lock:
            if self._settled.pop(document_id, None) is None:
                return False
            self.reopened_after[document_id] = self._attempts[document_id][-1].number
            return True

    def document(self, document_id: str) -> Document | None:
        """See `Ledger.document`."""
        with self.lock:
            return self.documents.get(document_id)

    def find(self, wanted: str) -> Sequence[Document]:
        """See `Ledger.find`."""
        with self.lock:
            known = sorted(self.documents.values(), key=lambda each: each.id)
            by_id = [each for each in known if each.id == wanted]
            by_uri = [each for each in known if each.uri == wanted]
            return by_id or by_uri or [each for each in known if each.id.startswith(wanted)][:20]

    def attempts(self, document_id: str) -> Sequence[Attempt]:
        """See `Ledger.attempts`."""
        with self.lock:
            return tuple(self._attempts.get(document_id, ()))

    def settled(self, document_id: str) -> Settled | None:
        """See `Ledger.settled`."""
        with self.lock:
            return self._settled.get(document_id)

    def running(self) -> Sequence[Attempt]:
        """See `Ledger.running`."""
        with self.lock:
            newest = [attempts[-1] for name, attempts in self._attempts.items() if name not in self._settled]
            return sorted((attempt for attempt in newest if attempt.ended_at is None), key=lambda each: each.started_at)

    def counts(self) -> Mapping[str, int]:
        """See `Ledger.counts`."""
        with self.lock:
            terminal = [settled.status for settled in self._settled.values()]
            running = len(self.running())
            waiting = len(self.documents) - running - len(terminal)
            return {
                "running": running,
                "waiting": waiting,
                **{status.value: terminal.count(status) for status in ResultStatus},
            }

    def recent(self, *, limit: int) -> Sequence[Settled]:
        """See `Ledger.recent`."""
        with self.lock:
            newest_first = reversed(self._settled.values())
            return sorted(newest_first, key=lambda each: each.settled_at, reverse=True)[:limit]

    def close(self) -> None:
        """See `Ledger.close`."""

    def _require(self, attempt: Attempt) -> Attempt:
        """The attempt as it stands; raises `LeaseLostError` unless it may still act for its document."""
        if attempt.document_id in self._settled:
            raise LeaseLostError(f"cannot go on with {attempt.document_id}: the document is settled")
        current = self._attempts[attempt.document_id][-1]
        if current.number != attempt.number:
            raise LeaseLostError(f"cannot go on with {attempt.document_id}: attempt {current.number} has taken over")
        if current.ended_at is not None:
            raise LeaseLostError(f"cannot go on with {attempt.document_id}: the attempt has ended")
        return current

    def _put(self, attempt: Attempt) -> None:
        self._attempts[attempt.document_id][attempt.number - 1] = attempt
