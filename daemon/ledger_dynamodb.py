"""The ledger in one DynamoDB table, for any number of hosts.

Edge. Rules: every write checks in one conditional write that the caller still holds what it writes to; a terminal
state is only taken back by `reopen`; numbers of attempts are never used twice. **A lease is written and judged on
the server's clock** (the `Date` of the read that each call begins with), so hosts whose clocks differ never take over
early; the callers' `now` is only shown and stored. Instants of leases are given back on the caller's clock, so that
what the shell compares with its own clock holds too. Where things lie is `dynamodb_documents.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from daemon.clock import Clock
from daemon.dynamodb_calls import Calls, Write, overwrite
from daemon.dynamodb_documents import STATES, Documents, Plan
from daemon.dynamodb_items import Head, history_item, storable
from daemon.errors import LeaseLostError
from daemon.ledger import AlreadySettled, Claim, Claimed, Held, excused, id_conflict, overtaken
from daemon.ledger_rows import microseconds, text
from daemon.model import Attempt, Document, Holder, Outcome, ResultStatus, Settled
from daemon.notice import of_settled
from daemon.outbox_dynamodb import announcement

#: The `Date` is to the second, and the answer travels: less than this is no difference between two clocks.
SAME_CLOCK = timedelta(seconds=5)
#: The longest id; a longer text begins none.
_MOST_ID_BYTES = 128
_MOST_FOUND = 20


class DynamoDbLedger:
    """`daemon.ledger.Ledger` in a table that all hosts share; used from several threads."""

    def __init__(self, calls: Calls, *, clock: Clock, boot_id: str, keep_s: float, notices: bool = False) -> None:
        """`boot_id` of this host tells our own earlier lives from another host of the same name.

        `notices`: write each state that a document ends in into the outbox too.
        """
        self.notices = notices
        self.documents = Documents(calls, keep_s=keep_s)
        self._calls = calls
        self._clock = clock
        self._boot_id = boot_id

    def claim(self, document: Document, *, holder: Holder, now: datetime, lease_s: float) -> Claim:
        """See `Ledger.claim`."""

        def plan(head: Head | None, at: datetime) -> Plan[Claim]:
            registered = head or registration(document, now)
            if text(registered.document.uri) != text(document.uri):
                raise id_conflict(document, registered.document)
            if registered.settled is not None:
                return Plan(answer=AlreadySettled(settled=registered.settled))
            newest = registered.newest
            if registered.running and newest is not None and newest.lease_until > at:
                return Plan(answer=Held(holder=newest.holder, lease_until=now + (newest.lease_until - at)))
            return self._claimed(registered, holder=holder, now=now, at=at, lease_s=lease_s)

        return self.documents.change(document.id, plan)

    def _claimed(self, head: Head, *, holder: Holder, now: datetime, at: datetime, lease_s: float) -> Plan[Claim]:
        newest, history = head.newest, list(self.documents.history(head))
        beside: tuple[Write, ...] = ()
        if newest is not None:
            if newest.ended_at is None:
                newest = overtaken(newest, by=holder, now=now)
            beside = self.documents.archived(head, newest, at)
            history += [newest] if newest.number > head.reopened_after else []
        attempt = Attempt(
            document_id=head.document.id,
            number=1 if newest is None else newest.number + 1,
            holder=holder,
            started_at=now,
            lease_until=at + timedelta(seconds=lease_s),
        )
        mine = replace(attempt, lease_until=now + timedelta(seconds=lease_s))
        return Plan(
            answer=Claimed(attempt=mine, history=tuple(history)), head=replace(head, newest=attempt), beside=beside
        )

    def renew(self, attempt: Attempt, *, now: datetime, lease_s: float) -> None:
        """See `Ledger.renew`."""
        del now
        self._act(attempt, lambda newest, at: replace(newest, lease_until=at + timedelta(seconds=lease_s)))

    def check(self, attempt: Attempt) -> None:
        """See `Ledger.check`."""
        head, _ = self.documents.head(attempt.document_id)
        _required(head, attempt)

    def record_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """See `Ledger.record_outcome`."""
        self._act(attempt, lambda newest, _: replace(newest, outcomes=(*newest.outcomes, outcome)))

    def end_attempt(self, attempt: Attempt, *, now: datetime) -> None:
        """See `Ledger.end_attempt`."""
        self._act(attempt, lambda newest, _: replace(newest, ended_at=now))

    def _act(self, attempt: Attempt, change: Callable[[Attempt, datetime], Attempt]) -> None:
        """Change the newest attempt, which must be `attempt`."""

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            required, newest = _required(head, attempt)
            return Plan(answer=None, head=replace(required, newest=change(newest, at)))

        self.documents.change(attempt.document_id, plan)

    def excuse(self, attempt: Attempt) -> None:
        """See `Ledger.excuse`."""

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            del at
            return Plan(answer=None) if head is None else self._excused(head, attempt.number)

        self.documents.change(attempt.document_id, plan)

    def _excused(self, head: Head, number: int) -> Plan[None]:
        newest = head.newest
        if newest is None or newest.number == number:
            return Plan(answer=None)
        found = [each for each in self.documents.history(head) if each.number == number]
        amended = excused(found[0]) if found else None
        if amended is None:
            return Plan(answer=None)
        return Plan(answer=None, head=head, beside=(overwrite(history_item(head, amended)),))

    def settle(self, attempt: Attempt, settled: Settled) -> None:
        """See `Ledger.settle`."""
        assert (settled.document_id, settled.attempt) == (attempt.document_id, attempt.number), (
            "settled by another attempt"
        )
        same = storable(settled)

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            before = head.settled if head is not None else None
            if before is not None and replace(before, settled_at=same.settled_at) == same:
                return Plan(answer=None)
            required, newest = _required(head, attempt)
            ended = replace(required, newest=replace(newest, ended_at=settled.settled_at), settled=same)
            ended = replace(ended, expires_at_s=self.documents.expiry(ended, at))
            beside = self.documents.letting_go(ended)
            if self.notices:
                beside = (*beside, announcement(of_settled(ended.document, same)))
            return Plan(answer=None, head=ended, beside=beside)

        self.documents.change(attempt.document_id, plan)

    def break_leases(self, *, host: str, invocation: str, now: datetime) -> int:
        """See `Ledger.break_leases`; another boot's leases run out by themselves, since it may be another host."""
        del now
        return sum(
            self.documents.change(head.document.id, lambda head, at: self._broken(head, at, host, invocation))
            for head in self._running()
        )

    def _broken(self, head: Head | None, at: datetime, host: str, invocation: str) -> Plan[int]:
        newest = head.newest if head is not None and head.running else None
        if head is None or newest is None or newest.lease_until <= at:
            return Plan(answer=0)
        who = newest.holder
        if (who.host, who.boot_id) != (host, self._boot_id) or who.invocation == invocation:
            return Plan(answer=0)
        return Plan(answer=1, head=replace(head, newest=replace(newest, lease_until=at)))

    def reopen(self, document_id: str) -> bool:
        """See `Ledger.reopen`."""

        def plan(head: Head | None, at: datetime) -> Plan[bool]:
            del at
            if head is None or head.settled is None:
                return Plan(answer=False)
            return Plan(answer=True, head=reopened(head))

        return self.documents.change(document_id, plan)

    def document(self, document_id: str) -> Document | None:
        """See `Ledger.document`."""
        head, _ = self.documents.head(document_id)
        return None if head is None else head.document

    def find(self, wanted: str) -> Sequence[Document]:
        """See `Ledger.find`."""
        is_id = len(text(wanted).encode()) <= _MOST_ID_BYTES
        if is_id and wanted and (whole := self.document(wanted)) is not None:
            return [whole]
        same_uri = [head.document for head in self.documents.heads(self.documents.ids_of_uri(wanted))]
        if same_uri or not is_id:
            return same_uri
        ids = self.documents.ids(begins=text(wanted), limit=_MOST_FOUND)
        return [head.document for head in self.documents.heads(ids)]

    def attempts(self, document_id: str) -> Sequence[Attempt]:
        """See `Ledger.attempts`."""
        partition = self.documents.partition(document_id)
        return self.shown(partition.attempts, partition.at)

    def shown(self, attempts: Sequence[Attempt], at: datetime) -> tuple[Attempt, ...]:
        """Their leases on this host's clock, when the server's says `at`."""
        ahead = self._clock.now() - at
        if abs(ahead) < SAME_CLOCK:
            return tuple(attempts)
        return tuple(replace(each, lease_until=each.lease_until + ahead) for each in attempts)

    def settled(self, document_id: str) -> Settled | None:
        """See `Ledger.settled`."""
        head, _ = self.documents.head(document_id)
        return None if head is None else head.settled

    def running(self) -> Sequence[Attempt]:
        """See `Ledger.running`."""
        attempts = [head.newest for head in self._running() if head.newest is not None]
        return self.shown(attempts, self.documents.now()) if attempts else ()

    def _running(self) -> list[Head]:
        return [head for head in self.documents.heads(self.documents.ids_of_state("running")) if head.running]

    def counts(self) -> Mapping[str, int]:
        """See `Ledger.counts`; of a moment ago, and it reads every key, so it is for people."""
        states = ("running", "waiting", *(status.value for status in ResultStatus))
        counts = {state: self._calls.count({"state": state, "state_order": ""}, index=STATES) for state in states}
        owed = self._calls.count({"state": "owed", "state_order": ""}, index=STATES)
        return counts | {"waiting": counts["waiting"] + owed}

    def recent(self, *, limit: int) -> Sequence[Settled]:
        """See `Ledger.recent`."""
        if limit <= 0:
            return []
        return self.documents.recent([status.value for status in ResultStatus], limit=limit)

    def close(self) -> None:
        """See `Ledger.close`."""
        self._calls.close()


def registration(document: Document, now: datetime) -> Head:
    """A document that was not known."""
    return Head(document=document, born=uuid4().hex[:12], registered_us=microseconds(now), written_by="")


def reopened(head: Head) -> Head:
    """The same, to be claimed again with a history that begins afresh."""
    newest = head.newest.number if head.newest is not None else 0
    return replace(head, settled=None, reopened_after=newest, expires_at_s=None)


def _required(head: Head | None, attempt: Attempt) -> tuple[Head, Attempt]:
    """The head and its newest attempt; raises `LeaseLostError`, with the reason, unless `attempt` may still act."""
    what = f"attempt {attempt.number} at {attempt.document_id}"
    if head is None or head.newest is None:
        raise LeaseLostError(f"cannot go on with {what}: the ledger does not know it any more")
    if head.settled is not None:
        raise LeaseLostError(f"cannot go on with {what}: the document is settled")
    newest = head.newest
    if newest.number != attempt.number:
        who = f"host {newest.holder.host}, pid {newest.holder.pid}"
        raise LeaseLostError(f"cannot go on with {what}: attempt {newest.number} has taken over ({who})")
    if newest.ended_at is not None:
        raise LeaseLostError(f"cannot go on with {what}: it has ended")
    return head, newest
