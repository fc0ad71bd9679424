"""A source in memory that keeps the contract of `daemon.listing.Listing`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

from daemon.listing import Page
from daemon.model import Document
from daemon.recovery import Listed


class MemoryListing:
    """Documents in the order in which they are given, some to a page."""

    def __init__(self, documents: Sequence[Document], *, modified_at: datetime, page: int = 2) -> None:
        self.name = "s3://in/"
        self.documents = list(documents)
        self._modified_at = modified_at
        self._page = page
        #: Entries that were read, over all searches.
        self.read = 0

    def pages(self, cursor: str, *, before: datetime) -> Iterator[Page]:
        """See `Listing.pages`."""
        begin = int(json.loads(cursor or "0"))
        left = iter(self.documents[begin:])
        while part := list(islice(left, self._page)):
            begin += len(part)
            self.read += len(part)
            old = self._modified_at < before
            listed = [Listed(document=each, modified_at=self._modified_at) for each in part if old]
            at_end = begin == len(self.documents)
            yield Page(listed=listed, read=len(part), cursor="" if at_end else json.dumps(begin))
