"""A source and a converter that do what a test's script says, and edges that die at the n-th call.

Fakes for the shell's tests. The real source and the real children have suites of their own; here only the order of
calls is in question.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from daemon.children import ChildJob, ChildResult, KillSwitch
from daemon.errors import BulkheadError
from daemon.fetch import Fetched
from daemon.model import Cause, Conversion, Document, KillReason, MediaType, Outcome, PageReport, PageState


def conversion(text: str = "hello") -> Conversion:
    """One page of `text`."""
    return Conversion(
        artefacts={"document.md": text.encode(), "document.json": b"{}"},
        pages=(PageReport(page=1, state=PageState.TEXT, engine="fake"),),
        engine={"name": "fake"},
    )


class ScriptedSource:
    """Gives every document the same bytes, or raises what the script says for its URI."""

    def __init__(self, failures: Mapping[str, BulkheadError] | None = None) -> None:
        self.failures = dict(failures or {})

    def fetch(self, document: Document, *, cancelled: threading.Event | None = None) -> Fetched:
        """See `daemon.fetch.Fetcher.fetch`."""
        del cancelled
        if document.uri in self.failures:
            raise self.failures[document.uri]
        content = b"%PDF-1.4 " + document.uri.encode()
        return Fetched(
            file=io.BytesIO(content),
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            media_type=MediaType.PDF,
        )


@dataclass
class ScriptedConverter:
    """A child with OCR comes to the first cause of its document's script, one without OCR to the last."""

    causes: Mapping[str, Sequence[Cause]] = field(default_factory=dict)
    jobs: list[ChildJob] = field(default_factory=list)
    #: Called at the start of each child, with its job; a test's place to wait or to look.
    on_run: Callable[[ChildJob, KillSwitch], None] = lambda _job, _switch: None

    def run(
        self,
        job: ChildJob,
        document: BinaryIO,
        *,
        deadline: float,
        switch: KillSwitch,
        on_page: Callable[[int, int], None],
    ) -> ChildResult:
        """See `daemon.children.Children.run`."""
        del deadline, on_page
        assert document.read(5) == b"%PDF-" or document.seek(0) == 0, "the bytes reach the child"
        self.jobs.append(job)
        self.on_run(job, switch)
        if switch.reason is not None:
            lost = switch.reason is KillReason.LEASE_LOST
            return ChildResult(outcome=self._outcome(job, Cause.LEASE_LOST if lost else Cause.DRAINED), conversion=None)
        script = self.causes.get(job.document_id, (Cause.CONVERTED,))
        cause = script[0] if job.ocr else script[-1]
        made = conversion(job.document_id) if cause is Cause.CONVERTED else None
        return ChildResult(outcome=self._outcome(job, cause), conversion=made)

    def _outcome(self, job: ChildJob, cause: Cause) -> Outcome:
        return Outcome(cause=cause, detail=f"child {job.child}: {cause}", child=job.child, ocr=job.ocr)


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


__all__ = ["Countdown", "DiedError", "ScriptedConverter", "ScriptedSource", "conversion", "replace"]
