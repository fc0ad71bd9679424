"""A source and a converter that do what a test's script says, and edges that die at the n-th call.

Fakes for the shell's tests. The real source and the real children have suites of their own; here only the order of
calls is in question.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from daemon.children import ChildJob, ChildResult, Deadlines, KillSwitch
from daemon.errors import BulkheadError, WorldError
from daemon.fetch import Fetched
from daemon.model import (
    OCR_MODES,
    Cause,
    Conversion,
    Document,
    KillReason,
    MediaType,
    Outcome,
    PageMode,
    PageRecord,
    PageReport,
    PageState,
    Stage,
)
from daemon.pack import Pack
from daemon.quota import Part
from daemon.spool import Flag


def conversion(text: str = "hello") -> Conversion:
    """One page of `text`."""
    return Conversion(
        artefacts={"document.md": text.encode(), "document.json": b"{}"},
        pages=(PageReport(page=1, state=PageState.TEXT, engine="fake"),),
        engine={"name": "fake"},
    )


class ScriptedSource:
    """Gives every document the same bytes, or raises what the script says for its URI."""

    def __init__(
        self, failures: Mapping[str, BulkheadError] | None = None, contents: Mapping[str, bytes] | None = None
    ) -> None:
        self.failures = dict(failures or {})
        #: What lies behind a URI, where it is not the URI itself.
        self.contents = {} if contents is None else contents

    def fetch(self, document: Document, *, cancelled: Flag | None = None, part: Part | None = None) -> Fetched:
        """See `daemon.fetch.Fetcher.fetch`."""
        del cancelled
        if document.uri in self.failures:
            raise self.failures[document.uri]
        content = b"%PDF-1.4 " + self.contents.get(document.uri, document.uri.encode())
        if part is not None:
            part.reach(len(content))
        return Fetched(
            file=io.BytesIO(content),
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            media_type=MediaType.PDF,
        )


class GatedSource(ScriptedSource):
    """Keeps whoever asks for certain documents until it is let go or cancelled; knows every file that it gave."""

    def __init__(self, *kept: str) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._kept = set(kept)
        #: Ids that were asked for, in order.
        self.asked: list[str] = []
        #: Ids whose fetch was cancelled.
        self.cancelled: list[str] = []
        self.files: list[BinaryIO] = []
        #: What the first fetch of a document ends with.
        self.first_failures: dict[str, Exception] = {}

    def fetch(self, document: Document, *, cancelled: Flag | None = None, part: Part | None = None) -> Fetched:
        """See `daemon.fetch.Fetcher.fetch`."""
        with self._changed:
            self.asked.append(document.id)
            self._changed.notify_all()
            while document.id in self._kept:
                self._changed.wait(0.01)
                if cancelled is not None and cancelled.is_set():
                    self.cancelled.append(document.id)
                    raise WorldError(Cause.DRAINED, "cancelled")
        if (failure := self.first_failures.pop(document.id, None)) is not None:
            raise failure
        fetched = super().fetch(document, cancelled=cancelled, part=part)
        self.files.append(fetched.file)
        return fetched

    def wait_for(self, *asked: str) -> None:
        """Return when exactly these were asked for, in this order."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.asked == list(asked), 20.0), f"asked for: {self.asked}"

    def keep(self, name: str) -> None:
        """Whoever asks for this document waits from now on."""
        with self._changed:
            self._kept.add(name)

    def let_go(self, name: str) -> None:
        """Whoever asks for this document gets it."""
        with self._changed:
            self._kept.discard(name)
            self._changed.notify_all()


