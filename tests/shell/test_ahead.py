"""The next document's bytes come while this one converts: once, without a trace, and never at its cost.

The parent of `test_parent.py`, with one worker and one message ahead; real threads, whose order comes from the gates of
the source and of the converter.
"""

from __future__ import annotations

import threading

import pytest
import structlog

from daemon.clock import SystemClock
from daemon.errors import DocumentError, WorldError
from daemon.ledger import Claimed
from daemon.model import Cause, Holder, ResultStatus, Settled
from daemon.quota import BeyondQuotaError
from tests.fakes.edges import GatedSource
from tests.shell.ahead_scene import (
    NotingQuota,
    Scene,
    dropped,
    fetched,
    read_own,
    settled_by,
    until,
    wait_for_drop,
)
from tests.shell.test_parent import NET_S, running


def test_the_next_is_fetched_while_one_converts() -> None:
    """Its bytes are here before its turn, its record is empty until then, and they are asked for once."""
    scene = Scene(GatedSource())
    with structlog.testing.capture_logs() as logs, scene.converting("a", "b"):
        scene.wait_until_fetched(2)
        assert scene.quota.used_bytes > 0
        assert not scene.ledger.attempts("b")
        assert scene.ledger.document("b") is None
        scene.hall.let_go("a")
        scene.hall.wait_for(b=0)
        assert scene.quota.used_bytes == 0, "what converts is not ahead"
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b"]
    assert {ended.settled.status for ended in scene.bench.ended} == {ResultStatus.CONVERTED}
    assert [fetched(logs, number)["ahead"] for number in (0, 1)] == [False, True]
    assert not dropped(logs)


def test_a_turn_goes_on_with_the_same_download() -> None:
    """Its turn comes while its bytes are on their way: it is marked then, and nothing is asked for twice."""
    scene = Scene(GatedSource("b"))
    with scene.converting("a", "b"):
        scene.source.wait_for("a", "b")
        assert not scene.ledger.attempts("b")
        scene.hall.let_go("a")
        scene.ledger.wait_for_marks(1)
        (attempt,) = scene.ledger.attempts("b")
        assert attempt.ended_at is None
        scene.source.let_go("b")
        scene.hall.wait_for(b=0)
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b"]
    assert sorted(ended.document.id for ended in scene.bench.ended) == ["a", "b"]


FAILURES = [
    DocumentError(Cause.SOURCE_MISSING, "404"),
    DocumentError(Cause.TOO_LARGE, "too large"),
    WorldError(Cause.SOURCE_UNAVAILABLE, "503"),
    WorldError(Cause.DISK_FULL, "no space left"),
    OSError(24, "too many open files"),
    ZeroDivisionError(),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: str(failure) or "bug")
def test_what_fails_ahead_is_fetched_again(failure: Exception) -> None:
    """Whatever went wrong before the turn has no consequence: no record, no release, no pause; one line says so."""
    scene = Scene(GatedSource())
    scene.source.first_failures["b"] = failure
    with structlog.testing.capture_logs() as logs, scene.converting("a", "b"):
        assert wait_for_drop(logs)["document_id"] == "b"
        assert not scene.ledger.attempts("b")
        scene.hall.let_go("a")
        scene.hall.wait_for(b=0)
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b", "b"]
    assert {ended.settled.status for ended in scene.bench.ended} == {ResultStatus.CONVERTED}
    (attempt,) = scene.ledger.attempts("b")
    assert [outcome.cause for outcome in attempt.outcomes] == [Cause.CONVERTED]
    assert scene.bench.released == []
    assert len(dropped(logs)) == 1
    assert not [line for line in logs if line["log_level"] in {"warning", "error"}]


def test_what_is_missing_is_recorded_by_its_attempt() -> None:
    """A document that is not there is met ahead, and again in its turn: one attempt, one outcome, one dead letter."""
    scene = Scene(GatedSource())
    scene.source.failures["s3://bucket/b.pdf"] = DocumentError(Cause.SOURCE_MISSING, "404")
    with structlog.testing.capture_logs() as logs, scene.converting("a", "b"):
        wait_for_drop(logs)
        assert not scene.bench.queue.dead
        scene.hall.let_go("a")
        scene.bench.wait_for_news(2)
    (attempt,) = scene.ledger.attempts("b")
    assert [outcome.cause for outcome in attempt.outcomes] == [Cause.SOURCE_MISSING]
    assert [letter.cause for letter in scene.bench.queue.dead] == [Cause.SOURCE_MISSING]


def test_what_fails_after_the_mark_is_the_attempts_own() -> None:
    """The turn had come when the source gave up: the attempt has waited for that, and does not begin again."""
    scene = Scene(GatedSource("b"))
    scene.source.first_failures["b"] = DocumentError(Cause.SOURCE_MISSING, "404")
    with structlog.testing.capture_logs() as logs, scene.converting("a", "b"):
        scene.source.wait_for("a", "b")
        scene.hall.let_go("a")
        assert scene.quota.given_back.wait(NET_S), "the attempt has taken it"
        scene.source.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b"]
    assert not dropped(logs)
    (attempt,) = scene.ledger.attempts("b")
    assert [outcome.cause for outcome in attempt.outcomes] == [Cause.SOURCE_MISSING]


def test_a_quota_that_ends_with_the_mark_costs_nothing() -> None:
    """Refused for its size at the moment when its turn came: that was for what waits, and the attempt fetches it."""
    scene = Scene(GatedSource("b"))
    scene.source.first_failures["b"] = BeyondQuotaError("too much")
    with scene.converting("a", "b"):
        scene.source.wait_for("a", "b")
        scene.hall.let_go("a")
        assert scene.quota.given_back.wait(NET_S), "the attempt has taken it"
        scene.source.let_go("b")
        scene.hall.wait_for(b=0)
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b", "b"]
    assert scene.bench.released == []


