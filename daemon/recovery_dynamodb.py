"""Reclaims and parked documents in the ledger's own DynamoDB table.

Edge. Rules as in `ledger_dynamodb.py`: every change checks in the same transaction that what it is about has not
changed. Reclaims are counted in the document's head. A parked entry is an item beside it, found through the index of
states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from daemon import ledger_rows as rows
from daemon.dynamodb_calls import Item, Write, absent, overwrite
from daemon.dynamodb_documents import Plan
from daemon.dynamodb_items import (
    HEAD,
    PARKED,
    Head,
    Reclaimed,
    key,
    pk,
)
from daemon.dynamodb_parked import changed, flag, key_of, pieces_of, put_new, removed, to_parked
from daemon.ledger import id_conflict
from daemon.ledger_dynamodb import DynamoDbLedger, registration, reopened
from daemon.model import Document, ResultStatus
from daemon.notice import of_parked
from daemon.outbox_dynamodb import announcement
from daemon.recovery import Listed, Parked, Standing


class DynamoDbRecovery:
    """`daemon.recovery.Recovery` beside a `DynamoDbLedger`, which stays the owner of the connections."""

    def __init__(self, ledger: DynamoDbLedger) -> None:
        self._ledger = ledger
        self._documents = ledger.documents
        self._calls = ledger.documents.calls

    def standing(self, document_id: str) -> Standing:
        """See `Recovery.standing`."""
        partition = self._documents.partition(document_id)
        head = partition.head
        parked = to_parked(partition.parked) if partition.parked else None
        if head is None:
            return Standing(parked=parked)
        return Standing(
            document=head.document,
            settled=head.settled,
            attempts=self._ledger.shown(partition.attempts, partition.at),
            reopened_after=head.reopened_after,
            reclaims={name: each.number for name, each in head.reclaims.items()},
            spent=head.spent,
            parked=parked,
        )

    def documents(self, *, after: str, limit: int) -> Sequence[str]:
        """See `Recovery.documents`."""
        return self._documents.ids(after=after, limit=limit)

    def reclaim(self, document: Document, *, key: str, attempt: int | None, now: datetime) -> int | None:
        """See `Recovery.reclaim`."""

        def plan(known: Head | None, at: datetime) -> Plan[int | None]:
            del at
            head = known or registration(document, now)
            if key in head.reclaims:
                return Plan(answer=head.reclaims[key].number)
            settled = head.settled
            if attempt is None and settled is not None:
                return Plan(answer=None)
            if attempt is not None and known is not None:
                if settled is None or settled.status is not ResultStatus.FAILED or settled.attempt != attempt:
                    return Plan(answer=None)
                head = reopened(head)
            if rows.text(head.document.uri) != rows.text(document.uri):
                raise id_conflict(document, head.document)
            counted = Reclaimed(number=head.spent + 1, at_us=rows.microseconds(now))
            return Plan(answer=counted.number, head=replace(head, reclaims={**head.reclaims, key: counted}))

        return self._documents.change(document.id, plan)

    def park(self, parked: Parked) -> None:
        """See `Recovery.park`."""

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            del at
            if self._entry(parked.key):
                return Plan(answer=None)
            beside = (*put_new(parked), *self._announced(parked, head))
            if head is None:
                return Plan(answer=None, beside=(*beside, absent(key(parked.key))))
            return Plan(answer=None, head=_set_aside(head), beside=beside)

        self._documents.change(parked.key, plan)

    def _announced(self, parked: Parked, head: Head | None) -> tuple[Write, ...]:
        """What is told of it; nothing of a message from which no document could be read."""
        if not self._ledger.notices or parked.document_id is None or parked.uri is None:
            return ()
        document = Document(id=parked.document_id, uri=parked.uri) if head is None else head.document
        attempts = 0 if head is None or head.newest is None else head.newest.number
        return (announcement(of_parked(document, attempts=attempts, cause=parked.cause, at=parked.since)),)

    def parked(self) -> Sequence[Parked]:
        """See `Recovery.parked`; an entry of this very second may be missing once."""
        keys = self._documents.ids_of_state(PARKED)
        entries = self._calls.get_all([key(each, PARKED) for each in dict.fromkeys(keys)])
        whole = [self._entry(key_of(item)) if pieces_of(item) > 1 else [item] for item in entries]
        return sorted((to_parked(items) for items in whole if items), key=lambda each: (each.since, each.key))

    def mark_alerted(self, keys: Sequence[str], *, now: datetime) -> None:
        """See `Recovery.mark_alerted`; one after the other."""
        del now
        for each in keys:
            self._documents.change(each, self._alerted(each))

    def _alerted(self, parked_key: str) -> Callable[[Head | None, datetime], Plan[None]]:
        def plan(head: Head | None, at: datetime) -> Plan[None]:
            del head, at
            items = self._entry(parked_key)
            told = not items or flag(items[0], "alerted")
            return Plan(answer=None, beside=() if told else (changed(items[0], alerted=1),))

        return plan

    def retry(self, key: str, *, now: datetime) -> Parked | None:
        """See `Recovery.retry`."""
        del now

        def plan(head: Head | None, at: datetime) -> Plan[Parked | None]:
            del at
            items = self._entry(key)
            if not items:
                return Plan(answer=None)
            found = to_parked(items)
            if found.retrying:
                return Plan(answer=found)
            granted = _granted(head) if head is not None and found.document_id is not None else None
            answer = replace(found, retrying=True)
            return Plan(answer=answer, head=granted, beside=(changed(items[0], retrying=1),))

        return self._documents.change(key, plan)

    def requeue(self, document_id: str, *, body: str, now: datetime) -> None:
        """See `Recovery.requeue`."""

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            del at
            if head is None or head.settled is None:
                return Plan(answer=None)
            settled, items = head.settled, self._entry(document_id)
            if items:
                on_its_way = changed(items[0], retrying=1, alerted=1)
                return Plan(answer=None, head=_granted(head), beside=(on_its_way,))
            parked = Parked(
                key=document_id,
                document_id=document_id,
                uri=head.document.uri,
                body=body,
                cause=settled.cause,
                detail=settled.detail,
                since=now,
                alerted=True,
                retrying=True,
            )
            return Plan(answer=None, head=_set_aside(_granted(head)), beside=put_new(parked))

        self._documents.change(document_id, plan)

    def unpark(self, key: str) -> bool:
        """See `Recovery.unpark`."""

        def plan(head: Head | None, at: datetime) -> Plan[bool]:
            items = self._entry(key)
            if not items:
                return Plan(answer=False)
            gone = tuple(removed(item) for item in items)
            if head is None:
                return Plan(answer=True, beside=gone)
            free = replace(head, parked=False)
            free = replace(free, expires_at_s=self._documents.expiry(free, at, dropped=True))
            return Plan(answer=True, head=free, beside=(*gone, *self._documents.letting_go(free)))

        return self._documents.change(key, plan)

    def strangers(self, listed: Sequence[Listed]) -> Sequence[Listed]:
        """See `Recovery.strangers`; one registered under another id a moment ago may not be seen."""
        ids = list(dict.fromkeys(each.document.id for each in listed))
        items = self._calls.get_all([key(each, sk) for each in ids for sk in (HEAD, PARKED)])
        known = {item["pk"]["S"] for item in items}
        return [each for each in listed if pk(each.document.id) not in known and not self._known_by_uri(each)]

    def _known_by_uri(self, listed: Listed) -> bool:
        heads = self._documents.heads(self._documents.ids_of_uri(listed.document.uri))
        return any(_same_bytes(head, listed) for head in heads)

    def register(self, document: Document, *, now: datetime) -> None:
        """See `Recovery.register`."""

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            del at
            owed = replace(registration(document, now), owed_us=rows.microseconds(now))
            return Plan(answer=None, head=owed if head is None else None)

        self._documents.change(document.id, plan)

    def forgotten(self, *, limit: int) -> Sequence[Document]:
        """See `Recovery.forgotten`; one of this very second may be missing once."""
        if limit <= 0:
            return []
        heads = self._documents.heads(self._documents.ids_of_state("owed", limit=limit))
        return [head.document for head in heads if head.state == "owed"]

    def enqueued(self, document_id: str) -> None:
        """See `Recovery.enqueued`."""

        def plan(head: Head | None, at: datetime) -> Plan[None]:
            del at
            owed = head is not None and head.owed_us is not None
            return Plan(answer=None, head=replace(head, owed_us=None) if head is not None and owed else None)

        self._documents.change(document_id, plan)

    def note(self, name: str) -> str | None:
        """See `Recovery.note`."""
        item, _ = self._calls.get(_note_key(name))
        return None if item is None else str(item["value"]["S"])

    def write_note(self, name: str, value: str) -> None:
        """See `Recovery.write_note`."""
        item = _note_key(name) | {"value": {"S": rows.text(value)}}
        self._calls.write([overwrite(item)], token=uuid4().hex)

    def _entry(self, parked_key: str) -> list[Item]:
        """The parked entry and the pieces of its message, in order; empty where there is none."""
        where = {"pk": key(parked_key)["pk"]["S"], "sk": ""}
        return list(self._calls.query(where, begins=PARKED))


def _note_key(name: str) -> dict[str, Any]:
    return {"pk": {"S": f"note#{rows.text(name)}"}, "sk": {"S": "note"}}


def _same_bytes(head: Head, listed: Listed) -> bool:
    """Whether this registration under the same URI asked for what is listed; see `Recovery.strangers`."""
    known, found = head.document, listed.document
    if rows.text(known.uri) != rows.text(found.uri):
        return False
    if found.version_id is not None and known.version_id == found.version_id:
        return True
    if found.etag is not None and known.etag == found.etag:
        return True
    one_names_neither = (known.version_id or known.etag) is None or (found.version_id or found.etag) is None
    return one_names_neither and head.registered_us >= rows.microseconds(listed.modified_at)


def _set_aside(head: Head) -> Head:
    return replace(head, parked=True, expires_at_s=None)


def _granted(head: Head) -> Head:
    """One more round: the newest reclaim no longer counts, and the document can be claimed again."""
    counting = [(each.at_us, each.number, name) for name, each in head.reclaims.items() if not each.forgiven]
    if counting:
        name = max(counting)[2]
        head = replace(head, reclaims={**head.reclaims, name: replace(head.reclaims[name], forgiven=True)})
    return head if head.settled is None else reopened(head)
