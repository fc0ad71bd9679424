"""A dead letter as SQS takes it: body and attributes that fit the queue together.

Core in kind. Rules: the body stays as it came, so that a redrive works; cause and history are attributes; when the
whole is too large the detail is cut first, and only a body that does not fit alone is cut too, and says so in
`body_bytes`. No character that SQS refuses is sent, no text is cut within a character.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.model import Cause
from daemon.queue import DeadLetter, DeadMessage

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

#: SQS takes the characters of XML 1.0 and refuses a message with any other.
_REFUSED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: The detail's own bound: every cause in order, one sentence each, is far below it.
MAX_DETAIL_BYTES = 16 * 2**10
#: What the detail may always keep, also beside a body that fills the queue's limit.
MIN_DETAIL_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What is sent: the body, and attributes by name as (`String` or `Number`, value)."""

    body: str
    attributes: Mapping[str, tuple[str, str]]

    @property
    def size_bytes(self) -> int:
        """As SQS counts: the body, and each attribute's name, type and value, in UTF-8."""
        parts = [self.body]
        for name, (kind, value) in self.attributes.items():
            parts += [name, kind, value]
        return sum(len(part.encode()) for part in parts)


def parcel(letter: DeadLetter, *, host: str, max_bytes: int) -> Parcel:
    """Pack `letter` into at most `max_bytes`, at least 1024."""
    body, detail = sendable(letter.body), shortened(sendable(letter.detail), MAX_DETAIL_BYTES)
    packed = _packed(letter, body, detail, host)
    excess_bytes = packed.size_bytes - max_bytes
    if excess_bytes > 0:
        detail_bytes = len(detail.encode())
        detail = shortened(detail, max(detail_bytes - excess_bytes, MIN_DETAIL_BYTES))
        packed = _packed(letter, body, detail, host)
    if packed.size_bytes > max_bytes:
        whole_bytes = len(body.encode())
        bare = _packed(letter, "", detail, host, body_bytes=whole_bytes)
        body = shortened(body, max_bytes - bare.size_bytes)
        packed = _packed(letter, body, detail, host, body_bytes=whole_bytes)
    assert packed.size_bytes <= max_bytes, "cause, ids and a short detail are far below any queue's limit"
    return packed


def _packed(letter: DeadLetter, body: str, detail: str, host: str, *, body_bytes: int | None = None) -> Parcel:
    values = {
        "cause": ("String", str(letter.cause)),
        "detail": ("String", detail),
        "document_id": ("String", letter.document_id or ""),
        "attempts": ("Number", str(letter.attempts)),
        "host": ("String", shortened(sendable(host), MIN_DETAIL_BYTES)),
        "body_bytes": ("Number", "" if body_bytes is None else str(body_bytes)),
    }
    # SQS refuses empty values, and a message without a body.
    return Parcel(body=body or "(empty)", attributes={name: value for name, value in values.items() if value[1]})


def unpacked(message: MessageTypeDef) -> DeadMessage:
    """A message of the dead-letter queue; attributes that are missing or unknown make it a foreign one."""
    attributes = message.get("MessageAttributes", {})
    values = {name: value.get("StringValue", "") for name, value in attributes.items()}
    known = values.get("cause") in set(Cause)
    attempts = values.get("attempts", "")
    return DeadMessage(
        message_id=message["MessageId"],
        receipt_handle=message["ReceiptHandle"],
        body=message.get("Body", ""),
        cause=Cause(values["cause"]) if known else None,
        detail=values.get("detail", ""),
        document_id=values.get("document_id") or None,
        attempts=int(attempts) if attempts.isascii() and attempts.isdigit() else 0,
    )


def sendable(text: str) -> str:
    """`text` with what SQS refuses replaced by U+FFFD."""
    return _REFUSED.sub("\ufffd", text)


def shortened(text: str, max_bytes: int) -> str:
    """`text` in at most `max_bytes` of UTF-8, with a mark at its end when something is missing."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    mark = "…"
    kept_bytes = max(max_bytes - len(mark.encode()), 0)
    return (encoded[:kept_bytes].decode(errors="ignore") + mark) if max_bytes >= len(mark.encode()) else ""
