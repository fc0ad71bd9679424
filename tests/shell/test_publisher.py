"""Notices go out at least once and in order, whatever stops the publisher, and hold nobody up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from daemon.errors import AlreadyRunningError, WorldError
from daemon.model import Cause
from daemon.notice import Notice, NoticeState
from daemon.outbox import Backlog
from daemon.publisher import BATCH, Publisher, Publishing
from tests.fakes.edges import Countdown, DiedError

NET_S = 20.0
AT = datetime(2026, 3, 1, tzinfo=UTC)


def notice(document_id: str, sequence: int) -> Notice:
    """One state."""
    return Notice(document_id=document_id, sequence=sequence, state=NoticeState.FAILED, at=AT, body="{}")


@dataclass
class MemoryOutbox:
    """A list."""

    kept: list[Notice] = field(default_factory=list)

    def waiting(self, *, limit: int) -> Sequence[Notice]:
        """See `Outbox.waiting`."""
        return self.kept[:limit]

    def sent(self, notices: Sequence[Notice]) -> None:
        """See `Outbox.sent`."""
        self.kept = [each for each in self.kept if each not in notices]

    def backlog(self) -> Backlog:
        """See `Outbox.backlog`."""
        return Backlog(number=len(self.kept))


@dataclass
class Listener:
    """Keeps what arrives; `on_publish` may refuse it."""

    arrived: list[Notice] = field(default_factory=list)
    on_publish: Callable[[Notice], None] = lambda _notice: None

    def publish(self, notice: Notice) -> None:
        """See `Destination.publish`."""
        self.on_publish(notice)
        self.arrived.append(notice)

    def close(self) -> None:
        """Nothing to give back."""

    def of(self, document_id: str) -> list[int]:
        """Sequence numbers of one document, as they arrived."""
        return [each.sequence for each in self.arrived if each.document_id == document_id]


def unreachable(_notice: Notice) -> None:
    """Nobody answers."""
    raise WorldError(Cause.QUEUE_UNAVAILABLE, "no route to host")


STORY = [notice("a", 2), notice("b", 2), notice("a", 3), notice("a", 4), notice("c", 2), notice("b", 4)]


def test_everything_in_order() -> None:
    """All of it, oldest first, and nothing is left."""
    outbox, listener = MemoryOutbox(list(STORY)), Listener()
    assert Publisher(outbox, listener, alone=contextlib.nullcontext).send_waiting() == len(STORY)
    assert listener.arrived == STORY
    assert outbox.kept == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_publisher_that_dies_at_any_call(after: bool) -> None:  # noqa: FBT001
    """Killed at any call: all arrives in the end, and no document's later state is followed by an earlier one."""
    for nth in range(1, 100):
        outbox, listener = MemoryOutbox(list(STORY)), Listener()
        cut = Countdown(nth, DiedError, after=after)
        first = Publisher(cut.around(outbox, "outbox"), cut.around(listener, "queue"), alone=contextlib.nullcontext)
        with contextlib.suppress(DiedError):
            first.send_waiting()
        Publisher(outbox, listener, alone=contextlib.nullcontext).send_waiting()
        assert set(listener.arrived) == set(STORY)
        assert outbox.kept == []
        for name in "abc":
            assert listener.of(name) == sorted(listener.of(name)), f"call {nth}: {cut.happened}"
        if not cut.happened:
            return
    pytest.fail("a round has fewer than 100 calls")


def test_what_was_confirmed_before_an_outage_is_not_sent_again() -> None:
    """The third one is refused: two are gone, four wait, in their order."""
    outbox, listener = MemoryOutbox([notice(str(number), 2) for number in range(6)]), Listener()

    def refuse(each: Notice) -> None:
        if each.document_id == "2":
            unreachable(each)

    listener.on_publish = refuse
    with pytest.raises(WorldError):
        Publisher(outbox, listener, alone=contextlib.nullcontext).send_waiting()
    assert [each.document_id for each in outbox.kept] == ["2", "3", "4", "5"]


