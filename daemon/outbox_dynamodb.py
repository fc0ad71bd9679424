"""The outbox in the ledger's own DynamoDB table.

Edge. One partition for all that waits, sorted by document and then by sequence, so those of one document come out in
their order whatever any clock says. Rules: `announcement` belongs into the transaction of the state that it tells of;
nothing here expires.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from daemon import ledger_rows as rows
from daemon.dynamodb_calls import MOST_WRITES, Calls, Item, Write, delete, overwrite
from daemon.notice import Notice, NoticeState
from daemon.outbox import Backlog

_WHERE = {"pk": "outbox", "sk": ""}


def announcement(notice: Notice) -> Write:
    """The write of one notice; the same state again changes nothing."""
    told = {"sequence": notice.sequence, "state": str(notice.state), "at_us": rows.microseconds(notice.at)}
    item = _key(notice) | {
        "told": {"S": json.dumps(told | {"document_id": notice.document_id})},
        "body": {"S": rows.text(notice.body)},
    }
    return overwrite(item)


class DynamoDbOutbox:
    """`daemon.outbox.Outbox` beside a `DynamoDbLedger`, which stays the owner of the connections."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def waiting(self, *, limit: int) -> Sequence[Notice]:
        """See `Outbox.waiting`; by document, not by age."""
        return [_to_notice(item) for item in itertools.islice(self._calls.query(_WHERE, Limit=limit), limit)]

    def sent(self, notices: Sequence[Notice]) -> None:
        """See `Outbox.sent`."""
        for start in range(0, len(notices), MOST_WRITES):
            gone = [delete(_key(notice)) for notice in notices[start : start + MOST_WRITES]]
            self._calls.write(gone, token=uuid4().hex)

    def backlog(self) -> Backlog:
        """See `Outbox.backlog`; reads all of it, so it is for people."""
        number = 0
        oldest: datetime | None = None
        for item in self._calls.query(_WHERE):
            at = _to_notice(item).at
            number, oldest = number + 1, at if oldest is None else min(oldest, at)
        return Backlog(number=number, oldest_at=oldest)


def _key(notice: Notice) -> dict[str, Any]:
    # Ids hold no `#`, so no document's notices lie between those of another one.
    return {"pk": {"S": _WHERE["pk"]}, "sk": {"S": f"{notice.document_id}#{notice.sequence:020d}"}}


def _to_notice(item: Item) -> Notice:
    told = json.loads(item["told"]["S"])
    return Notice(
        document_id=told["document_id"],
        sequence=told["sequence"],
        state=NoticeState(told["state"]),
        at=rows.instant(told["at_us"]),
        body=item["body"]["S"],
    )
