"""What a child sends: every call of the engine as a frame, and a death where a failpoint says so.

Edge: the frames socket. A page's blob goes first, in chunks, then its account; what the parent would not take is
refused before a byte of it is sent.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading

from daemon import faults, frames, wire
from daemon.classify import reads_pictures
from daemon.errors import DocumentError, ProtocolError
from daemon.failpoints import Failpoint, Point, matching, parse
from daemon.model import Cause, PageRecord, Stage
from daemon.pack import MAX_BLOB_BYTES

#: Exit status when the parent hung up, or never sent a job.
NOT_HEARD = 3
_READ_BYTES = 2**16
#: What is larger is sent as it comes.
_HELD_BYTES = 2**16
#: Of what the parent takes from one child, the part that may be pages and artefacts; the rest is for everything else.
_OUTPUT_SHARE = 0.9
_PAGE_POINTS = {Stage.OCR: Point.CHILD_OCR, Stage.LAYOUT: Point.CHILD_LAYOUT}


class Voice:
    """The child's end of the frames socket; frames from any thread, one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._held = b""

    def send(self, frame: frames.Frame, *, more: bool = False) -> None:
        """Send one frame whole; with `more`, which says that another follows at once, perhaps only with that one.

        So a page and its account, and a small result, wake the parent once. Ends the process when the parent has hung
        up: nobody is left to convert for.
        """
        encoded = wire.encode(frame)
        with self._lock:
            self._held += encoded
            if more and len(self._held) < _HELD_BYTES:
                return
            encoded, self._held = self._held, b""
            try:
                self.connection.sendall(encoded)
            except OSError:
                os._exit(NOT_HEARD)

    def receive_job(self) -> frames.Job | None:
        """Wait for the job; None when the parent hangs up instead. Raises ProtocolError for anything else."""
        decoder = wire.Decoder(max_total_bytes=wire.MAX_FRAME_BYTES)
        while data := self.connection.recv(_READ_BYTES):
            for frame in decoder.feed(data):
                if isinstance(frame, frames.Job):
                    return frame
                raise ProtocolError(f"the parent sent a {type(frame).__name__} before the job")
        return None


class ReportedProgress:
    """Turns the engine's calls into frames, and dies where a failpoint says so."""

    def __init__(self, voice: Voice, job: frames.Job) -> None:
        self._voice = voice
        self._job = job
        self._failpoints: tuple[Failpoint, ...] = parse(job.failpoints)
        self._lock = threading.Lock()
        self._plan = job.plan.plan()
        self._begun: set[int] = set()
        self._sent_bytes = 0
        self.last: tuple[Stage, int | None] = (Stage.START, None)
        #: How many pages the document has; None until the engine has said so.
        self.pages: int | None = None
        self.done: set[int] = set()

    def stage(self, stage: Stage, page: int | None = None) -> None:
        """See `engine.api.Progress`."""
        with self._lock:
            first = page is not None and page not in self._begun
            if page is not None:
                self._begun.add(page)
            self.last = (stage, page)
        self._voice.send(frames.StageStarted(stage=stage, page=page))
        if first:
            self.reach(Point.CHILD_PAGE, page)
        if stage in _PAGE_POINTS:
            self.reach(_PAGE_POINTS[stage], page)

    def opened(self, pages: int) -> None:
        """See `engine.api.Progress`."""
        self.pages = pages
        self._voice.send(frames.Opened(pages=pages))

    def page_done(self, record: PageRecord) -> None:
        """See `engine.api.Progress`. Raises DocumentError when the page is larger than the parent takes."""
        page, blob = record.page, record.blob
        if len(blob) > MAX_BLOB_BYTES:
            raise DocumentError(Cause.TOO_LARGE, f"page {page} of {len(blob)} bytes is beyond {MAX_BLOB_BYTES} allowed")
        self.count(len(blob), f"page {page} of {len(blob)} bytes")
        for start in range(0, len(blob), frames.CHUNK_BYTES):
            self._voice.send(frames.BlobChunk(page=page, data=blob[start : start + frames.CHUNK_BYTES]), more=True)
        account, sha256 = frames.PageAccount.of(record.report), hashlib.sha256(blob).hexdigest()
        self._voice.send(frames.PageDone(account=account, size_bytes=len(blob), sha256=sha256))
        self.done.add(page)

    def count(self, size_bytes: int, what: str) -> None:
        """Count `what`, before it is sent. Raises DocumentError when that is more than the parent takes in all."""
        self._sent_bytes += size_bytes
        if self._sent_bytes > self._job.max_output_bytes * _OUTPUT_SHARE:
            before = f" after {before_bytes} others" if (before_bytes := self._sent_bytes - size_bytes) else ""
            raise DocumentError(Cause.TOO_LARGE, f"{what}{before} is beyond {self._job.max_output_bytes} allowed")

    def reach(self, point: Point, page: int | None = None) -> None:
        """Fire whatever failpoints match here."""
        job = self._job
        at_hand = self.last[1] if page is None else page
        for failpoint in matching(
            self._failpoints,
            point,
            page=page,
            doc=job.document_id,
            ocr=reads_pictures(self._plan, at_hand),
            attempt=job.attempt,
            child=job.child,
        ):
            faults.fire(failpoint, frames=self._voice.connection)