def test_a_large_backlog_is_sent_in_batches() -> None:
    """Ten thousand of them, and never more than a batch in memory."""

    class Watched(MemoryOutbox):
        most = 0

        def waiting(self, *, limit: int) -> Sequence[Notice]:
            self.most = max(self.most, limit)
            return super().waiting(limit=limit)

        def sent(self, notices: Sequence[Notice]) -> None:
            self.kept = self.kept[len(notices) :]

    outbox, listener = Watched([notice(f"d-{number}", 2) for number in range(10_000)]), Listener()
    Publisher(outbox, listener, alone=contextlib.nullcontext).send_waiting()
    assert len(listener.arrived) == 10_000
    assert outbox.most == BATCH


def test_two_processes_do_not_send_at_once() -> None:
    """While the daemon sends, a sweep leaves it to the daemon."""

    def taken() -> contextlib.AbstractContextManager[None]:
        raise AlreadyRunningError("pid 1 has it")

    outbox, listener = MemoryOutbox(list(STORY)), Listener()
    assert Publisher(outbox, listener, alone=taken).send_waiting() == 0
    assert listener.arrived == []


def test_an_outage_is_said_once_and_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three failures, one ERROR; then all of it goes out, and that is said too."""
    monkeypatch.setattr("daemon.publisher._PAUSE_FIRST_S", 0.01)
    outbox, listener, failures = MemoryOutbox(list(STORY)), Listener(), [1, 2, 3]
    done = threading.Event()

    def flaky(each: Notice) -> None:
        if failures:
            failures.pop()
            unreachable(each)

    class Told(MemoryOutbox):
        def sent(self, notices: Sequence[Notice]) -> None:
            super().sent(notices)
            if not self.kept:
                done.set()

    listener.on_publish, outbox = flaky, Told(list(STORY))
    publisher = Publisher(outbox, listener, alone=contextlib.nullcontext)
    with capture_logs() as logs:
        thread = Publishing(publisher, wake=threading.Event(), poll_s=0.01)
        thread.start()
        assert done.wait(NET_S)
        while not any(line["event"] == "notices.resumed" for line in logs):
            threading.Event().wait(0.01)
        thread.stop()
    assert [line["event"] for line in logs] == ["notices.unreachable", "notices.resumed"]
    assert logs[1]["failures"] == 3
    assert listener.arrived == STORY


def test_a_settled_document_is_told_at_once() -> None:
    """The thread is woken and does not wait for its next look."""
    outbox, listener, wake, arrived = MemoryOutbox(), Listener(), threading.Event(), threading.Event()
    listener.on_publish = lambda _notice: arrived.set()
    thread = Publishing(Publisher(outbox, listener, alone=contextlib.nullcontext), wake=wake, poll_s=10_000.0)
    thread.start()
    outbox.kept.append(notice("a", 2))
    wake.set()
    assert arrived.wait(NET_S)
    thread.stop()


def test_a_stop_does_not_wait_for_an_outage() -> None:
    """A pause of minutes ends with the daemon."""
    refused = threading.Event()

    def refuse(each: Notice) -> None:
        refused.set()
        unreachable(each)

    outbox, listener = MemoryOutbox(list(STORY)), Listener(on_publish=refuse)
    thread = Publishing(Publisher(outbox, listener, alone=contextlib.nullcontext), wake=threading.Event())
    thread._failures = 20
    thread.start()
    assert refused.wait(NET_S)
    thread.stop()
    assert not thread._thread.is_alive()


def test_a_bug_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said like an outage, and the next try is made."""
    monkeypatch.setattr("daemon.publisher._PAUSE_FIRST_S", 0.01)
    bugs, arrived = [ZeroDivisionError("a bug")], threading.Event()

    def stumble(_notice: Notice) -> None:
        if bugs:
            raise bugs.pop()
        arrived.set()

    publisher = Publisher(MemoryOutbox(list(STORY)), Listener(on_publish=stumble), alone=contextlib.nullcontext)
    thread = Publishing(publisher, wake=threading.Event())
    with capture_logs() as logs:
        thread.start()
        assert arrived.wait(NET_S)
        thread.stop()
    assert logs[0]["detail"] == "ZeroDivisionError: a bug"
