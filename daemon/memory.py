"""What a document is expected to need on this host, by what its children and those of others needed before.

Shell: threads, and one look into the ledger. Rules: it decides nothing but how much is asked for; what is kept is
bounded; a document gets more than a share only after it died of its share, and no more once that did not help.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from daemon.admission import Ask, Pool
from daemon.errors import WorldError
from daemon.ledger import Ledger
from daemon.model import Cause, Document, Outcome
from daemon.peaks import Peaks, Traits, by_name
from daemon.sizing import CHILD_MINIMUM_BYTES

log = structlog.get_logger()

#: Documents that died of their share and may come back; the oldest is forgotten, and then dies of it once more.
_REMEMBERED = 256
#: Documents that a daemon looks at when it starts: more than enough to know each kind, a second or two on DynamoDB.
STUDIED = 100


class Memory:
    """What this host knows of documents' memory; safe to use from several threads."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._lock = threading.Lock()
        self._peaks = Peaks()
        #: Ids of documents that died of a share, oldest first; False: and of more than that.
        self._short: OrderedDict[str, bool] = OrderedDict()

    def study(self, ledger: Ledger, *, stop: threading.Event) -> int:
        """Learn from the documents that ended last, until `stop` is set; returns how many. Raises `WorldError`."""
        number = 0
        for settled in reversed(ledger.recent(limit=STUDIED)):
            if stop.is_set():
                break
            number += 1
            document = ledger.document(settled.document_id)
            if document is not None:
                outcomes = [outcome for attempt in ledger.attempts(document.id) for outcome in attempt.outcomes]
                self._study(document, outcomes)
        return number

    def _study(self, document: Document, outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            self._peaks.learn(Traits(media_type=by_name(document.uri)), outcomes)
            killed = [outcome.peak_rss_bytes for outcome in outcomes if outcome.cause is Cause.MEMORY]
            if killed:
                self._remember(document.id, helps=max(killed) <= self.pool.share_bytes)

    def learn(self, document_id: str, traits: Traits, outcome: Outcome, *, limit_bytes: int) -> None:
        """A child has ended, which had `limit_bytes`; one that died of less than a share is not to be told."""
        with self._lock:
            self._peaks.learn(traits, (outcome,))
            if outcome.cause is Cause.MEMORY:
                self._remember(document_id, helps=limit_bytes <= self.pool.share_bytes)

    def _remember(self, document_id: str, *, helps: bool) -> None:
        self._short[document_id] = helps and self._short.get(document_id, True)
        self._short.move_to_end(document_id)
        while len(self._short) > _REMEMBERED:
            self._short.popitem(last=False)

    def more_helps(self, document_id: str) -> bool:
        """Whether it died of a share, and not of more."""
        with self._lock:
            return self._short.get(document_id, False)

    def ordinary(self, document: Document, traits: Traits) -> Ask:
        """What a document like this needs, up to a share."""
        with self._lock:
            expected_bytes = self._peaks.expected_bytes(traits)
        if expected_bytes is None:
            expected_bytes = self.pool.ordinary_bytes
        need_bytes = min(max(expected_bytes, CHILD_MINIMUM_BYTES), self.pool.share_bytes)
        return self._ask(document, traits, need_bytes)

    def share(self, document: Document, traits: Traits) -> Ask:
        """What everybody may have."""
        return self._ask(document, traits, self.pool.share_bytes)

    def raised(self, document: Document, traits: Traits) -> Ask:
        """More than a share, where this host has it."""
        return self._ask(document, traits, self.pool.raised_bytes)

    def first(self, document: Document) -> Ask:
        """What to ask for before its attempt is marked."""
        traits = Traits(media_type=by_name(document.uri))
        return self.raised(document, traits) if self.more_helps(document.id) else self.ordinary(document, traits)

    @staticmethod
    def _ask(document: Document, traits: Traits, need_bytes: int) -> Ask:
        return Ask(need_bytes=need_bytes, size_bytes=traits.size_bytes or 0, name=document.id)


@contextmanager
def studying(memory: Memory, ledger: Ledger) -> Iterator[None]:
    """Let `memory` learn from the ledger beside what is done here, so that no start waits for it."""
    stop = threading.Event()

    def study() -> None:
        try:
            documents = memory.study(ledger, stop=stop)
        except WorldError as error:
            log.warning("memory.not_studied", detail=error.detail)
        else:
            log.info("memory.studied", documents=documents)

    thread = threading.Thread(target=study, name="student", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
