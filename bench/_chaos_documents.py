"""The documents of a chaos run: what each holds, what its message says, and how it may end.

Values only. Rules: everything is drawn from one seed; a document's kind is the start of its name, because failpoints
choose documents by their names; a harmless document may still be given up when its parents were killed too often, and
nothing else may happen to it. The tiny documents are lines for the fake engine of `tests/process`, one a page, behind a
PDF's first line.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from daemon.intake import read

#: What makes a file a PDF; also the fake engine's first page.
_HEADER = "%PDF-1.7"


class Kind(StrEnum):
    """What is wrong with a document."""

    #: Nothing.
    PLAIN = "plain"
    #: Its first child dies on the second page.
    CRASH = "crash"
    #: Its first child hangs on the second page, in native code.
    HANG = "hang"
    #: Its first child sends no frame but garbage.
    GARBLE = "garble"
    #: It kills every child.
    POISON = "poison"
    #: Its first parent dies at a named point.
    MARK = "mark"
    FETCH = "fetch"
    STORE = "store"
    SETTLE = "settle"
    #: Nobody can read it, ever.
    ENCRYPTED = "encrypted"
    NO_PDF = "nopdf"
    #: The object is not there.
    MISSING = "missing"
    #: No document at all: a message that nobody can read.
    GARBAGE = "garbage"


#: How many of a hundred; the rest is plain.
_SHARES: Mapping[Kind, float] = {
    Kind.CRASH: 5,
    Kind.HANG: 1,
    Kind.GARBLE: 2,
    Kind.POISON: 1,
    Kind.MARK: 1,
    Kind.FETCH: 1,
    Kind.STORE: 2,
    Kind.SETTLE: 2,
    Kind.ENCRYPTED: 2,
    Kind.NO_PDF: 1,
    Kind.MISSING: 1,
    Kind.GARBAGE: 2,
}
#: Nothing of these may ever be published.
UNPUBLISHABLE = frozenset({Kind.POISON, Kind.ENCRYPTED, Kind.NO_PDF, Kind.MISSING, Kind.GARBAGE})
#: Messages sent twice: one of so many.
_TWICE_OF = 20

#: Where processes die, by the name of the document that they work on.
FAILPOINTS = ";".join([
    "child.page@doc=crash-*,page=2,child=1=segv",
    "child.page@doc=hang-*,page=2,child=1=hang",
    "child.start@doc=garble-*,child=1=garbage",
    *(f"parent.after_{kind}@doc={kind}-*,attempt=1=kill" for kind in ("mark", "fetch", "store", "settle")),
    "parent.after_dead_letter@doc=encrypted-*,attempt=1=kill",
])  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One document, or one message that is none."""

    name: str
    kind: Kind
    #: None: there is no object.
    content: bytes | None
    body: str
    #: None: no document can be read from the message.
    document_id: str | None
    #: How often its message is sent.
    times: int
    #: What the Markdown of an unhurt conversion is; None where nobody knows.
    markdown: bytes | None


def tiny(number: int, *, seed: int, bucket: str) -> list[Sent]:
    """`number` documents for the fake engine, in the order in which they are sent."""
    drawn = random.Random(seed)  # noqa: S311 - seeded randomness is the point
    kinds = [kind for kind, share in _SHARES.items() for _ in range(max(1, round(share * number / 100)))]
    kinds = kinds[:number] + [Kind.PLAIN] * (number - len(kinds))
    drawn.shuffle(kinds)
    return [_tiny(kind, index, drawn, bucket) for index, kind in enumerate(kinds, start=1)]


def _tiny(kind: Kind, index: int, drawn: random.Random, bucket: str) -> Sent:
    name = f"{kind}-{index:05d}.pdf"
    times = 2 if drawn.randrange(_TWICE_OF) == 0 else 1
    if kind is Kind.GARBAGE:
        body = drawn.choice(["", "not a URI", "{", '{"uri": 1}', "[]", "\u202e" * 9]) + f" {name}"
        return Sent(name=name, kind=kind, content=None, body=body, document_id=None, times=times, markdown=None)
    lines = [_HEADER, *_pages(kind, drawn)]
    content = "\n".join(lines).encode() if kind is not Kind.NO_PDF else b"GIF89a, and so no document"
    markdown = "\n".join(lines).upper().encode() if kind not in UNPUBLISHABLE else None
    return _event(name, kind, content, bucket, times=times, markdown=markdown)


def _pages(kind: Kind, drawn: random.Random) -> Iterator[str]:
    """The lines behind the first: what the fake engine does on each page."""
    for page in range(1, drawn.randint(2, 8)):
        yield f"wait {drawn.uniform(0.02, 0.4):.3f}" if drawn.random() < 0.7 else f"text of page {page + 1}"
    if kind is Kind.POISON:
        yield "half-abort"
    if kind is Kind.ENCRYPTED:
        yield "encrypted"


def _event(name: str, kind: Kind, content: bytes, bucket: str, *, times: int, markdown: bytes | None) -> Sent:
    """A document that lies in the bucket's inbox, with the event that S3 sends for it."""
    etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
    entity = {"bucket": {"name": bucket}, "object": {"key": f"inbox/{name}", "size": len(content), "eTag": etag}}
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventVersion": "2.1", "s3": entity}
    body = json.dumps({"Records": [record]})
    (document,) = read(body, message_id="").documents
    return Sent(
        name=name,
        kind=kind,
        content=None if kind is Kind.MISSING else content,
        body=body,
        document_id=document.id,
        times=times,
        markdown=markdown,
    )


def real(paths: Sequence[Path], number: int, *, seed: int, bucket: str) -> list[Sent]:
    """`number` real documents for the real engine: `paths` over and over, each time under a name of its own."""
    drawn = random.Random(seed)  # noqa: S311 - seeded randomness is the point
    sent = []
    for index in range(number):
        path = paths[index % len(paths)]
        kind = drawn.choice([Kind.PLAIN] * 7 + [Kind.CRASH, Kind.STORE, Kind.SETTLE])
        name = f"{kind}-{index + 1:05d}-{path.name}"
        times = 2 if drawn.randrange(_TWICE_OF) == 0 else 1
        sent.append(_event(name, kind, path.read_bytes(), bucket, times=times, markdown=None))
    return sent
