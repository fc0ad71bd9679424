"""One delivered message, from mark to delete: the order in which nothing is lost.

Shell. The order is mark → fetch → convert → store → settle → delete, for each document of the message, and it
stands in this file only. Every step can be done again without harm; each gap between two steps is a failpoint.
Decisions are `decide.py`'s; this file carries them out. A message is deleted only after every document in it is
settled, and a document is settled as failed only after its dead letter is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from daemon import manifest as manifests
from daemon.children import ChildJob, ChildResult
from daemon.clock import Clock
from daemon.decide import Complete, Convert, DeadLetter, Release, Rung, Step, carried_over, first_step, next_step
from daemon.errors import DocumentError, LeaseLostError, WorldError
from daemon.fetch import Fetched
from daemon.heartbeat import Heartbeat, InHand
from daemon.intake import read
from daemon.ledger import AlreadySettled, Claimed, Held, Ledger
from daemon.model import (
    Attempt,
    Cause,
    Conversion,
    Document,
    Holder,
    KillReason,
    Outcome,
    ResultStatus,
    Settled,
)
from daemon.queue import DeadLetter as Letter
from daemon.queue import Queue
from daemon.store import Store

log = structlog.get_logger()


class Source(Protocol):
    """Where bytes come from."""

    def fetch(self, document: Document, *, cancelled: object) -> Fetched:
        """The document's bytes, checked; raises `DocumentError` or `WorldError`."""
        ...


