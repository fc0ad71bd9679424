"""How an attempt ends: published or dead-lettered, then settled; each confirmed before the next.

Shell. Nothing is settled before its result or its dead letter is confirmed, and a stale attempt can do neither: the
ledger is asked first, and the store compares fencing tokens. The canonical log line is written here.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from daemon import manifest as manifests
from daemon.edges import Edges
from daemon.errors import LeaseLostError, OperatorError, ResourceError, WorldError
from daemon.fetch import Fetched
from daemon.heartbeat import InHand
from daemon.kept_pages import forget
from daemon.model import MANIFEST, Attempt, Cause, Conversion, Document, Outcome, ResultStatus, Settled
from daemon.queue import DeadLetter as Letter

log = structlog.get_logger()


class Ending:
    """Ends one attempt, once."""

    def __init__(
        self, edges: Edges, held: InHand, document: Document, attempt: Attempt, history: Sequence[Attempt]
    ) -> None:
        self.edges = edges
        self.held = held
        self.document = document
        self.attempt = attempt
        self.history = history
        self.started = edges.clock.monotonic()
        self._store_s = 0.0

    def _failpoint(self, name: str) -> None:
        self.edges.failpoint(name, self.document.id, self.attempt.number)

    def adopt_left_behind(self) -> Settled | None:
        """Settle a result that an earlier attempt stored before its parent died; it is not converted again."""
        if not self.history:
            return None
        manifest = self.edges.store.manifest(self.document.id)
        if manifest is None or manifest.get("fencing_token") not in {earlier.number for earlier in self.history}:
            return None
        settled = self._in_store()
        if settled is None:
            return None
        self._settle(settled)
        return settled

    def publish(self, conversion: Conversion, fetched: Fetched, outcomes: Sequence[Outcome]) -> Settled:
        """Store the result, then settle. Raises `WorldError`; `LeaseLostError` when a newer attempt exists."""
        self.edges.ledger.check(self.attempt)
        # Once more: what a dead parent had sent may arrive after its successor has begun, and readers have it since.
        arrived = self.adopt_left_behind()
        if arrived is not None:
            log.warning("result.adopted", manifest=arrived.manifest)
            return arrived
        now = self.edges.clock.now()
        manifest = manifests.build(
            document=self.document,
            attempt=self.attempt,
            conversion=conversion,
            outcomes=outcomes,
            sha256=fetched.sha256,
            size_bytes=fetched.size_bytes,
            media_type=str(fetched.media_type),
            converted_at=now,
            elapsed_s=self.edges.clock.monotonic() - self.started,
        )
        began = self.edges.clock.monotonic()
        try:
            location = self.edges.store.put(
                self.document.id, fence=self.attempt.number, artefacts=conversion.artefacts, manifest=manifest
            )
        except ResourceError as error:  # the bucket or folder that was there at the start is gone
            raise WorldError(Cause.STORE_UNAVAILABLE, str(error)) from error
        except LeaseLostError:
            return self._adopt_newer()
        self._store_s = self.edges.clock.monotonic() - began
        self._failpoint("parent.after_store")
        settled = manifests.settled_from(
            manifest, document_id=self.document.id, attempt=self.attempt.number, location=location, settled_at=now
        )
        self._settle(settled)
        return settled

    def _adopt_newer(self) -> Settled:
        """The store has a newer attempt's result than ours. Raises `LeaseLostError` when the ledger agrees.

        Where it does not, the ledger is younger than the store (its disk was lost, or another host has one of its own):
        the document is done, and doing it again could never be published.
        """
        self.edges.ledger.check(self.attempt)
        settled = self._in_store()
        if settled is None:
            raise LeaseLostError("cannot publish: the store refuses this attempt, and shows no result of another")
        log.warning("result.adopted", manifest=settled.manifest)
        self._settle(settled)
        return settled

    def _in_store(self) -> Settled | None:
        """What the store's manifest says of this document; None where there is none that can be read."""
        manifest = self.edges.store.manifest(self.document.id)
        if manifest is None:
            return None
        try:
            return manifests.settled_from(
                manifest,
                document_id=self.document.id,
                attempt=self.attempt.number,
                location=self.edges.store.location(self.document.id, MANIFEST),
                settled_at=self.edges.clock.now(),
            )
        except ValueError:  # not one of ours: it is replaced when the document is published
            return None

    def dead_letter(self, cause: Cause, detail: str, *, body: str) -> Settled:
        """Send the dead letter, then settle as failed. Raises like `publish`."""
        self.edges.ledger.check(self.attempt)
        letter = Letter(
            body=body,
            cause=cause,
            detail=detail,
            document_id=self.document.id,
            attempts=self.attempt.number,
        )
        try:
            self.edges.queue.dead_letter(letter)
        except OperatorError as error:  # the dead-letter queue that was there at the start is gone
            raise WorldError(Cause.QUEUE_UNAVAILABLE, str(error)) from error
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
        forget(self.edges.checkpoints, self.document.id)

    def tell(self, settled: Settled, outcomes: Sequence[Outcome], fetched: Fetched | None) -> None:
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
            children=[_in_short(outcome) for outcome in outcomes],
            peak_rss_bytes=max((outcome.peak_rss_bytes for outcome in outcomes), default=0),
            size_bytes=fetched.size_bytes if fetched else 0,
            store_s=round(self._store_s, 3),
            elapsed_s=round(self.edges.clock.monotonic() - self.started, 3),
            uri=self.document.uri,
            manifest=settled.manifest,
        )


def _in_short(outcome: Outcome) -> str:
    """`crashed on page 7 (full)` and the like."""
    if outcome.page is None or outcome.mode is None or outcome.cause in {Cause.CONVERTED, Cause.SLICED}:
        return str(outcome.cause)
    return f"{outcome.cause} on page {outcome.page} ({outcome.mode})"
