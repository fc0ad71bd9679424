"""A parent with one worker and one message ahead, for the tests of what is fetched ahead.

Real threads, whose order comes from the gates of the source and of the converter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from daemon.children import ChildJob, KillSwitch
from daemon.ledger import Claim
from daemon.model import Attempt, Cause, Document, ResultStatus, Settled
from daemon.quota import Quota
from tests.fakes.edges import GatedSource, ScriptedConverter
from tests.fakes.ledger import MemoryLedger
from tests.shell.test_memory_tokens import Hall
from tests.shell.test_parent import NET_S, Bench, running

Logs = list[Any]


class NotingLedger(MemoryLedger):
    """Says which documents were marked."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = threading.Semaphore(0)

    def claim(self, document: Document, **more: Any) -> Claim:
        """See `Ledger.claim`."""
        claim = super().claim(document, **more)
        self.marks.release()
        return claim

    def wait_for_marks(self, number: int) -> None:
        """Return when `number` more documents were claimed."""
        for _ in range(number):
            assert self.marks.acquire(timeout=NET_S), "nothing was marked"


class NotingQuota(Quota):
    """Says when what lay here ahead was taken by an attempt, or was closed."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.given_back = threading.Event()

    def give_back(self, size_bytes: int) -> None:
        """See `Quota.give_back`."""
        super().give_back(size_bytes)
        self.given_back.set()


@dataclass
class Scene:
    """A parent with one worker, whose first document converts, and whose second may be fetched."""

    source: GatedSource
    hall: Hall = field(default_factory=Hall)
    ledger: NotingLedger = field(default_factory=NotingLedger)
    quota: NotingQuota = field(default_factory=lambda: NotingQuota(1_000))

    def __post_init__(self) -> None:
        self.bench = Bench(
            workers=1,
            ahead=1,
            source=self.source,
            ledger=self.ledger,
            quota=self.quota,
            converter=ScriptedConverter(on_run=self._hold),
        )

    def _hold(self, job: ChildJob, switch: KillSwitch) -> None:
        self.hall.hold(replace(job, memory_bytes=0), switch)

    @contextmanager
    def converting(self, first: str, *waiting: str) -> Iterator[None]:
        """`first` has its child, marked and fetched; `waiting` is on the queue."""
        with running(self.bench):
            self.bench.send(first)
            self.hall.wait_for(**{first: 0})
            self.ledger.wait_for_marks(1)
            self.bench.send(*waiting)
            yield
        assert all(file.closed for file in self.source.files)
        assert self.quota.used_bytes == 0
        assert "ahead" not in names_of_threads()

    def wait_until_fetched(self, number: int) -> None:
        """Return when all that was asked for so far has come, and none of it is still counted as on its way."""
        until(lambda: len(self.source.files) >= number and "ahead" not in names_of_threads())


def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; a net ends what never does."""
    net = threading.Event()
    timer = threading.Timer(NET_S, net.set)
    timer.start()
    try:
        while not condition():
            assert not net.wait(0.005), "it never came to that"
    finally:
        timer.cancel()


def settled_by(attempt: Attempt) -> Settled:
    """The record of a document that this attempt converted."""
    return Settled(
        document_id=attempt.document_id,
        status=ResultStatus.CONVERTED,
        attempt=attempt.number,
        settled_at=attempt.started_at,
        cause=Cause.CONVERTED,
        detail="",
    )


def read_own(name: str) -> Document:
    """The document that the message of this name asks for."""
    return Document(id=name, uri=f"s3://bucket/{name}.pdf", etag="1")


def dropped(logs: Logs) -> list[Mapping[str, Any]]:
    """Every line that says so."""
    return [line for line in logs if line["event"] == "ahead.dropped"]


def wait_for_drop(logs: Logs) -> Mapping[str, Any]:
    """Return the line when it is there."""
    until(lambda: bool(dropped(logs)))
    return dropped(logs)[0]


def fetched(logs: Logs, number: int) -> Mapping[str, Any]:
    """The line about the `number`-th document that an attempt got, from 0."""
    lines: list[Mapping[str, Any]] = [line for line in logs if line["event"] == "document.fetched"]
    return lines[number]


def wait_for_threads() -> None:
    """Return when nothing is fetched ahead any more."""
    until(lambda: "ahead" not in names_of_threads())


def names_of_threads() -> set[str]:
    """Of all that live."""
    return {thread.name for thread in threading.enumerate()}
