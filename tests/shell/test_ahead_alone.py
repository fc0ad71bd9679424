"""One fetch ahead by itself: its age, and a source or a host that does not play along."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import structlog

from daemon.ahead import FetchAhead
from daemon.children import KillSwitch
from daemon.clock import Clock
from daemon.fetch import Fetched
from daemon.heartbeat import InHand
from daemon.model import Document, Message
from daemon.quota import Part, Quota
from daemon.spool import Flag
from tests.fakes.clock import FakeClock
from tests.fakes.edges import GatedSource
from tests.shell.ahead_scene import (
    NotingQuota,
    dropped,
    read_own,
    wait_for_threads,
)
from tests.shell.test_parent import NET_S, Bench


class TestBestEffort:
    """Neither a source that does not listen nor a host without threads holds anybody up."""

    def test_a_source_that_does_not_listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It gives the bytes long after nobody wanted them: they are closed where they came, and counted till then."""
        monkeypatch.setattr("daemon.ahead.LEAVE_S", 0.01)
        source, quota = DeafSource(), NotingQuota(1_000)
        with fetching(source, read_own("b"), quota=quota) as ahead:
            assert source.came.wait(NET_S)
        assert ahead.is_set()
        assert quota.used_bytes == 10
        source.go_on.set()
        wait_for_threads()
        (file,) = source.files
        assert file.closed
        assert quota.used_bytes == 0

    def test_no_thread_to_be_had(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The document waits as ever, and is fetched in its turn."""

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        source = GatedSource()
        with structlog.testing.capture_logs() as logs, fetching(source, read_own("b")) as ahead:
            assert ahead.take() is None
        assert not source.asked
        assert "new thread" in dropped(logs)[0]["reason"]


class DeafSource(GatedSource):
    """Takes its time, whoever cancels."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.go_on = threading.Event(), threading.Event()

    def fetch(self, document: Document, *, cancelled: Flag | None = None, part: Part | None = None) -> Fetched:
        """See `Source.fetch`."""
        del cancelled
        assert part is not None
        part.reach(10)
        self.came.set()
        assert self.go_on.wait(NET_S)
        return super().fetch(document)


@contextmanager
def fetching(
    source: GatedSource, document: Document, *, clock: Clock | None = None, quota: Quota | None = None
) -> Iterator[FetchAhead]:
    """A document that waits, by itself."""
    edges = Bench(source=source, quota=quota or Quota(1_000)).edges
    held = InHand(
        Message(message_id="m", receipt_handle="r", body="", receive_count=1, received_monotonic_s=0.0), KillSwitch()
    )
    with FetchAhead(replace(edges, clock=clock or edges.clock), held, document, fresh_s=60.0) as ahead:
        ahead.begin()
        yield ahead


class TestAge:
    """How old bytes may be that were fetched before the mark."""

    @staticmethod
    def taken(document: Document, *, after_s: float) -> tuple[Fetched | None, GatedSource]:
        """What an attempt gets that takes it so long after it came."""
        source, clock = GatedSource(), FakeClock()
        with fetching(source, document, clock=clock) as ahead:
            wait_for_threads()
            clock.advance(after_s)
            return ahead.take(), source

    def test_a_named_version_does_not_age(self) -> None:
        """Other bytes would be another document, with a message of its own."""
        bare = Document(id="b", uri="s3://bucket/b.pdf")
        for named in (replace(bare, etag="1"), replace(bare, version_id="1")):
            got, source = self.taken(named, after_s=3600.0)
            assert got is not None
            assert not source.files[0].closed

    def test_a_bare_uri_is_fetched_again(self) -> None:
        """Nobody said which bytes are meant, so those of an hour ago are not; those of a minute ago are."""
        bare = Document(id="b", uri="https://example.org/b.pdf")
        got, _ = self.taken(bare, after_s=60.0)
        assert got is not None
        with structlog.testing.capture_logs() as logs:
            got, source = self.taken(bare, after_s=61.0)
        assert got is None
        assert source.files[0].closed
        assert len(dropped(logs)) == 1
