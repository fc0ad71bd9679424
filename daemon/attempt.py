"""One attempt at one document: mark (done by the claim) → fetch → convert → store → settle.

Shell. This is the middle of the order that `delivery.py` begins and ends. Each step can be done again without
harm; each gap between two steps is a failpoint. What is done next is `decide.py`'s table, carried out here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from daemon.ahead import FetchAhead
from daemon.checkpoints import fingerprint
from daemon.children import ChildJob, ChildResult, Deadlines
from daemon.decide import (
    Complete,
    Convert,
    DeadLetter,
    Release,
    Step,
    after_conversion,
    carried_over,
    first_step,
    next_step,
)
from daemon.edges import Edges, Limits
from daemon.ending import Ending
from daemon.errors import DocumentError, EngineError, LeaseLostError, OperatorError, WorldError
from daemon.fetch import Fetched
from daemon.heartbeat import InHand
from daemon.kept_pages import KeptPages, forget
from daemon.model import Attempt, Cause, Conversion, Document, Holder, Outcome, Plan, Settled
from daemon.not_now import NotNowError, outage_of, raise_if_stopped
from daemon.peaks import Traits
from daemon.room import Room
from daemon.suspicion import TROUBLE, letters_answer
from daemon.turns import Turn

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentEnded:
    """A document reached its terminal state in this delivery, or was found there."""

    document: Document
    settled: Settled
    #: Children of this attempt; empty when it had been settled before.
    outcomes: tuple[Outcome, ...] = ()


class Work:
    """One attempt at one document, marked already; carries it out once."""

    def __init__(
        self,
        *,
        edges: Edges,
        limits: Limits,
        held: InHand,
        document: Document,
        attempt: Attempt,
        history: Sequence[Attempt],
        body: str,
        turn: Turn,
        ahead: FetchAhead,
    ) -> None:
        self.edges = edges
        self.limits = limits
        self.held = held
        self.document = document
        self.attempt = attempt
        self.history = history
        self.body = body
        #: Ended as soon as no child will be needed: the next document need not wait for the store.
        self.turn = turn
        self.ahead = ahead
        self.outcomes: list[Outcome] = []
        #: Failures of earlier attempts that count; once the bytes are here, only those of the same bytes.
        self.carried = carried_over(history)
        #: Canaries that this host had begun at the last trouble of a child; None without trouble.
        self.trouble: int | None = None
        #: A canary of letters alone answers for all of that trouble.
        self.of_letters = True
        self.fetched: Fetched | None = None
        self.conversion: Conversion | None = None
        self.pages = KeptPages(edges.checkpoints, document.id, scratch=edges.scratch)
        self.room = Room(edges.memory, turn, held, document, clock=edges.clock)
        self.ending = Ending(edges, held, document, attempt, history)

    def carry_out(self, holder: Holder) -> DocumentEnded:
        """From the mark to the settled record. Raises like `Delivery.carry`; the attempt is ended then."""
        log.info("attempt.marked", uri=self.document.uri, earlier_attempts=len(self.history))
        self.held.attempt = self.attempt
        try:
            self._failpoint("parent.after_mark")
            settled = self.ending.adopt_left_behind() or self._decide_and_do(holder)
        except (WorldError, OperatorError, OSError) as error:
            outage = self._outage(error)
            self._give_back(outage)
            if outage is error:
                raise
            raise outage from error
        finally:
            self.held.attempt = None
            # A full disk refuses the rest of the pack once more; what it was for has been decided already.
            with contextlib.suppress(OSError):
                self.pages.close()
            if self.fetched is not None:
                self.fetched.file.close()
        if self.trouble is None and self.conversion is not None:
            self.edges.trust.saw_clean()
        self.ending.tell(settled, self.outcomes, self.fetched)
        self._failpoint("parent.after_settle")
        return DocumentEnded(document=self.document, settled=settled, outcomes=tuple(self.outcomes))

    def _failpoint(self, name: str) -> None:
        self.edges.failpoint(name, self.document.id, self.attempt.number)

    def _decide_and_do(self, holder: Holder) -> Settled:
        step = first_step(
            self.history,
            now=holder,
            pages=self.pages.known,
            ocr=self.document.options.ocr,
            rules=self.limits.rules,
            max_attempts=self.limits.max_attempts,
        )
        if isinstance(step, Convert):
            step = self._fetch()
        started = self.edges.clock.monotonic()
        while isinstance(step, Convert):
            started += self._convert(step.plan, started)
            step = self._next()
            self._answer_for_host(step)
        self.turn.end()
        if isinstance(step, Complete):
            assert self.conversion is not None, "only a conversion is complete"
            outcomes = (*self.carried, *self.outcomes)
            step = after_conversion(
                self.conversion.pages, outcomes, pages=self.pages.known, deliver_partial=self.limits.deliver_partial
            )
        match step:
            case Complete():
                assert self.conversion is not None, "only a conversion is complete"
                assert self.fetched is not None, "what was converted was fetched"
                return self.ending.publish(self.conversion, self.fetched, (*self.carried, *self.outcomes))
            case DeadLetter(cause=cause, detail=detail):
                return self.ending.dead_letter(cause, detail, body=self.body)
            case Release(cause=Cause.LEASE_LOST, detail=detail):
                raise LeaseLostError(detail)
            case Release(cause=cause, detail=detail):
                raise NotNowError(cause, detail, delay_s=0.0 if cause is Cause.DRAINED else None)

    def _next(self) -> Step:
        outcomes = (*self.carried, *self.outcomes)
        return next_step(outcomes, pages=self.pages.known, ocr=self.document.options.ocr, rules=self.limits.rules)

    def _fetch(self) -> Step:
        """The bytes, and what earlier children made of them; then the next step, whatever that is."""
        began = self.edges.clock.monotonic()
        try:
            ahead = self.ahead.take()
            self.fetched = ahead or self.edges.source.fetch(self.document, cancelled=self.held.cancelled)
        except DocumentError as error:
            self._record(Outcome(cause=error.cause, detail=error.detail))
            return self._next()
        except WorldError:
            raise_if_stopped(self.held)
            raise
        waited_s = self.edges.clock.monotonic() - began
        log.info(
            "document.fetched",
            size_bytes=self.fetched.size_bytes,
            media_type=str(self.fetched.media_type),
            sha256=self.fetched.sha256,
            elapsed_s=round(waited_s if ahead is None else self.ahead.elapsed_s, 3),
            ahead=ahead is not None,
            waited_s=round(waited_s, 3),
        )
        self._failpoint("parent.after_fetch")
        self.pages.resume(fingerprint(self.document, sha256=self.fetched.sha256, engine=self.edges.engine))
        self.carried = carried_over(self.history, fingerprint=self.pages.fingerprint)
        self.pages.remember(self.carried)
        self.room.traits = Traits(media_type=self.fetched.media_type, size_bytes=self.fetched.size_bytes)
        self.room.remember(self.carried)
        return self._next()

    def _convert(self, plan: Plan, started: float) -> float:
        """Live one child's life; returns how long the document waited for it, which is not the document's time."""
        result = self.room.live(plan, lambda limit_bytes, waited_s: self._live(plan, started + waited_s, limit_bytes))
        self.conversion = result.conversion
        self._record(replace(result.outcome, fingerprint=self.pages.fingerprint))
        self.pages.remember((result.outcome,))
        return result.waited_s

    def _live(self, plan: Plan, started: float, memory_bytes: int) -> ChildResult:
        assert self.fetched is not None, "the bytes are fetched before a child is started"
        job = ChildJob(
            document_id=self.document.id,
            attempt=self.attempt.number,
            child=len(self.outcomes) + 1,
            plan=plan,
            media_type=self.fetched.media_type,
            memory_bytes=memory_bytes,
            failpoints=self.edges.child_failpoints,
        )
        return self.edges.converter.run(
            job,
            self.fetched.file,
            finished=self.pages.file,
            deadlines=Deadlines(
                started=started,
                base_s=self.limits.document_timeout_s,
                per_page_s=self.limits.per_page_s,
                longest_s=self.limits.longest_timeout_s,
                pages=self.pages.known.count,
            ),
            switch=self.held.switch,
            on_page=self.pages.keep,
        )

    def _record(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.cause is not Cause.LEASE_LOST:
            self.edges.ledger.record_outcome(self.attempt, outcome)
        if outcome.cause in TROUBLE:
            self.trouble = self.edges.trust.saw_trouble(self.document.id)
            self.of_letters = self.of_letters and letters_answer(outcome)

    def _answer_for_host(self, step: Step) -> None:
        """Before a child's trouble is held against the document for good, the host proves that it is not its own."""
        trust = self.edges.trust
        if self.trouble is None or not (trust.owes_canary or isinstance(step, Complete | DeadLetter)):
            return
        try:
            trust.answer(self.trouble, self.held.switch, letters=self.of_letters)
        except WorldError:
            raise_if_stopped(self.held)
            raise

    def _outage(self, error: WorldError | OperatorError | OSError) -> WorldError:
        """What `error` is to this document; on a host that is suspended, its trouble is the host's."""
        trust, stopped = self.edges.trust, self.held.switch.reason is not None
        if isinstance(error, EngineError) and not stopped:
            trust.engine_failed(str(error))
        outage = error if isinstance(error, WorldError) else outage_of(error)
        blame = self.trouble is not None and trust.suspended and not isinstance(outage, LeaseLostError)
        return NotNowError(Cause.POISON_HOST, outage.detail) if blame else outage

    def _give_back(self, error: WorldError) -> None:
        """End the attempt so that it is not counted; when even that fails, the lease runs out by itself.

        After a lost lease too: where nobody has taken over, the ledger still takes it; where somebody has, we are not
        dead as it was written down, only late.
        """
        ledger = self.edges.ledger
        try:
            written = self.outcomes and self.outcomes[-1].cause is error.cause is not Cause.LEASE_LOST
            try:
                if not written:
                    ledger.record_outcome(self.attempt, Outcome(cause=error.cause, detail=error.detail))
                ledger.end_attempt(self.attempt, now=self.edges.clock.now())
            except LeaseLostError:
                ledger.excuse(self.attempt)
        except WorldError as again:
            log.warning("attempt.left_open", cause=str(again.cause), detail=again.detail)
        if error.cause is Cause.POISON_HOST:  # pages after a crash were made with less of the engine
            forget(self.edges.checkpoints, self.document.id)
