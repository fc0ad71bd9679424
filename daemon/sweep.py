"""One sweep: what failed for a while goes back to the queue, what failed for good waits for a person, and is told once.

Shell. Every step is written down before it is done and can be done again: retry, reclaim: count → send → delete the
letter; park: write → delete the letter; telling is `telling.py`'s, forgotten documents are `forgotten.py`'s. A sweep
that is killed between any two calls has lost nothing, and the next one counts nothing twice. What to do with a letter
is `recover.py`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from daemon import manifest as manifests
from daemon.checkpoints import Checkpoints
from daemon.clock import Clock
from daemon.delivery import body_of
from daemon.errors import LeaseLostError
from daemon.forgotten import Search, SearchRules
from daemon.intake import read
from daemon.kept_pages import forget
from daemon.ledger import Ledger
from daemon.listing import Listing
from daemon.model import MANIFEST, Attempt, Cause, Document, Holder
from daemon.queue import DeadMessage, Queue
from daemon.recover import Action, Discard, Leave, Now, Park, Reclaim, judged, judged_moved, reclaim_delay_s, unreadable
from daemon.recovery import Parked, Recovery
from daemon.store import Store
from daemon.telling import tell

log = structlog.get_logger()

#: Longer than ten letters take, however slow the queue; a killed sweep's letters come back after it.
HIDDEN_S = 300.0
#: After a dry run the letters are there again for a real one.
HIDDEN_DRY_S = 10.0
#: What a sweep does, by the names that `Did.what` has.
KINDS = (
    "retried", "adopted", "left_behind", "reclaimed", "parked", "discarded", "left", "alerted", "digested", "enqueued",
    "cleaned", "published",
)  # fmt: skip
#: Letters of one sweep, so that it ends; the next one goes on.
MOST_LETTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEdges:
    """What a sweep touches."""

    queue: Queue
    ledger: Ledger
    recovery: Recovery
    store: Store
    checkpoints: Checkpoints
    clock: Clock
    #: Whether a process of this host that holds a lease still lives.
    alive: Callable[[Holder], bool]
    #: Sources in which every document must have been attempted.
    listings: Sequence[Listing] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRules:
    """What bounds a sweep."""

    max_reclaims: int
    reclaim_delay_s: float
    #: The engine that is installed here.
    build: str
    search: SearchRules = field(default_factory=SearchRules)
    #: Say what would be done, and do nothing.
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Did:
    """One thing that a sweep did, or in a dry run would have done."""

    what: str
    document_id: str
    detail: str = ""


class Sweep:
    """Carries out one sweep, once."""

    def __init__(self, edges: SweepEdges, rules: SweepRules) -> None:
        self._edges = edges
        self._rules = rules
        self.did: list[Did] = []

    def run(self) -> Counter[str]:
        """All steps in order; how often each thing was done.

        Raises `WorldError` when an edge does not answer, `OperatorError` when a queue is missing; what was done until
        then stays done.
        """
        self._clean_up()
        self._finish_retries()
        self._close_left_behind()
        self._empty_dead_letters()
        tell(self._edges.recovery, clock=self._edges.clock, note=self._note)
        # Last: a source that cannot be listed must not keep the rest from being done.
        self._enqueue_forgotten()
        counts = Counter(each.what for each in self.did)
        log.info("sweep.finished", dry_run=self._rules.dry_run, **counts)
        return counts

    def _note(self, what: str, document_id: str, detail: str = "") -> bool:
        """Remember it; whether it is to be done."""
        self.did.append(Did(what=what, document_id=document_id, detail=detail))
        return not self._rules.dry_run

    def _finish_retries(self) -> None:
        """A person's retry was killed before its send was confirmed."""
        for parked in self._edges.recovery.parked():
            if parked.retrying and self._note("retried", parked.key):
                send_back(self._edges.queue, self._edges.recovery, parked)

    def _close_left_behind(self) -> None:
        """Results that were stored and not settled are settled; what else a dead parent left is the next claim's."""
        now = self._edges.clock.now()
        for attempt in self._edges.ledger.running():
            if attempt.lease_until <= now and not self._edges.alive(attempt.holder):
                self._adopt(attempt)

    def _adopt(self, attempt: Attempt) -> None:
        edges, document_id = self._edges, attempt.document_id
        manifest = edges.store.manifest(document_id)
        standing = edges.recovery.standing(document_id)
        tokens = {each.number for each in standing.attempts if each.number > standing.reopened_after}
        if manifest is None or manifest.get("fencing_token") not in tokens:
            self._note("left_behind", document_id, f"attempt {attempt.number}: the next delivery takes it over")
            return
        try:
            settled = manifests.settled_from(
                manifest,
                document_id=document_id,
                attempt=attempt.number,
                location=edges.store.location(document_id, MANIFEST),
                settled_at=edges.clock.now(),
            )
        except ValueError as error:  # one document's damage must not end every sweep
            self._note("left_behind", document_id, str(error))
            return
        if not self._note("adopted", document_id, f"attempt {attempt.number}"):
            return
        try:
            edges.ledger.settle(attempt, settled)
        except LeaseLostError:  # claimed or settled since we looked
            return
        forget(edges.checkpoints, document_id)
        log.info("attempt.adopted", document_id=document_id, attempt=attempt.number, manifest=settled.manifest)

    def _empty_dead_letters(self) -> None:
        hidden_s = HIDDEN_DRY_S if self._rules.dry_run else HIDDEN_S
        seen: set[str] = set()
        while len(seen) < MOST_LETTERS:
            letters = self._edges.queue.receive_dead(10, hidden_s=hidden_s)
            new = [letter for letter in letters if letter.message_id not in seen]
            if not new:  # nothing there, or only what we left there ourselves
                return
            for letter in new:
                seen.add(letter.message_id)
                self._take(letter)

    def _take(self, letter: DeadMessage) -> None:
        actions = list(self._judge(letter))
        done = [self._carry_out(action, document_id) for document_id, action in actions]
        if all(done) and not self._rules.dry_run:
            self._delete(letter)

    def _judge(self, letter: DeadMessage) -> Iterable[tuple[str, Action]]:
        """What is to be done with each document of a letter; nothing for a message that asks for nothing."""
        now = Now(at=self._edges.clock.now(), build=self._rules.build, max_reclaims=self._rules.max_reclaims)
        intake = read(letter.body, message_id=letter.message_id)
        if letter.cause is Cause.MALFORMED_MESSAGE or (letter.cause is not None and letter.document_id is None):
            yield letter.message_id, unreadable(letter, letter.detail, now=now)
        elif letter.cause is not None and letter.document_id is not None:
            standing = self._edges.recovery.standing(letter.document_id)
            document = standing.document or _alone(intake.documents, letter.document_id)
            body = letter.body if document is None else body_of(document)
            yield letter.document_id, judged(letter, document, standing, body=body, now=now)
        else:
            if not intake.malformed and not intake.documents:
                yield letter.message_id, Discard(reason="; ".join(intake.dropped))
            for malformed in intake.malformed[:1]:
                yield letter.message_id, unreadable(letter, malformed.reason, now=now)
            for document in intake.documents:
                standing = self._edges.recovery.standing(document.id)
                body = body_of(document)
                yield document.id, judged_moved(letter, document, standing, body=body, now=now)

    def _carry_out(self, action: Action, document_id: str) -> bool:
        """Do it; whether the letter is no longer needed."""
        match action:
            case Reclaim():
                return self._reclaim(action)
            case Park(parked=parked):
                if self._note("parked", parked.key, str(parked.cause)):
                    self._edges.recovery.park(parked)
                return True
            case Discard(reason=reason):
                if self._note("discarded", document_id, reason):
                    log.info("dead_letter.discarded", document_id=document_id, reason=reason)
                return True
            case Leave(reason=reason):
                self._note("left", document_id, reason)
                return False

    def _reclaim(self, action: Reclaim) -> bool:
        edges, document = self._edges, action.document
        if not self._note("reclaimed", document.id, action.key):
            return True
        if action.attempt is not None:  # given up, so pages that were lost once must not be found again
            edges.checkpoints.drop(document.id)
        number = edges.recovery.reclaim(document, key=action.key, attempt=action.attempt, now=edges.clock.now())
        if number is None:  # somebody was faster; the next sweep sees what came of it
            self.did[-1] = replace(self.did[-1], what="left", detail="it has just changed")
            return False
        delay_s = reclaim_delay_s(number, first_s=self._rules.reclaim_delay_s)
        edges.queue.send(body_of(document), delay_s=delay_s)
        log.info("document.reclaimed", document_id=document.id, reclaim=number, delay_s=delay_s)
        return True

    def _delete(self, letter: DeadMessage) -> None:
        try:
            self._edges.queue.delete_dead(letter)
        except LeaseLostError as error:  # it comes back, and is found done
            log.warning("lease.lost", message_id=letter.message_id, detail=error.detail)

    def _enqueue_forgotten(self) -> None:
        """What no message has ever come for, or what a sweep was killed over."""
        edges = self._edges
        search = Search(
            queue=edges.queue,
            recovery=edges.recovery,
            store=edges.store,
            clock=edges.clock,
            rules=replace(self._rules.search, dry_run=self._rules.dry_run),
            note=self._note,
        )
        search.run(edges.listings)

    def _clean_up(self) -> None:
        """Finished pages of documents that have ended."""
        for document_id in self._edges.checkpoints.documents():
            ended = self._edges.ledger.settled(document_id) is not None
            if ended and self._note("cleaned", document_id, "checkpoints"):
                forget(self._edges.checkpoints, document_id)


def send_back(queue: Queue, recovery: Recovery, parked: Parked) -> None:
    """Send what `Recovery.retry` has marked, then forget the mark. Raises like `Queue.send`."""
    queue.send(parked.body)
    recovery.unpark(parked.key)
    log.info("document.requeued", document_id=parked.key)


def _alone(documents: Sequence[Document], document_id: str) -> Document | None:
    """The only document of a body, under the id that the letter gives it."""
    return replace(documents[0], id=document_id) if len(documents) == 1 else None
