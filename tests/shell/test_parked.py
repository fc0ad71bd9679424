"""A person's hand: what is parked can be chosen, tried once more or dropped; any document can be converted again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.errors import ConfigurationError, ResourceError
from daemon.model import Cause, PageRecord, PageReport, PageState, ResultStatus
from daemon.parked import Choice, chosen, drop, in_full, length_s, requeue, retry
from daemon.queue import DeadLetter
from daemon.story import explain, told
from tests.fakes.edges import Countdown, DiedError
from tests.shell.test_order import own
from tests.shell.test_sweep import GOOD, NOBODY, Swept, gone, spent


def retry_all(swept: Swept, countdown: Countdown = NOBODY) -> list[str]:
    """`bulkhead parked retry` of everything."""
    return retry(
        swept.parked(),
        recovery=countdown.around(swept.recovery, "recovery"),
        checkpoints=countdown.around(swept.world.checkpoints, "checkpoints"),
        queue=countdown.around(swept.world.queue, "queue"),
        clock=swept.world.clock,
    )


def requeue_it(swept: Swept, wanted: str, countdown: Countdown = NOBODY) -> str:
    """`bulkhead requeue`."""
    return requeue(
        wanted,
        ledger=swept.world.ledger,
        recovery=countdown.around(swept.recovery, "recovery"),
        checkpoints=countdown.around(swept.world.checkpoints, "checkpoints"),
        queue=countdown.around(swept.world.queue, "queue"),
        clock=swept.world.clock,
    )


def keep_a_page(swept: Swept, document_id: str) -> None:
    """A parent died between settling and forgetting."""
    report = PageReport(page=1, state=PageState.FAILED, engine="fake")
    swept.world.checkpoints.put(document_id, "f" * 64, PageRecord(page=1, report=report, blob=b"gap"))


@pytest.mark.parametrize("hand", [retry_all, lambda swept: requeue_it(swept, "gone")], ids=["retry", "requeue"])
def test_a_forced_retry_resumes_nothing(tmp_path: Path, hand: Callable[[Swept], object]) -> None:
    """What was lost once must not be found by the attempt that a person asks for, without waiting for a sweep."""
    swept = gone(tmp_path)
    swept.sweep()
    keep_a_page(swept, "gone")
    hand(swept)
    assert list(swept.world.checkpoints.documents()) == []


def test_a_requeue_takes_no_page_from_one_that_runs(tmp_path: Path) -> None:
    """One more message for a document that has not ended; whoever works on it goes on from its pages."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon(Countdown(3, DiedError, after=True))
    keep_a_page(swept, "good")
    requeue_it(swept, "good")
    assert list(swept.world.checkpoints.documents()) == ["good"]


def test_a_retry_is_one_more_round(tmp_path: Path) -> None:
    """One reclaim more, then it is parked again and told again; not three more, and not for ever."""
    swept = spent(tmp_path)
    swept.sweep()
    assert retry_all(swept) == ["killer"]
    assert swept.parked() == []
    for _ in range(6):
        swept.daemon()
        swept.sweep()
        swept.world.clock.advance(1_000)
    assert len(swept.world.ledger.attempts("killer")) == 6
    assert [(each.key, each.reclaims) for each in swept.parked()] == [("killer", 3)]
    assert swept.alerts == 2
    assert swept.world.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 0}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "hand", [retry_all, lambda swept, cut: requeue_it(swept, "gone", cut)], ids=["retry", "requeue"]
)
def test_a_hand_that_dies_at_any_call(
    tmp_path: Path,
    hand: Callable[[Swept, Countdown], object],
    after: bool,  # noqa: FBT001
) -> None:
    """The document is parked, or in the queue, or both are put right by the next sweep; it is never in neither."""
    for nth in range(1, 20):
        (tmp_path / str(nth)).mkdir()
        swept = gone(tmp_path / str(nth))
        swept.sweep()
        countdown = Countdown(nth, DiedError, after=after)
        try:
            hand(swept, countdown)
        except DiedError:
            swept.sweep()
        in_queue = {json.loads(body)["id"] for body in swept.bodies()}
        assert (in_queue == {"gone"}) != bool(swept.parked())
        assert (swept.world.ledger.settled("gone") is None) == (in_queue == {"gone"})
        swept.world.ledger.close()
        if not countdown.happened:
            assert in_queue == {"gone"}
            return
    pytest.fail("a retry has fewer than 20 edge calls")


