"""Documents that nobody has tried: found in a source or owed a message in the ledger, and enqueued, once.

Shell. Rules: register → send → forget the debt, so a sweep that dies between two of them sends again and never loses
one; what has a result in the store is another ledger's and is left alone; what is younger than the grace may still
have its message on the way; the queue is never filled beyond a bound, since what waits there is not forgotten. A
cursor moves only when everything before it is dealt with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from daemon.clock import Clock
from daemon.delivery import body_of
from daemon.listing import Listing, Page
from daemon.model import Document
from daemon.queue import Queue
from daemon.recovery import Recovery
from daemon.store import Store

log = structlog.get_logger()

#: Before the name of a listing, in the name of its note.
CURSOR = "cursor "


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """What bounds a search."""

    forgotten_after_s: float = 21_600.0
    #: Entries of one listing.
    most_listed: int = 50_000
    #: Messages, those that wait in the queue included.
    most_enqueued: int = 1_000
    dry_run: bool = False


class Search:
    """One search through ledger and listings."""

    def __init__(
        self,
        *,
        queue: Queue,
        recovery: Recovery,
        store: Store,
        clock: Clock,
        rules: SearchRules,
        note: Callable[[str, str, str], bool],
    ) -> None:
        """`note` is told what would be done to which document, and says whether to do it."""
        self._queue = queue
        self._recovery = recovery
        self._store = store
        self._clock = clock
        self._rules = rules
        self._note = note
        self._left = 0

    def run(self, listings: Sequence[Listing]) -> None:
        """What the ledger owes first. Raises what the edges raise; what was done until then stays done."""
        owed = self._recovery.forgotten(limit=self._rules.most_enqueued)
        if not owed and not listings:
            return
        self._left = max(self._rules.most_enqueued - self._queue.depth()["visible"], 0)
        for document in owed[: self._left]:
            self._enqueue(document)
        for listing in listings:
            self._search(listing)

    def _search(self, listing: Listing) -> None:
        before = self._clock.now() - timedelta(seconds=self._rules.forgotten_after_s)
        read, unreadable = 0, list[str]()
        for page in listing.pages(self._recovery.note(f"{CURSOR}{listing.name}") or "", before=before):
            if not self._take(page):
                break
            read += page.read
            unreadable += page.unreadable[: 3 - len(unreadable)]
            if not self._rules.dry_run:
                self._recovery.write_note(f"{CURSOR}{listing.name}", page.cursor)
            if read >= self._rules.most_listed:
                break
        log.info("source.searched", source=listing.name, entries=read, unreadable=unreadable)

    def _take(self, page: Page) -> bool:
        """Enqueue what is forgotten; False when there is no room for more, and the page must be looked at again."""
        for stranger in self._recovery.strangers(page.listed):
            if self._left <= 0:
                return False
            if self._store.manifest(stranger.document.id) is None:
                self._enqueue(stranger.document)
        return True

    def _enqueue(self, document: Document) -> None:
        self._left -= 1
        if self._note("enqueued", document.id, document.uri):
            self._recovery.register(document, now=self._clock.now())
            self._queue.send(body_of(document))
            self._recovery.enqueued(document.id)
            log.info("document.enqueued", document_id=document.id, uri=document.uri)
