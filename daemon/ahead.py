"""One document's bytes, fetched while it waits for its turn.

Shell: one thread for each document that waits. Rules: what is done here leaves no trace that outlives this process:
nothing is marked, nothing recorded, and the bytes lie in a file without a name. Whatever fails before the turn is
dropped, and met again by the attempt, which records it. A fetch that still runs when the turn comes goes on as the
attempt's own. Whoever waited and leaves takes bytes and thread with it.
"""

from __future__ import annotations

import threading
from enum import StrEnum, auto
from types import TracebackType
from typing import Final, Self

import structlog

from daemon.edges import Edges
from daemon.fetch import Fetched
from daemon.heartbeat import InHand
from daemon.model import Document
from daemon.quota import BeyondQuotaError

log = structlog.get_logger()

#: How long a slot waits for its thread to leave. One that a source holds on to leaves by itself, and closes its file.
LEAVE_S: Final = 1.0


class _Whose(StrEnum):
    """Who wants the bytes."""

    #: Nobody yet: the document waits.
    WAITING = auto()
    #: An attempt, which is marked.
    TAKEN = auto()
    #: Nobody any more.
    UNWANTED = auto()


class FetchAhead:
    """Used by one slot for one document, in a block; on leaving it nothing is left."""

    def __init__(self, edges: Edges, held: InHand, document: Document, *, fresh_s: float) -> None:
        """Bytes of a document whose version nobody named are good for `fresh_s` seconds."""
        self._edges = edges
        self._held = held
        self._document = document
        self._fresh_s = fresh_s
        self._part = edges.quota.part()
        self._lock = threading.Lock()
        self._whose = _Whose.WAITING
        self._thread: threading.Thread | None = None
        self._fetched: Fetched | None = None
        self._failure: Exception | None = None
        self._began = self._ended = 0.0

    @property
    def elapsed_s(self) -> float:
        """How long the fetch took; of worth once it has ended."""
        return self._ended - self._began

    def begin(self) -> None:
        """Fetch beside the caller, who waits. Never raises; once."""
        if not self._edges.quota.most_bytes:
            return
        self._began = self._edges.clock.monotonic()
        thread = threading.Thread(target=self._run, name="ahead", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread can be had
            self._tell(error)
        else:
            self._thread = thread

    def take(self) -> Fetched | None:
        """The bytes, for an attempt that is marked, which closes them; None when it must fetch them itself.

        Waits for a fetch that still runs, and raises what ends it, like `Source.fetch`.
        """
        if self._thread is None:
            return None
        taken_at = self._edges.clock.monotonic()
        with self._lock:
            self._whose = _Whose.TAKEN
        self._part.end()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        fetched, self._fetched = self._fetched, None
        if fetched is not None and not self._is_pinned() and taken_at - self._ended > self._fresh_s:
            fetched.file.close()
            self._tell(f"older than {self._fresh_s:.0f} s, and its message names no version")
            return None
        return fetched

    def close(self) -> None:
        """Want nothing any more: returns when thread and bytes are gone, or after `LEAVE_S`."""
        with self._lock:
            self._whose = _Whose.UNWANTED
            fetched, self._fetched = self._fetched, None
        if fetched is not None:
            fetched.file.close()
            self._part.end()
        if self._thread is not None:
            self._thread.join(LEAVE_S)

    def is_set(self) -> bool:
        """Whether the fetch may end: nobody wants its bytes any more. See `spool.Flag`."""
        return self._whose is _Whose.UNWANTED or self._held.cancelled.is_set()

    def _run(self) -> None:
        fetched, failure = None, None
        try:
            if self._edges.ledger.settled(self._document.id) is None:
                fetched = self._edges.source.fetch(self._document, cancelled=self, part=self._part)
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt meets it again
            failure = error
        with self._lock:
            self._ended = self._edges.clock.monotonic()
            if fetched is not None and self._whose is not _Whose.UNWANTED:
                self._fetched = fetched
                return
            if self._whose is _Whose.TAKEN and not isinstance(failure, BeyondQuotaError):
                self._failure = failure
                return
        if fetched is not None:
            fetched.file.close()
        self._part.end()
        if failure is not None and not self.is_set():
            self._tell(failure)

    def _is_pinned(self) -> bool:
        """Whether other bytes would be another document."""
        return self._document.version_id is not None or self._document.etag is not None

    def _tell(self, reason: object) -> None:
        log.info("ahead.dropped", document_id=self._document.id, reason=str(reason) or type(reason).__name__)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