@dataclass
class ScriptedConverter:
    """Documents of one or more pages, whose children end as a test's script says."""

    #: Document id to what a child ends with as it opens it: the first for one in FULL mode, the last otherwise.
    causes: Mapping[str, Sequence[Cause]] = field(default_factory=dict)
    #: Document id to its number of pages; 1 where nothing is said.
    pages: Mapping[str, int] = field(default_factory=dict)
    #: (document id, page) to the modes in which that page kills its child.
    traps: Mapping[tuple[str, int], Collection[PageMode]] = field(default_factory=dict)
    #: Document id to the bytes that its first page needs: under a lower limit it ends its child for memory.
    hunger: Mapping[str, int] = field(default_factory=dict)
    jobs: list[ChildJob] = field(default_factory=list)
    #: Every page that was converted, in order, by document id.
    converted: list[tuple[str, int]] = field(default_factory=list)
    #: Called at the start of each child, with its job; a test's place to wait or to look.
    on_run: Callable[[ChildJob, KillSwitch], None] = lambda _job, _switch: None

    def run(
        self,
        job: ChildJob,
        document: BinaryIO,
        *,
        finished: BinaryIO | None,
        deadlines: Deadlines,
        switch: KillSwitch,
        on_page: Callable[[PageRecord, int], None],
    ) -> ChildResult:
        """See `daemon.children.Children.run`."""
        del deadlines
        assert document.read(5) == b"%PDF-" or document.seek(0) == 0, "the bytes reach the child"
        self.jobs.append(job)
        self.on_run(job, switch)
        if switch.reason is not None:
            lost = switch.reason is KillReason.LEASE_LOST
            return self._ended(job, Cause.LEASE_LOST if lost else Cause.DRAINED)
        hungry = (job.memory_bytes or 0) < self.hunger.get(job.document_id, 0)
        if hungry and job.plan.wants(1) and 1 not in restored(finished):
            return self._ended(job, Cause.MEMORY, page=1)
        script = self.causes.get(job.document_id, (Cause.CONVERTED,))
        cause = script[0 if job.plan.default is PageMode.FULL else -1]
        if cause is not Cause.CONVERTED:
            return self._ended(job, cause)
        return self._convert(job, restored(finished), on_page)

    def _convert(
        self, job: ChildJob, done: dict[int, bytes], on_page: Callable[[PageRecord, int], None]
    ) -> ChildResult:
        count = self.pages.get(job.document_id, 1)
        wanted = [page for page in range(1, count + 1) if page not in done and job.plan.wants(page)]
        for page in wanted[: job.plan.most_pages]:
            mode = job.plan.mode_of(page)
            if mode in self.traps.get((job.document_id, page), ()):
                return self._ended(job, Cause.CRASHED, page)
            done[page] = f"page {page} of {job.document_id} in {mode}".encode()
            self.converted.append((job.document_id, page))
            state = PageState.FAILED if mode is PageMode.GAP else PageState.TEXT
            report = PageReport(page=page, state=state, engine="fake")
            on_page(PageRecord(page=page, report=report, blob=done[page]), count)
        if len(done) < count:
            return self._ended(job, Cause.SLICED)
        text = b"\n".join(done[page] for page in sorted(done)).decode()
        reports = tuple(
            PageReport(
                page=page, state=PageState.FAILED if done[page].endswith(b"gap") else PageState.TEXT, engine="fake"
            )
            for page in sorted(done)
        )
        return ChildResult(
            outcome=self._outcome(job, Cause.CONVERTED, None), conversion=replace(conversion(text), pages=reports)
        )

    def _ended(self, job: ChildJob, cause: Cause, page: int | None = None) -> ChildResult:
        return ChildResult(outcome=self._outcome(job, cause, page), conversion=None)

    def _outcome(self, job: ChildJob, cause: Cause, page: int | None) -> Outcome:
        return Outcome(
            cause=cause,
            detail=f"child {job.child}: {cause}",
            child=job.child,
            ocr=job.plan.default in OCR_MODES,
            stage=Stage.OPEN if page is None else Stage.LAYOUT,
            peak_rss_bytes=min(job.memory_bytes or 0, self.hunger.get(job.document_id, 0)),
            page=page,
            pages=None if cause is Cause.CRASHED and page is None else self.pages.get(job.document_id, 1),
        )


def restored(finished: BinaryIO | None) -> dict[int, bytes]:
    """The pages that a child gets from those before it."""
    if finished is None:
        return {}

    def read(size: int, offset: int) -> bytes:
        return os.pread(finished.fileno(), size, offset)

    return dict(Pack(read))


class DiedError(BaseException):
    """The process ended here; nothing of ours runs after it."""


class Countdown:
    """Counts the calls of all edges that share it; the n-th one ends as `fault` says."""

    def __init__(self, nth: int, fault: Callable[[], BaseException], *, after: bool) -> None:
        self._left = nth
        self._fault = fault
        #: Whether the call still took effect before it ended so.
        self._after = after
        self.happened = ""

    def around(self, edge: object, name: str) -> Any:
        """`edge`, with every call of it counted."""
        return _Counted(edge, name, self)

    def call(self, what: str, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Call `function`, or end as told."""
        self._left -= 1
        if self._left != 0:
            return function(*args, **kwargs)
        self.happened = what
        if self._after:
            function(*args, **kwargs)
        raise self._fault()


class _Counted:
    def __init__(self, edge: object, name: str, countdown: Countdown) -> None:
        self._edge = edge
        self._name = name
        self._countdown = countdown

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._edge, attribute)
        if not callable(value):
            return value
        return lambda *args, **kwargs: self._countdown.call(f"{self._name}.{attribute}", value, *args, **kwargs)


__all__ = ["Countdown", "DiedError", "GatedSource", "ScriptedConverter", "ScriptedSource", "conversion", "replace"]