def test_a_published_document_is_converted_again(tmp_path: Path) -> None:
    """A newer engine, or a person who knows why; the old result is replaced, not adopted."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon()
    assert requeue_it(swept, "s3://bucket/good.pdf") == "good"
    swept.daemon()
    settled = swept.world.ledger.settled("good")
    assert settled is not None
    assert (settled.status, settled.attempt, swept.world.puts) == (ResultStatus.CONVERTED, 2, 2)
    assert swept.parked() == []


def test_a_document_that_has_not_ended_gets_one_more_message(tmp_path: Path) -> None:
    """Nothing is taken from whoever works on it; the message that comes too late is only deleted."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon(Countdown(3, DiedError, after=True))
    requeue_it(swept, "good")
    assert sum(swept.world.queue.depth().values()) == 2
    swept.world.next_parent("second")
    swept.daemon()
    assert swept.world.puts == 1
    assert swept.world.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 0}


def test_choosing(tmp_path: Path) -> None:
    """By key, by cause, by engine; a wrong name changes nothing and says so."""
    swept = gone(tmp_path)
    letter = DeadLetter(body=json.dumps(own("b")), cause=Cause.ENCRYPTED, detail="why", document_id="b", attempts=1)
    swept.world.queue.dead_letter(letter)
    swept.sweep()

    def keys(**choice: Any) -> list[str]:
        return [each.key for each in chosen(swept.recovery, Choice(**choice), now=swept.world.clock.now())]

    gone_one, locked = swept.parked()[1], swept.parked()[0]
    assert keys() == ["b", "gone"]
    assert keys(keys=["gone"]) == ["gone"]
    assert keys(cause="encrypted") == ["b"]
    assert keys(keys=["gone"], cause="encrypted") == []
    assert keys(problem=locked.problem) == ["b"]
    assert keys(problem=gone_one.problem[:3]) == ["gone"]
    assert keys(not_of="build 1") == []
    assert keys(not_of="build 2") == ["b", "gone"]
    swept.world.clock.advance(172_000)
    assert keys(older_than="2d") == []
    swept.world.clock.advance(801)
    assert keys(older_than="2d", cause="encrypted") == ["b"]
    assert not Choice()
    assert Choice(older_than="0s")
    with pytest.raises(ResourceError, match="cannot find x: not parked"):
        keys(keys=["gone", "x"])
    with pytest.raises(ConfigurationError, match="'crash' is none"):
        keys(cause="crash")
    with pytest.raises(ConfigurationError, match="'2 days' as a length of time: write 90s"):
        keys(older_than="2 days")
    with pytest.raises(ResourceError, match="cannot requeue x: the ledger knows no document"):
        requeue_it(swept, "x")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43_200), ("2d", 172_800)])
def test_lengths_of_time(text: str, seconds: float) -> None:
    """As people write them."""
    assert length_s(text) == seconds


def test_the_story_of_a_parked_document(tmp_path: Path) -> None:
    """`bulkhead explain` says how often it came back, and that it waits for a person."""
    swept = spent(tmp_path)
    swept.sweep()
    story = explain(swept.world.ledger, swept.recovery, "killer")
    assert (story["reclaims"], len(swept.world.ledger.attempts("killer"))) == (3, 4)
    assert told(story)[-2:] == [
        "  sent back by a sweep 3 time(s)",
        f"  parked since {swept.parked()[0].since.isoformat()}: `bulkhead parked retry killer`, or drop",
    ]


def test_dropping_keeps_the_history(tmp_path: Path) -> None:
    """The message is gone for good; what happened can still be explained."""
    swept = gone(tmp_path)
    swept.sweep()
    (entry,) = chosen(swept.recovery, Choice(cause="source_missing"), now=swept.world.clock.now())
    told = in_full(entry, now=swept.world.clock.now(), build="build 2")
    assert (told["problem"], told["other_engine"]) == (entry.problem, True)
    assert (told["body"], told["uri"]) == (json.dumps(own("gone") | {"etag": "1"}), "s3://bucket/gone.pdf")
    assert drop([entry], recovery=swept.recovery) == ["gone"]
    swept.sweep()
    assert swept.parked() == []
    assert len(swept.world.ledger.attempts("gone")) == 1
    assert swept.world.ledger.settled("gone") is not None
