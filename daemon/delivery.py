"""One delivered message, from its receipt to its deletion.

Shell. The order is mark → fetch → convert → store → settle → delete, for each document of the message when its turn
has come: this file marks and deletes, `attempt.py` does what lies between. A message is deleted only after every
document in it is settled, and a document is settled as failed only after its dead letter is confirmed.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import structlog

from daemon.ahead import FetchAhead
from daemon.attempt import DocumentEnded, Work
from daemon.edges import Edges, Limits
from daemon.errors import DocumentError
from daemon.heartbeat import InHand
from daemon.intake import read
from daemon.kept_pages import forget
from daemon.ledger import AlreadySettled, Claimed, Held
from daemon.model import Cause, Document, Holder
from daemon.not_now import NotNowError
from daemon.queue import DeadLetter as Letter
from daemon.room import wait_for
from daemon.turns import Turn

log = structlog.get_logger()


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
        alone = len(intake.documents) + len(intake.malformed) == 1
        letters = []
        for document in intake.documents:
            letters += self._finish(held, document, body=message.body if alone else body_of(document))
        for malformed in intake.malformed:
            log.warning("message.malformed", message_id=message.message_id, reason=malformed.reason)
            body = message.body if alone else malformed.fragment
            letters.append(Letter(body=body, cause=Cause.MALFORMED_MESSAGE, detail=malformed.reason))
        # Last, since nothing remembers that they were sent: a message that comes back must not send them each time.
        for letter in letters:
            edges.queue.dead_letter(letter)
            log.warning("message.dead_lettered", message_id=message.message_id, cause=str(letter.cause))
        edges.heartbeat.let_go(held)
        edges.queue.delete(message)
        log.info("message.deleted", message_id=message.message_id)

    def _finish(self, held: InHand, document: Document, *, body: str) -> list[Letter]:
        """End one document in its turn; what is left to dead-letter when it can have no record of its own."""
        edges = self._edges
        ahead = FetchAhead(edges, held, document, fresh_s=self._limits.lease_s)
        turn, held.turn = held.turn or edges.turns.line_up(), None
        # The turn ends first: whoever comes next need not wait for a thread to leave.
        with ahead, turn:
            wait_for(turn, edges.memory.first(document), held, clock=edges.clock, meanwhile=ahead.begin)
            return self._take_on(held, document, turn, ahead, body=body)

    def _take_on(self, held: InHand, document: Document, turn: Turn, ahead: FetchAhead, *, body: str) -> list[Letter]:
        edges = self._edges
        try:
            claim = edges.ledger.claim(
                document, holder=self._holder, now=edges.clock.now(), lease_s=self._limits.lease_s
            )
        except DocumentError as error:
            return [Letter(body=body, cause=error.cause, detail=error.detail, document_id=document.id)]
        match claim:
            case AlreadySettled(settled=settled):
                log.info("document.already_settled", document_id=document.id, status=str(settled.status))
                # A parent that died right after settling left them behind.
                forget(edges.checkpoints, document.id)
                self._on_ended(DocumentEnded(document=document, settled=settled))
            case Held(holder=holder, lease_until=until):
                wait_s = max((until - edges.clock.now()).total_seconds(), 0.0) + 1.0
                detail = f"{document.id} is being worked on by pid {holder.pid} on {holder.host}"
                raise NotNowError(Cause.LEASE_LOST, detail, delay_s=wait_s)
            case Claimed(attempt=attempt, history=history):
                work = Work(
                    edges=edges,
                    limits=self._limits,
                    held=held,
                    document=document,
                    attempt=attempt,
                    history=history,
                    body=body,
                    turn=turn,
                    ahead=ahead,
                )
                with structlog.contextvars.bound_contextvars(document_id=document.id, attempt=attempt.number):
                    self._on_ended(work.carry_out(self._holder))
        return []


def body_of(document: Document) -> str:
    """The message that asks for exactly this document; what is dead-lettered when its message held more."""
    fields: dict[str, object] = {"uri": document.uri, "id": document.id}
    if document.version_id is not None:
        fields["version_id"] = document.version_id
    if document.etag is not None:
        fields["etag"] = document.etag
    if not document.options.ocr:
        fields["options"] = {"ocr": False}
    # All ASCII: a URI may hold characters that SQS refuses, and a message that cannot be sent ends every sweep.
    return json.dumps(fields)