def test_a_drain_ends_a_download_that_was_taken() -> None:
    """Told to leave at once in the middle of it: the attempt is ended and does not count, as with any fetch."""
    scene = Scene(GatedSource("b"))
    with scene.converting("a", "b"):
        scene.source.wait_for("a", "b")
        scene.hall.let_go("a")
        assert scene.quota.given_back.wait(NET_S), "the attempt has taken it"
        scene.bench.wait_for_news(1)
        scene.bench.parent.request_stop(at_once=True)
        scene.bench.wait_for_news(1)
        scene.bench.join()
    assert scene.source.cancelled == ["b"]
    assert scene.bench.released == [Cause.DRAINED]
    (attempt,) = scene.ledger.attempts("b")
    assert attempt.last_cause is Cause.DRAINED
    assert attempt.ended_at is not None


def test_what_is_beyond_the_quota_waits_for_its_turn() -> None:
    """A document too large to lie here before its turn is fetched in it, and converts like any other."""
    scene = Scene(GatedSource(), quota=NotingQuota(10))
    with structlog.testing.capture_logs() as logs, scene.converting("a", "b"):
        assert "fetch.ahead_bytes" in wait_for_drop(logs)["reason"]
        scene.hall.let_go("a")
        scene.hall.wait_for(b=0)
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b", "b"]
    assert not fetched(logs, 1)["ahead"]


def test_a_quota_of_nothing_asks_nobody() -> None:
    """Turned off: no source hears of a document before its turn, and nothing is said about it."""
    scene = Scene(GatedSource(), quota=NotingQuota(0))
    with structlog.testing.capture_logs() as logs, scene.converting("a", "b"):
        until(lambda: scene.bench.edges.turns.waiting == 1)
        scene.hall.let_go("a")
        scene.hall.wait_for(b=0)
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b"]
    assert not dropped(logs)


def test_a_download_that_was_taken_may_go_beyond_the_quota() -> None:
    """The quota is for what waits: a document whose turn has come is as large as `fetch.max_bytes` allows."""
    scene = Scene(GatedSource("b"), quota=NotingQuota(10))
    with scene.converting("a", "b"):
        scene.source.wait_for("a", "b")
        scene.hall.let_go("a")
        assert scene.quota.given_back.wait(NET_S), "the attempt has taken it"
        scene.source.let_go("b")
        scene.hall.wait_for(b=0)
        scene.hall.let_go("b")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["a", "b"]


def test_what_has_ended_before_is_not_fetched() -> None:
    """A duplicate of what is settled costs a look into the ledger, and no download."""
    scene = Scene(GatedSource())
    scene.hall.let_go("old")
    with running(scene.bench):
        scene.bench.send("old")
        scene.bench.wait_for_news(1)
    scene = Scene(scene.source, ledger=scene.ledger)
    asked = threading.Event()
    settled = scene.ledger.settled

    def look(document_id: str) -> Settled | None:
        found = settled(document_id)
        asked.set()
        return found

    scene.ledger.settled = look  # type: ignore[method-assign]
    scene.ledger.wait_for_marks(1)
    with scene.converting("a", "old"):
        assert asked.wait(NET_S)
        scene.hall.let_go("a")
        scene.bench.wait_for_news(2)
    assert scene.source.asked == ["old", "a"]


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "in_work"])
def test_what_another_host_took_meanwhile_is_let_go(ended: bool) -> None:  # noqa: FBT001 - a case
    """Its bytes are here when the ledger says that it has ended, or is held: they are closed, and it has no child."""
    scene = Scene(GatedSource())
    with scene.converting("a", "b"):
        scene.wait_until_fetched(2)
        there = Holder(host="there", boot_id="boot", invocation="now", pid=1)
        now = SystemClock().now()
        claim = scene.ledger.claim(read_own("b"), holder=there, now=now, lease_s=60.0)
        assert isinstance(claim, Claimed)
        if ended:
            scene.ledger.settle(claim.attempt, settled_by(claim.attempt))
        scene.hall.let_go("a")
        scene.bench.wait_for_news(2)
    assert [job.document_id for job in scene.bench.converter.jobs] == ["a"]
    assert scene.bench.released == ([] if ended else [Cause.LEASE_LOST])
    assert len(scene.ledger.attempts("b")) == 1


def test_a_duplicate_does_not_wait_for_its_bytes() -> None:
    """The same while its bytes are on their way: that is cancelled."""
    scene = Scene(GatedSource())
    with scene.converting("a"):
        scene.source.keep("a")
        scene.bench.send("a")
        scene.source.wait_for("a", "a")
        scene.hall.let_go("a")
        scene.bench.wait_for_news(2)
    assert scene.source.cancelled == ["a"]
    assert len(scene.ledger.attempts("a")) == 1


def test_what_waits_is_not_fetched_where_a_worker_is_free() -> None:
    """A document that need not wait is marked before it is fetched, as ever."""
    scene = Scene(GatedSource())
    with structlog.testing.capture_logs() as logs, running(scene.bench):
        scene.bench.send("a")
        scene.hall.wait_for(a=0)
        scene.hall.let_go("a")
        scene.bench.wait_for_news(1)
    assert [line["event"] for line in logs if line["event"] in {"attempt.marked", "document.fetched"}] == [
        "attempt.marked",
        "document.fetched",
    ]
    assert not fetched(logs, 0)["ahead"]