class Converter(Protocol):
    """What turns bytes into a conversion in a process that may die."""

    def run(
        self,
        job: ChildJob,
        document: object,
        *,
        deadline: float,
        switch: object,
        on_page: Callable[[int, int], None],
    ) -> ChildResult:
        """One child's life, to its end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The outside things that a delivery passes through, in their order."""

    queue: Queue
    ledger: Ledger
    source: Source
    converter: Converter
    store: Store
    heartbeat: Heartbeat
    clock: Clock
    #: Called between two steps with the failpoint's name, the document's id and the attempt's number.
    failpoint: Callable[[str, str | None, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the work on one document."""

    document_timeout_s: float
    lease_s: float
    max_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentEnded:
    """A document reached its terminal state in this delivery, or was found there."""

    document: Document
    settled: Settled
    #: Children of this attempt; empty when it had been settled before.
    outcomes: tuple[Outcome, ...] = ()


class NotNowError(WorldError):
    """The document cannot be finished in this delivery; the message goes back and may return after `delay_s`."""

    def __init__(self, cause: Cause, detail: str, *, delay_s: float | None = None) -> None:
        super().__init__(cause, detail)
        self.delay_s = delay_s


class Delivery:
    """Carries one message through; used by one slot at a time, holds nothing between two messages."""

    def __init__(
        self, edges: Edges, *, limits: Limits, holder: Holder, on_ended: Callable[[DocumentEnded], None]
    ) -> None:
        self._edges = edges
        self._limits = limits
        self._holder = holder
        self._on_ended = on_ended

    def carry(self, held: InHand) -> None:
        """Take the message to its end and delete it.

        Raises `NotNowError` when it must come back later, `LeaseLostError` when it is no longer ours, and
        `WorldError` when an edge did not answer; in each case nothing is lost and the message still exists.
        """
        edges, message = self._edges, held.message
        edges.failpoint("parent.after_receive", None, None)
        intake = read(message.body, message_id=message.message_id)
        for reason in intake.dropped:
            log.info("message.dropped", message_id=message.message_id, reason=reason)
        for malformed in intake.malformed:
            log.warning("message.malformed", message_id=message.message_id, reason=malformed.reason)
            alone = not intake.documents and len(intake.malformed) == 1
            body = message.body if alone else malformed.fragment
            edges.queue.dead_letter(Letter(body=body, cause=Cause.MALFORMED_MESSAGE, detail=malformed.reason))
            log.warning("message.dead_lettered", message_id=message.message_id, cause=str(Cause.MALFORMED_MESSAGE))
        alone = len(intake.documents) == 1 and not intake.malformed
        for document in intake.documents:
            self._finish(held, document, body=message.body if alone else body_of(document))
        edges.heartbeat.let_go(held)
        edges.queue.delete(message)
        log.info("message.deleted", message_id=message.message_id)

    def _finish(self, held: InHand, document: Document, *, body: str) -> None:
        edges = self._edges
        try:
            claim = edges.ledger.claim(
                document, holder=self._holder, now=edges.clock.now(), lease_s=self._limits.lease_s
            )
        except DocumentError as error:
            edges.queue.dead_letter(
                Letter(body=body, cause=error.cause, detail=error.detail, document_id=document.id)
            )
            log.warning("message.dead_lettered", document_id=document.id, cause=str(error.cause), detail=error.detail)
            return
        match claim:
            case AlreadySettled(settled=settled):
                log.info("document.already_settled", document_id=document.id, status=str(settled.status))
                self._on_ended(DocumentEnded(document=document, settled=settled))
            case Held(holder=holder, lease_until=until):
                wait_s = max((until - edges.clock.now()).total_seconds(), 0.0) + 1.0
                detail = f"{document.id} is being worked on by pid {holder.pid} on {holder.host}"
                raise NotNowError(Cause.LEASE_LOST, detail, delay_s=wait_s)
            case Claimed(attempt=attempt, history=history):
                work = _Work(edges, self._limits, held, document, attempt, history, body)
                with structlog.contextvars.bound_contextvars(document_id=document.id, attempt=attempt.number):
                    self._on_ended(work.carry_out(self._holder))


def body_of(document: Document) -> str:
    """The message that asks for exactly this document; what is dead-lettered when its message held more."""
    # Written by hand rather than from the dataclass: only the fields of the public message format.
    import json  # noqa: PLC0415

    fields: dict[str, object] = {"uri": document.uri, "id": document.id}
    if document.version_id is not None:
        fields["version_id"] = document.version_id
    if document.etag is not None:
        fields["etag"] = document.etag
    if not document.options.ocr:
        fields["options"] = {"ocr": False}
    return json.dumps(fields, ensure_ascii=False)


class _Work:
    """One attempt at one document, marked already."""

    def __init__(
        self,
        edges: Edges,
        limits: Limits,
        held: InHand,
        document: Document,
        attempt: Attempt,
        history: Sequence[Attempt],
        body: str,
    ) -> None:
        self.edges = edges
        self.limits = limits
        self.held = held
        self.document = document
        self.attempt = attempt
        self.history = history
        self.body = body
        self.outcomes: list[Outcome] = []
        self.fetched: Fetched | None = None
        self.conversion: Conversion | None = None
        self.started = edges.clock.monotonic()

    def carry_out(self, holder: Holder) -> DocumentEnded:
        """From the mark to the settled record. Raises like `Delivery.carry`; the attempt is ended then."""
        log.info("attempt.marked", uri=self.document.uri, earlier_attempts=len(self.history))
        self.held.attempt = self.attempt
        try:
            self._failpoint("parent.after_mark")
            settled = self._publish_left_behind() or self._decide_and_do(holder)
        except LeaseLostError:
            raise
        except WorldError as error:
            self._give_back(error)
            raise
        finally:
            self.held.attempt = None
            if self.fetched is not None:
                self.fetched.file.close()
        self._log_settled(settled)
        self._failpoint("parent.after_settle")
        return DocumentEnded(document=self.document, settled=settled, outcomes=tuple(self.outcomes))

    def _failpoint(self, name: str) -> None:
        self.edges.failpoint(name, self.document.id, self.attempt.number)

    def _publish_left_behind(self) -> Settled | None:
        """Settle a result that an earlier attempt stored before its parent died; it is not converted again."""
        if not self.history:
            return None
        manifest = self.edges.store.manifest(self.document.id)
        if manifest is None or manifest.get("fencing_token") not in {earlier.number for earlier in self.history}:
            return None
        settled = manifests.settled_from(
            manifest,
            document_id=self.document.id,
            attempt=self.attempt.number,
            location=self.edges.store.location(self.document.id, "manifest.json"),
            settled_at=self.edges.clock.now(),
        )
        self._settle(settled)
        return settled

    def _decide_and_do(self, holder: Holder) -> Settled:
        ocr = self.document.options.ocr
        carried = carried_over(self.history)
        step = first_step(self.history, now=holder, ocr=ocr, max_attempts=self.limits.max_attempts)
        if isinstance(step, Convert):
            step = self._fetch(carried, step)
        deadline = self.edges.clock.monotonic() + self.limits.document_timeout_s
        while isinstance(step, Convert):
            self._convert(step.rung, deadline)
            step = next_step((*carried, *self.outcomes), ocr=ocr)
        match step:
            case Complete():
                return self._publish()
            case DeadLetter(cause=cause, detail=detail):
                return self._dead_letter(cause, detail)
            case Release(cause=Cause.LEASE_LOST, detail=detail):
                raise LeaseLostError(detail)
            case Release(cause=cause, detail=detail):
                raise NotNowError(cause, detail, delay_s=0.0 if cause is Cause.DRAINED else None)

    def _fetch(self, carried: Sequence[Outcome], step: Step) -> Step:
        """The bytes; the next step is `step`, or what a document that cannot be had leads to."""
        try:
            self.fetched = self.edges.source.fetch(self.document, cancelled=self.held.cancelled)
        except DocumentError as error:
            self._record(Outcome(cause=error.cause, detail=error.detail))
            return next_step((*carried, *self.outcomes), ocr=self.document.options.ocr)
        except WorldError:
            self._raise_if_stopped()
            raise
        log.info(
            "document.fetched", size_bytes=self.fetched.size_bytes, media_type=str(self.fetched.media_type),
            sha256=self.fetched.sha256,
        )
        self._failpoint("parent.after_fetch")
        return step

    def _convert(self, rung: Rung, deadline: float) -> None:
        assert self.fetched is not None, "the bytes are fetched before a child is started"
        job = ChildJob(
            document_id=self.document.id,
            attempt=self.attempt.number,
            child=len(self.outcomes) + 1,
            ocr=rung is Rung.FULL,
            media_type=self.fetched.media_type,
        )
        result = self.edges.converter.run(
            job, self.fetched.file, deadline=deadline, switch=self.held.switch, on_page=_ignore_page
        )
        self.conversion = result.conversion
        self._record(result.outcome)

    def _record(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.cause is not Cause.LEASE_LOST:
            self.edges.ledger.record_outcome(self.attempt, outcome)

    def _raise_if_stopped(self) -> None:
        match self.held.switch.reason:
            case None:
                return
            case KillReason.LEASE_LOST:
                raise LeaseLostError("cannot go on: the lease was lost")
            case reason:
                raise NotNowError(Cause.DRAINED, f"stopped on purpose: {reason}", delay_s=0.0)

    def _publish(self) -> Settled:
        assert self.conversion is not None, "only a conversion is complete"
        assert self.fetched is not None, "what was converted was fetched"
        self.edges.ledger.check(self.attempt)
        now = self.edges.clock.now()
        manifest = manifests.build(
            document=self.document,
            attempt=self.attempt,
            conversion=self.conversion,
            outcomes=self.outcomes,
            sha256=self.fetched.sha256,
            size_bytes=self.fetched.size_bytes,
            media_type=str(self.fetched.media_type),
            converted_at=now,
            elapsed_s=self.edges.clock.monotonic() - self.started,
        )
        location = self.edges.store.put(
            self.document.id, fence=self.attempt.number, artefacts=self.conversion.artefacts, manifest=manifest
        )
        self._failpoint("parent.after_store")
        settled = manifests.settled_from(
            manifest, document_id=self.document.id, attempt=self.attempt.number, location=location, settled_at=now
        )
        self._settle(settled)
        return settled

    def _dead_letter(self, cause: Cause, detail: str) -> Settled:
        self.edges.ledger.check(self.attempt)
        self.edges.queue.dead_letter(
            Letter(
                body=self.body, cause=cause, detail=detail,
                document_id=self.document.id, attempts=len(self.history) + 1,
            )
        )
        self._failpoint("parent.after_dead_letter")
        settled = Settled(
            document_id=self.document.id,
            status=ResultStatus.FAILED,
            attempt=self.attempt.number,
            settled_at=self.edges.clock.now(),
            cause=cause,
            detail=detail,
        )
        self._settle(settled)
        return settled

    def _settle(self, settled: Settled) -> None:
        # From here on a refused renewal is about the past: the attempt has ended because it is settled.
        self.held.attempt = None
        self.edges.ledger.settle(self.attempt, settled)

    def _give_back(self, error: WorldError) -> None:
        """End the attempt so that it is not counted; when even that fails, the lease runs out by itself."""
        try:
            if not self.outcomes or self.outcomes[-1].cause is not error.cause:
                self.edges.ledger.record_outcome(self.attempt, Outcome(cause=error.cause, detail=error.detail))
            self.edges.ledger.end_attempt(self.attempt, now=self.edges.clock.now())
        except WorldError as again:
            log.warning("attempt.left_open", cause=str(again.cause), detail=again.detail)

    def _log_settled(self, settled: Settled) -> None:
        """The canonical line: everything about the attempt, once."""
        failed = settled.status is ResultStatus.FAILED
        write = log.warning if failed else log.info
        write(
            "attempt.settled",
            status=str(settled.status),
            cause=str(settled.cause),
            detail=settled.detail,
            pages=settled.pages,
            pages_by_state=dict(settled.pages_by_state),
            children=[f"{outcome.cause}{'' if outcome.ocr else ' (without OCR)'}" for outcome in self.outcomes],
            peak_rss_bytes=max((outcome.peak_rss_bytes for outcome in self.outcomes), default=0),
            size_bytes=self.fetched.size_bytes if self.fetched else 0,
            elapsed_s=round(self.edges.clock.monotonic() - self.started, 3),
            uri=self.document.uri,
            manifest=settled.manifest,
        )


def _ignore_page(page: int, pages: int) -> None:
    """Nothing moves with a page yet: the heartbeat has its own thread and the deadline is the document's."""
    del page, pages
