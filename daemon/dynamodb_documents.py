"""One document in the table: read as of one instant, changed as a whole or not at all.

Edge. Access patterns, of one table (`pk`, `sk`) and three indices that hold keys only:

- what decides about a document: `document#ID`, `head`; one consistent read, one conditional write;
- its earlier attempts: the same partition, `history#…`, in order of their numbers;
- what is parked: the same partition, `parked`; a long message in pieces, `parked#body#…`;
- all ids in order, and those that begin so: index `documents`;
- what runs (oldest first), what is parked (oldest first), what ended last, how many of each: index `states`;
- documents of a URI: index `uris`;
- who is to be told what: `outbox`, `ID#SEQUENCE`; in no index;
- who sweeps, and who tells: `lock#NAME`, `lock`, and what a sweep tells the next one: `note#NAME`, `note`; in no index.

Rules: every change writes the head's next version under the condition that it still is the one that was read, so no
two changes can be made from the same state, whatever reads lie between; every change has a name, so one whose answer
was lost is recognised. An index says where to look; what is there is read from the table itself.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import uuid4

from daemon.dynamodb_calls import MOST_WRITES, Calls, ChangedError, Item, Write, expire, put
from daemon.dynamodb_items import (
    HEAD,
    PARKED,
    Head,
    head_item,
    history_item,
    history_key,
    key,
    pk,
    seconds,
    to_attempt,
    to_head,
)
from daemon.errors import WorldError
from daemon.ledger_rows import microseconds, text
from daemon.model import Attempt, Cause, ResultStatus, Settled

DOCUMENTS, STATES, URIS = "documents", "states", "uris"
#: Changes of one document that may overtake one of ours before that is called an outage.
MOST_CONFLICTS = 50
#: Earlier attempts that one transaction can reach beside the head; older ones go by their age.
MOST_HISTORY = MOST_WRITES - 6

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[T]):
    """What to write, and what to answer once it is written."""

    answer: T
    #: The head as it shall be, but for its version; None: it is left alone.
    head: Head | None = None
    #: What is written in the same transaction.
    beside: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """All that is kept of one document, as of one instant."""

    head: Head | None
    #: Oldest first, the newest included; leases on the server's clock.
    attempts: tuple[Attempt, ...]
    #: The parked entry and the pieces of its message.
    parked: tuple[Item, ...]
    #: The server's clock.
    at: datetime


class Documents:
    """The documents of a table; used from several threads."""

    def __init__(self, calls: Calls, *, keep_s: float) -> None:
        """`keep_s`: how long what has settled is kept; 0: for ever."""
        self.calls = calls
        self._keep_s = keep_s
        #: Tells two documents of one instant apart, as far as one process can.
        self._order = itertools.count()

    def head(self, document_id: str) -> tuple[Head | None, datetime]:
        """What decides, and the server's clock."""
        item, at = self.calls.get(key(document_id))
        return (None if item is None else to_head(item)), at

    def now(self) -> datetime:
        """The server's clock."""
        _, at = self.calls.get(key("clock", "none"))
        return at

    def heads(self, document_ids: Iterable[str]) -> list[Head]:
        """Those that are there, in the order of `document_ids`."""
        wanted = list(dict.fromkeys(document_ids))
        found = {head.document.id: head for head in map(to_head, self.calls.get_all([key(each) for each in wanted]))}
        return [found[each] for each in wanted if each in found]

    def partition(self, document_id: str) -> Partition:
        """All of it: read again while somebody writes. Raises `WorldError` when that never ends."""
        for _ in range(MOST_CONFLICTS):
            items = list(self.calls.query({"pk": pk(document_id), "sk": ""}))
            now, at = self.calls.get(key(document_id))
            before = next((item for item in items if item["sk"]["S"] == HEAD), None)
            if (before and before["version"]) == (now and now["version"]):
                head = None if now is None else to_head(now)
                parked = tuple(item for item in items if item["sk"]["S"].startswith(PARKED))
                return Partition(head=head, attempts=_attempts(head, items), parked=parked, at=at)
        raise _restless(document_id)

    def history(self, head: Head) -> tuple[Attempt, ...]:
        """Attempts since the last reopening but the newest, oldest first; exact once a change from `head` succeeds."""
        newest = head.newest.number if head.newest is not None else 0
        if newest - 1 <= head.reopened_after:
            return ()
        items = self.calls.query({"pk": pk(head.document.id), "sk": ""}, after=history_key(head, head.reopened_after))
        return tuple(each for each in _attempts(head, items) if head.reopened_after < each.number < newest)

    def change(self, document_id: str, plan: Callable[[Head | None, datetime], Plan[T]]) -> T:
        """Carry out what `plan` makes of the head and the server's clock; asked again when somebody was faster.

        Raises what `plan` raises, and `WorldError` when the table does not answer or others are always faster.
        """
        name = uuid4().hex
        planned: Plan[T] | None = None
        for _ in range(MOST_CONFLICTS):
            head, at = self.head(document_id)
            if planned is not None and head is not None and head.written_by == name:
                return planned.answer  # it was written, and the answer was lost
            planned = plan(head, at)
            writes = [*self._head_writes(head, planned.head, name), *planned.beside]
            if not writes:
                return planned.answer
            try:
                self.calls.write(writes, token=uuid4().hex)
            except ChangedError:
                continue
            return planned.answer
        raise _restless(document_id)

    def _head_writes(self, before: Head | None, after: Head | None, name: str) -> Iterable[Write]:
        if after is None:
            return
        version = None if before is None else before.version
        head = replace(after, version=(version or 0) + 1, written_by=name)
        digest = hashlib.sha256(text(head.document.uri).encode()).hexdigest()
        yield put(head_item(head, state_order=self._state_order(head), uri_digest=digest), version=version)

    def _state_order(self, head: Head) -> str:
        """By what a list of documents in this state is sorted; unchanged while nothing but the lease moves."""
        if head.settled is not None:
            return f"{microseconds(head.settled.settled_at):020d}#{next(self._order):012d}"
        if head.running and head.newest is not None:
            return f"{microseconds(head.newest.started_at):020d}#{head.registered_us:020d}"
        if head.state == "owed":
            return f"{head.owed_us:020d}#{head.document.id}"
        return f"{head.registered_us:020d}"

    def expiry(self, head: Head, at: datetime, *, dropped: bool = False) -> int | None:
        """When a head may go, in seconds from 1970: what was published, or what a person has `dropped`.

        Never what has not ended, never what is parked, and not what failed: its dead letter may still come.
        """
        if head.settled is None or head.parked or not self._keep_s:
            return None
        if head.settled.status is ResultStatus.FAILED and not dropped:
            return None
        return seconds(at) + int(self._keep_s)

    def letting_go(self, head: Head) -> tuple[Write, ...]:
        """The history of a head that may go, to go with it."""
        newest = head.newest.number if head.newest is not None else 0
        if head.expires_at_s is None:
            return ()
        numbers = range(max(1, newest - MOST_HISTORY), newest)
        return tuple(expire(key(head.document.id, history_key(head, n)), at_s=head.expires_at_s) for n in numbers)

    def archived(self, head: Head, attempt: Attempt, at: datetime) -> tuple[Write, ...]:
        """`attempt` as history; one that will be out of the reach of `letting_go` goes by its age."""
        writes = (put(history_item(head, attempt), version=None),)
        old = attempt.number - MOST_HISTORY
        if old < 1 or not self._keep_s:
            return writes
        return (*writes, expire(key(head.document.id, history_key(head, old)), at_s=seconds(at) + int(self._keep_s)))

    def ids_of_state(self, state: str, *, limit: int | None = None, newest_first: bool = False) -> Sequence[str]:
        """Ids in this state, oldest first unless told otherwise, at most `limit`."""
        more: dict[str, Any] = {} if limit is None else {"Limit": limit}
        where = {"state": state, "state_order": ""}
        rows = self.calls.query(where, index=STATES, ScanIndexForward=not newest_first, **more)
        return [_id_of(item) for item in itertools.islice(rows, limit)]

    def ids(self, *, after: str = "", begins: str = "", limit: int) -> Sequence[str]:
        """Ids in order."""
        where = {"registry": "document", "document_id": ""}
        rows = self.calls.query(where, after=after, begins=begins, index=DOCUMENTS, Limit=limit)
        return [_id_of(item) for item in itertools.islice(rows, limit)]

    def recent(self, states: Sequence[str], *, limit: int) -> Sequence[Settled]:
        """The last settled of these states, newest first."""
        ids = [each for state in states for each in self.ids_of_state(state, limit=limit, newest_first=True)]
        settled = [head.settled for head in self.heads(ids) if head.settled is not None]
        return sorted(settled, key=lambda each: each.settled_at, reverse=True)[:limit]

    def ids_of_uri(self, uri: str) -> Sequence[str]:
        """Ids of all versions of one URI, in order."""
        digest = hashlib.sha256(text(uri).encode()).hexdigest()
        rows = self.calls.query({"uri_digest": digest, "document_id": ""}, index=URIS)
        return [_id_of(item) for item in rows]


def _id_of(item: Item) -> str:
    return str(item["pk"]["S"]).partition("#")[2]


def _attempts(head: Head | None, items: Iterable[Item]) -> tuple[Attempt, ...]:
    """History of this registration, and the newest. What was let go after it had gone is a stub without an attempt."""
    if head is None:
        return ()
    prefix = history_key(head)
    history = [to_attempt(item) for item in items if item["sk"]["S"].startswith(prefix) and "attempt" in item]
    return (*history, *([] if head.newest is None else [head.newest]))


def _restless(document_id: str) -> WorldError:
    detail = f"cannot read or write {document_id} in the ledger: others were faster {MOST_CONFLICTS} times"
    return WorldError(Cause.STORE_UNAVAILABLE, detail)
