"""Documents, attempts and parked entries as items of a DynamoDB table, and back.

Edge, but without I/O and without a clock. Rules: an item is only made of texts, whole numbers and bytes (floats lie
within JSON); no item grows beyond DynamoDB's 400 KB: what is for a person is cut, what is sent again is split.
Instants are microseconds since 1970, as in SQLite, and values are SQLite's rows with their columns' names, so that both
ledgers keep the same.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from daemon import ledger_rows as rows
from daemon.dynamodb_calls import Item
from daemon.errors import ConfigurationError, DocumentError
from daemon.model import Attempt, Cause, Document, Outcome, Settled

#: Of the items below. One that is higher was written by a newer version and is refused.
SCHEMA = 1
#: Compressed outcomes of one attempt; the item holds little else.
MOST_OUTCOME_BYTES = 200_000
#: What is left of an outcome's long texts once there are too many.
SHORT_CHARS = 500
#: A document's URI, version and ETag together.
MOST_DOCUMENT_BYTES = 60_000
#: A sentence for a person.
MOST_DETAIL_BYTES = 30_000
#: Reclaims that are remembered; a dead letter lives for two weeks.
MOST_RECLAIMS = 300

HEAD = "head"
PARKED = "parked"
_HISTORY = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """One counted return to the queue."""

    number: int
    at_us: int
    forgiven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """All that decides about one document; each write is a new version of the whole."""

    document: Document
    #: Drawn when the document was registered: history of an earlier registration is not this one's.
    born: str
    registered_us: int
    #: Which call wrote this version.
    written_by: str
    version: int = 1
    #: The newest attempt with its outcomes; its `lease_until` is on the server's clock.
    newest: Attempt | None = None
    reopened_after: int = 0
    settled: Settled | None = None
    #: Since when it is owed a message, in microseconds since 1970.
    owed_us: int | None = None
    reclaims: Mapping[str, Reclaimed] = field(default_factory=dict)
    #: A parked entry lies beside it.
    parked: bool = False
    #: Seconds since 1970 after which DynamoDB may remove it.
    expires_at_s: int | None = None

    @property
    def running(self) -> bool:
        """Somebody may hold it."""
        return self.settled is None and self.newest is not None and self.newest.ended_at is None

    @property
    def state(self) -> str:
        """`running`, `owed` (a message, never attempted), `waiting`, or how it was settled."""
        if self.settled is not None:
            return self.settled.status.value
        if self.owed_us is not None and self.newest is None:
            return "owed"
        return "running" if self.running else "waiting"

    @property
    def spent(self) -> int:
        """Reclaims that count."""
        return sum(not each.forgiven for each in self.reclaims.values())


def pk(document_id: str) -> str:
    """The partition of one document, or of one unreadable message."""
    return f"document#{rows.text(document_id)}"


def key(document_id: str, sk: str = HEAD) -> dict[str, Any]:
    """The key of one item of a document."""
    return {"pk": {"S": pk(document_id)}, "sk": {"S": sk}}


def history_key(head: Head, number: int | None = None) -> str:
    """Where attempt `number` lies once it is not the newest; without one, what all of them begin with."""
    return f"{_HISTORY}#{head.born}#" + ("" if number is None else f"{number:010d}")


def head_item(head: Head, *, state_order: str, uri_digest: str) -> Item:
    """A head as it is written; `state_order` sorts documents of one state."""
    document = _named(rows.DOCUMENT_COLUMNS, rows.document_row(head.document))
    if len(document.encode()) > MOST_DOCUMENT_BYTES:
        detail = (
            f"cannot register {head.document.id}: its uri, version_id and etag have more than {MOST_DOCUMENT_BYTES}"
        )
        raise DocumentError(Cause.MALFORMED_MESSAGE, f"{detail} bytes")
    texts: dict[str, str] = {
        "registry": "document",
        "document_id": head.document.id,
        "state": head.state,
        "state_order": state_order,
        "uri_digest": uri_digest,
        "document": document,
        "born": head.born,
        "written_by": head.written_by,
        "reclaims": json.dumps({name: (r.number, r.at_us, r.forgiven) for name, r in _newest(head.reclaims)}),
    }
    if head.settled is not None:
        texts["settled"] = _named(rows.SETTLED_COLUMNS, rows.settled_row(storable(head.settled)))
    numbers = {
        "schema": SCHEMA,
        "version": head.version,
        "registered_us": head.registered_us,
        "reopened_after": head.reopened_after,
        "parked": int(head.parked),
    }
    if head.expires_at_s is not None:
        numbers["expires_at"] = head.expires_at_s
    if head.owed_us is not None:
        numbers["owed_us"] = head.owed_us
    item = key(head.document.id) | _texts(texts) | _numbers(numbers)
    return item | (_attempt(head.newest) if head.newest is not None else {})


def to_head(item: Item) -> Head:
    """The head that was written. Raises `ConfigurationError` when a newer version wrote it."""
    if int(item["schema"]["N"]) > SCHEMA:
        message = f"cannot read {item['pk']['S']} in the ledger's table: a newer version wrote it. Upgrade this host."
        raise ConfigurationError(message)
    settled = rows.to_settled(_row(rows.SETTLED_COLUMNS, item["settled"]["S"])) if "settled" in item else None
    reclaims = json.loads(item["reclaims"]["S"])
    return Head(
        document=rows.to_document(_row(rows.DOCUMENT_COLUMNS, item["document"]["S"])),
        born=item["born"]["S"],
        registered_us=int(item["registered_us"]["N"]),
        written_by=item["written_by"]["S"],
        version=int(item["version"]["N"]),
        newest=to_attempt(item) if "attempt" in item else None,
        reopened_after=int(item["reopened_after"]["N"]),
        settled=settled,
        owed_us=int(item["owed_us"]["N"]) if "owed_us" in item else None,
        reclaims={name: Reclaimed(number=n, at_us=at, forgiven=f) for name, (n, at, f) in reclaims.items()},
        parked=bool(int(item["parked"]["N"])),
        expires_at_s=int(item["expires_at"]["N"]) if "expires_at" in item else None,
    )


def history_item(head: Head, attempt: Attempt) -> Item:
    """An attempt that is not the newest any more; it goes when its head goes."""
    item = key(attempt.document_id, history_key(head, attempt.number)) | _attempt(attempt)
    return item | ({} if head.expires_at_s is None else _numbers({"expires_at": head.expires_at_s}))


def to_attempt(item: Item) -> Attempt:
    """The attempt in a head or in an item of its own."""
    outcomes = json.loads(zlib.decompress(item["outcomes"]["B"]))
    return rows.to_attempt(
        _row(rows.ATTEMPT_COLUMNS, item["attempt"]["S"]),
        [rows.to_outcome([each.get(name) for name in rows.OUTCOME_COLUMNS.split(", ")]) for each in outcomes],
    )


def storable(settled: Settled) -> Settled:
    """`settled` as it is read back: a very long detail is cut, text that is not Unicode is escaped."""
    shown = rows.to_settled(rows.settled_row(settled))
    return replace(shown, detail=shortened(shown.detail, MOST_DETAIL_BYTES))


def shortened(value: str, most_bytes: int) -> str:
    """`value`, or its beginning and its end, and what was left out."""
    raw = rows.text(value).encode()
    if len(raw) <= most_bytes:
        return raw.decode()
    half = most_bytes // 2 - 50  # so that what is short stays as it is
    left_out = f" […{len(raw) - 2 * half} bytes left out…] "
    return raw[:half].decode(errors="ignore") + left_out + raw[-half:].decode(errors="ignore")


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": {"S": _named(rows.ATTEMPT_COLUMNS, rows.attempt_row(attempt))},
        "outcomes": {"B": _packed(attempt.outcomes)},
    }


def _packed(outcomes: Sequence[Outcome]) -> bytes:
    """Compressed; when they are too many, the long texts of the oldest are cut first, and then they go altogether."""
    kept = [replace(each, detail=shortened(each.detail, MOST_DETAIL_BYTES)) for each in outcomes]
    for chars in (SHORT_CHARS, 0):
        for position, outcome in enumerate(kept):
            packed = _compressed(kept)
            if len(packed) <= MOST_OUTCOME_BYTES:
                return packed
            kept[position] = replace(
                outcome,
                detail=outcome.detail[: max(chars, 100)],
                traceback=outcome.traceback[:chars],
                stderr_tail=outcome.stderr_tail[-chars:] if chars else "",
            )
    return _compressed(kept)


def _compressed(outcomes: Sequence[Outcome]) -> bytes:
    names = rows.OUTCOME_COLUMNS.split(", ")
    table = [dict(zip(names, rows.outcome_row(each), strict=True)) for each in outcomes]
    return zlib.compress(json.dumps(table).encode())


def _newest(reclaims: Mapping[str, Reclaimed]) -> list[tuple[str, Reclaimed]]:
    """In order of counting; those that count are never forgotten."""
    ordered = sorted(reclaims.items(), key=lambda entry: (entry[1].at_us, entry[1].number))
    forgettable = [entry for entry in ordered if entry[1].forgiven]
    forgotten = {name for name, _ in forgettable[: max(0, len(ordered) - MOST_RECLAIMS)]}
    return [entry for entry in ordered if entry[0] not in forgotten]


def _named(columns: str, row: rows.Row) -> str:
    return json.dumps(dict(zip(columns.split(", "), row, strict=True)), ensure_ascii=False)


def _row(columns: str, text: str) -> rows.Row:
    values = json.loads(text)
    return [values.get(name) for name in columns.split(", ")]


def _texts(values: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"S": value} for name, value in values.items()}


def _numbers(values: Mapping[str, int]) -> dict[str, Any]:
    return {name: {"N": str(value)} for name, value in values.items()}


def seconds(instant: datetime) -> int:
    """Whole seconds since 1970, as DynamoDB's TTL wants them."""
    return int(instant.timestamp())
