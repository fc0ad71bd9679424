"""A parked entry as items of the ledger's table, and back.

Edge, but without I/O. Rules: a message is kept whole: one too long for one item (SQS's may have 1 MiB, an item 400 KB)
goes on in pieces beside the entry, in the same transaction; an entry is only changed as it was read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from daemon import ledger_rows as rows
from daemon.dynamodb_calls import Item, Write, delete, overwrite, put
from daemon.dynamodb_items import MOST_DETAIL_BYTES, PARKED, key, shortened
from daemon.model import Cause, Stage
from daemon.recovery import Parked

#: Compressed bytes of a message in one item.
PIECE_BYTES = 300_000
#: What of an entry is kept as one text; the rest says where it is in its life.
_FIELDS = ("document_id", "uri", "cause", "signal", "stage", "build", "detail", "attempts", "reclaims", "since")


def put_new(parked: Parked) -> tuple[Write, ...]:
    """The entry, which must not be there yet, and the pieces of its message."""
    body = zlib.compress(rows.text(parked.body).encode())
    pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
    values: dict[str, Any] = {name: getattr(parked, name) for name in _FIELDS}
    values |= {
        "cause": parked.cause.value,
        "stage": None if parked.stage is None else parked.stage.value,
        "uri": None if parked.uri is None else rows.text(parked.uri),
        "detail": shortened(parked.detail, MOST_DETAIL_BYTES),
        "since": rows.microseconds(parked.since),
    }
    head = key(parked.key, PARKED) | {
        "key": {"S": rows.text(parked.key)},
        "state": {"S": PARKED},
        "state_order": {"S": f"{values['since']:020d}#{rows.text(parked.key)}"},
        "version": {"N": "1"},
        "alerted": {"N": str(int(parked.alerted))},
        "retrying": {"N": str(int(parked.retrying))},
        "entry": {"S": json.dumps(values, ensure_ascii=False)},
        "pieces": {"N": str(len(pieces))},
        "body": {"B": pieces[0]},
    }
    more = (
        overwrite(key(parked.key, f"{PARKED}#body#{number:04d}") | {"body": {"B": piece}})
        for number, piece in enumerate(pieces[1:], start=2)
    )
    return (put(head, version=None), *more)


def to_parked(items: Sequence[Item]) -> Parked:
    """From the entry and the pieces of its message."""
    first = items[0]
    values = json.loads(first["entry"]["S"])
    body = b"".join(bytes(item["body"]["B"]) for item in items)
    return Parked(
        **values
        | {
            "cause": Cause(values["cause"]),
            "stage": None if values["stage"] is None else Stage(values["stage"]),
            "since": rows.instant(values["since"]),
        },
        key=key_of(first),
        body=zlib.decompress(body).decode(),
        alerted=flag(first, "alerted"),
        retrying=flag(first, "retrying"),
    )


def changed(item: Item, **flags: int) -> Write:
    """The entry with other flags, if it is still the one that was read."""
    version = int(item["version"]["N"])
    numbers = {name: {"N": str(value)} for name, value in (flags | {"version": version + 1}).items()}
    return put({**item, **numbers}, version=version)


def removed(item: Item) -> Write:
    """No such item any more; an entry must still be the one that was read."""
    version = int(item["version"]["N"]) if "version" in item else None
    return delete({"pk": item["pk"], "sk": item["sk"]}, version=version)


def flag(item: Item, name: str) -> bool:
    """`alerted` or `retrying`."""
    return bool(int(item[name]["N"]))


def pieces_of(item: Item) -> int:
    """How many items hold the message."""
    return int(item["pieces"]["N"])


def key_of(item: Item) -> str:
    """The entry's key."""
    return str(item["key"]["S"])
