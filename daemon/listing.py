"""What lies in a source, listed page by page, from where the last sweep stopped.

Edge (the interface, and what all listings share; `listing_s3.py` and `listing_inventory.py` are the real ones).
Rules: ids are made as `intake.py` makes them from S3's own event about the same object; a page is all that is held in
memory; a cursor is opaque text, and one that cannot be read means the beginning. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from daemon.model import Document
from daemon.recovery import Listed
from daemon.uri import UnreadableError, identified, s3_uri

#: Entries of one page, as S3 gives them.
PAGE = 1_000
#: Stands in for a message where a source names neither version nor ETag.
ORIGIN = "listing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a listing."""

    listed: Sequence[Listed]
    #: Entries that were read for it: those that are no documents, too young or unreadable too.
    read: int
    #: Why entries cannot be documents, though they look like some; the first few.
    unreadable: Sequence[str] = ()
    #: What comes after it begins here.
    cursor: str


class Listing(Protocol):
    """Everything in one source."""

    @property
    def name(self) -> str:
        """Where it is; its cursor is kept under this name."""
        ...

    def pages(self, cursor: str, *, before: datetime) -> Iterator[Page]:
        """Pages from `cursor` (empty: the beginning) to the end, with what became what it is before `before`.

        The last page's cursor is where the next search begins. Raises `WorldError(SOURCE_UNAVAILABLE)`, `ResourceError`
        when there is no such source or it refuses us, `ConfigurationError` when it cannot be read as what it should be.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object of a bucket, as a listing or an inventory names it."""

    bucket: str
    #: Raw.
    key: str
    version_id: str | None
    #: Without quotes.
    etag: str | None
    modified_at: datetime
    latest: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which objects are documents."""

    #: In lower case; none: all.
    suffixes: tuple[str, ...] = ()
    #: `s3://bucket/prefix/`: what we wrote ourselves.
    ours: tuple[str, ...] = ()

    def document(self, entry: Entry) -> Document | None:
        """The document that S3's event about this object would have named; None for one that nobody asked for.

        Raises `UnreadableError`.
        """
        uri = f"s3://{entry.bucket}/{entry.key}"
        if not entry.latest or entry.key.endswith("/") or uri.startswith(self.ours):
            return None
        if self.suffixes and not entry.key.lower().endswith(self.suffixes):
            return None
        version_id = None if entry.version_id in {None, "", "null"} else entry.version_id
        return identified(
            s3_uri(entry.bucket, entry.key), message_id=ORIGIN, version_id=version_id, etag=entry.etag or None
        )


class Gathered:
    """A page while it is being read."""

    #: Reasons that one page tells.
    _TOLD = 3

    def __init__(self) -> None:
        self.listed: list[Listed] = []
        self.read = 0
        self.unreadable: list[str] = []

    def add(self, entry: Entry, wanted: Wanted, *, before: datetime) -> None:
        """Take an entry, if it is a document and old enough."""
        self.read += 1
        try:
            document = wanted.document(entry)
        except UnreadableError as error:
            self.refuse(f"{entry.key[:80]!r}: {error}")
            return
        if document is not None and entry.modified_at < before:
            self.listed.append(Listed(document=document, modified_at=entry.modified_at))

    def refuse(self, reason: str) -> None:
        """Remember why something cannot be a document."""
        if len(self.unreadable) < self._TOLD:
            self.unreadable.append(reason)

    def page(self, cursor: str) -> Page:
        """What was gathered."""
        return Page(listed=self.listed, read=self.read, unreadable=self.unreadable, cursor=cursor)
