"""What every ledger must do; `test_ledger.py` runs it on the real ones and on the fake.

Rules: a test knows only `daemon.ledger.Ledger`; instants are given, none is read.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from daemon.errors import DocumentError, LeaseLostError
from daemon.ledger import AlreadySettled, Claimed, Held, Ledger
from daemon.model import Attempt, Cause, Document, Holder, Options, Outcome, ResultStatus, Settled, Stage

T0 = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
LEASE_S = 60.0
HERE = Holder(host="here", boot_id="boot-1", invocation="life-1", pid=101)
#: Of the same boot: whoever shares a ledger that is a file is of one machine.
THERE = Holder(host="there", boot_id="boot-1", invocation="life-2", pid=202)


def after(seconds: float) -> datetime:
    """The instant `seconds` after the story's beginning."""
    return T0 + timedelta(seconds=seconds)


def document(name: str = "report-1") -> Document:
    """A document with every field set."""
    return Document(id=name, uri=f"s3://in/{name}.pdf", version_id="v1", etag='"e1"', options=Options(ocr=False))


def claimed(ledger: Ledger, doc: Document, *, holder: Holder = HERE, now: datetime = T0) -> Claimed:
    """Claim `doc`, which must succeed."""
    claim = ledger.claim(doc, holder=holder, now=now, lease_s=LEASE_S)
    assert isinstance(claim, Claimed)
    return claim


def converted(attempt: Attempt, *, now: datetime = T0, detail: str = "2 pages") -> Settled:
    """A terminal record of a published document."""
    return Settled(
        document_id=attempt.document_id,
        status=ResultStatus.CONVERTED,
        attempt=attempt.number,
        settled_at=now,
        cause=Cause.CONVERTED,
        detail=detail,
        manifest=f"s3://out/{attempt.document_id}/manifest.json",
        pages=2,
        pages_by_state={"ocr": 1, "text": 1},
    )


def failed(attempt: Attempt, *, now: datetime = T0) -> Settled:
    """A terminal record of a dead-lettered document."""
    return Settled(
        document_id=attempt.document_id,
        status=ResultStatus.FAILED,
        attempt=attempt.number,
        settled_at=now,
        cause=Cause.CRASHED,
        detail="killed by SIGSEGV",
    )


CRASH = Outcome(
    cause=Cause.CRASHED,
    detail="killed by SIGSEGV in ocr of page 7",
    child=1,
    ocr=True,
    signal="SIGSEGV",
    stage=Stage.OCR,
    page=7,
    elapsed_s=3.25,
    peak_rss_bytes=432_013_312,
    traceback="Fatal Python error: Segmentation fault",
    stderr_tail="…last words\x00",
    fingerprint="f" * 64,
)


class LedgerContract:
    """Subclasses give a fixture `ledger` that yields an empty one."""

    # claim

    def test_first_claim(self, ledger: Ledger) -> None:
        """The first claim registers the document and is attempt 1, with a lease and no history."""
        claim = claimed(ledger, document())
        assert claim.history == ()
        assert claim.attempt == Attempt(
            document_id="report-1", number=1, holder=HERE, started_at=T0, lease_until=after(LEASE_S)
        )
        assert ledger.document("report-1") == document()
        assert list(ledger.attempts("report-1")) == [claim.attempt]

    @pytest.mark.parametrize("second", [HERE, THERE])
    def test_duplicate_delivery_while_leased(self, ledger: Ledger, second: Holder) -> None:
        """A duplicate delivery, to the same parent or another host, sees the lease and lets go."""
        claimed(ledger, document())
        claim = ledger.claim(document(), holder=second, now=after(LEASE_S - 0.001), lease_s=LEASE_S)
        assert claim == Held(holder=HERE, lease_until=after(LEASE_S))
        assert len(ledger.attempts("report-1")) == 1

    def test_takeover_at_the_instant_the_lease_runs_out(self, ledger: Ledger) -> None:
        """A dead parent's document is taken over when its lease is over; the dead attempt ends with what is known."""
        first = claimed(ledger, document()).attempt
        ledger.record_outcome(first, CRASH)
        second = claimed(ledger, document(), holder=THERE, now=after(LEASE_S))
        assert second.attempt.number == 2
        (left,) = second.history
        assert left.ended_at == after(LEASE_S)
        assert left.outcomes[0] == CRASH
        assert [each.cause for each in left.outcomes] == [Cause.CRASHED, Cause.PARENT_DIED]
        assert left.outcomes[1].detail.endswith(
            "pid 101 on host here died, or was silent for a whole lease; pid 202 on host there took over"
        )
        assert list(ledger.attempts("report-1")) == [left, second.attempt]

    def test_takeover_after_a_reboot(self, ledger: Ledger) -> None:
        """Whoever takes over on the same host after a reboot says so."""
        claimed(ledger, document())
        second = claimed(ledger, document(), holder=replace(HERE, boot_id="boot-9"), now=after(LEASE_S))
        assert "host here rebooted" in second.history[0].outcomes[0].detail

    def test_takeover_from_oneself(self, ledger: Ledger) -> None:
        """A claim that was written and never confirmed: its holder lives, so nobody's document pays for it."""
        claimed(ledger, document())
        (left,) = claimed(ledger, document(), now=after(LEASE_S)).history
        assert (left.ended_at, left.last_cause) == (after(LEASE_S), Cause.LEASE_LOST)

    def test_takeover_of_what_was_told_to_stop(self, ledger: Ledger) -> None:
        """A parent that was told to stop, and then killed, has said so; nothing else is put in its mouth."""
        first = claimed(ledger, document()).attempt
        told = Outcome(cause=Cause.DRAINED, detail="told to stop")
        ledger.record_outcome(first, told)
        (left,) = claimed(ledger, document(), holder=THERE, now=after(LEASE_S)).history
        assert (left.ended_at, left.outcomes) == (after(LEASE_S), (told,))

    def test_a_slow_holder_is_excused(self, ledger: Ledger) -> None:
        """A holder that was silent, not dead, says so when it finds itself overtaken; its attempt costs nothing."""
        first = claimed(ledger, document()).attempt
        ledger.record_outcome(first, CRASH)
        ledger.excuse(first)
        assert ledger.attempts("report-1")[0].outcomes == (CRASH,), "nobody has taken over"
        second = claimed(ledger, document(), holder=THERE, now=after(LEASE_S)).attempt
        for _ in range(2):
            ledger.excuse(first)
            assert [each.cause for each in ledger.attempts("report-1")[0].outcomes] == [Cause.CRASHED, Cause.LEASE_LOST]
        ledger.check(second)
        third = claimed(ledger, document(), now=after(3 * LEASE_S))
        assert [each.last_cause for each in third.history] == [Cause.LEASE_LOST, Cause.PARENT_DIED]

    def test_no_excuse_for_what_is_past(self, ledger: Ledger) -> None:
        """What ended by itself, or belongs to a history that was closed, stays as it is; an unknown one is no error."""
        first = claimed(ledger, document()).attempt
        ledger.record_outcome(first, CRASH)
        ledger.end_attempt(first, now=after(1))
        second = claimed(ledger, document(), now=after(1)).attempt
        ledger.settle(second, failed(second))
        ledger.excuse(first)
        ledger.reopen("report-1")
        claimed(ledger, document(), now=after(2))
        ledger.excuse(first)
        ledger.excuse(replace(first, document_id="never-seen"))
        assert ledger.attempts("report-1")[0].outcomes == (CRASH,)

    def test_claim_of_a_settled_document(self, ledger: Ledger) -> None:
        """A redelivery of a settled document is told the terminal record, and starts nothing."""
        attempt = claimed(ledger, document()).attempt
        ledger.settle(attempt, converted(attempt))
        claim = ledger.claim(document(), holder=THERE, now=after(1), lease_s=LEASE_S)
        assert claim == AlreadySettled(settled=converted(attempt))
        assert len(ledger.attempts("report-1")) == 1

    def test_id_of_another_uri(self, ledger: Ledger) -> None:
        """Two URIs under one id would overwrite each other's result: the second is refused, naming both."""
        claimed(ledger, document())
        other = Document(id="report-1", uri="s3://in/other.pdf")
        with pytest.raises(DocumentError, match=r"s3://in/other\.pdf.*report-1.*s3://in/report-1\.pdf") as caught:
            ledger.claim(other, holder=HERE, now=T0, lease_s=LEASE_S)
        assert caught.value.cause is Cause.MALFORMED_MESSAGE
        assert ledger.document("report-1") == document()
        assert len(ledger.attempts("report-1")) == 1

    def test_claim_after_an_ended_attempt(self, ledger: Ledger) -> None:
        """A released document can be claimed at once, and tells its history with outcomes, oldest first."""
        first = claimed(ledger, document()).attempt
        ledger.record_outcome(first, CRASH)
        ledger.end_attempt(first, now=after(1))
        second = claimed(ledger, document(), now=after(1)).attempt
        ledger.end_attempt(second, now=after(2))
        third = claimed(ledger, document(), now=after(2))
        assert [attempt.number for attempt in third.history] == [1, 2]
        assert third.history[0].outcomes == (CRASH,)
        assert third.history[0].ended_at == after(1)
        assert third.history[1].outcomes == ()

    def test_many_threads_one_document(self, ledger: Ledger) -> None:
        """However many claim at once, one wins each round and the others see its lease."""
        threads = 4
        for round_number in range(10):
            start = threading.Barrier(threads)
            doc = document(f"doc-{round_number}")

            def claim(_: int, doc: Document = doc, start: threading.Barrier = start) -> bool:
                start.wait(timeout=30)
                return isinstance(ledger.claim(doc, holder=HERE, now=T0, lease_s=LEASE_S), Claimed)

            with ThreadPoolExecutor(threads) as pool:
                assert sum(pool.map(claim, range(threads))) == 1

    # the holder's own calls

    def test_renew(self, ledger: Ledger) -> None:
        """A heartbeat moves the lease's end, so that nobody takes the document from a living holder."""
        attempt = claimed(ledger, document()).attempt
        ledger.renew(attempt, now=after(50), lease_s=LEASE_S)
        claim = ledger.claim(document(), holder=THERE, now=after(LEASE_S + 1), lease_s=LEASE_S)
        assert claim == Held(holder=HERE, lease_until=after(50 + LEASE_S))

    def test_late_renew_without_a_rival(self, ledger: Ledger) -> None:
        """A heartbeat that comes late is no harm while nobody has taken over."""
        attempt = claimed(ledger, document()).attempt
        ledger.renew(attempt, now=after(10 * LEASE_S), lease_s=LEASE_S)
        ledger.check(attempt)
        assert isinstance(ledger.claim(document(), holder=THERE, now=after(10 * LEASE_S), lease_s=LEASE_S), Held)

    def test_outcomes_keep_their_order(self, ledger: Ledger) -> None:
        """One outcome per child, in order, every field as it was."""
        attempt = claimed(ledger, document()).attempt
        retry = Outcome(cause=Cause.TIMEOUT, detail="deadline of 900 s passed", child=2, ocr=False)
        ledger.record_outcome(attempt, CRASH)
        ledger.record_outcome(attempt, retry)
        assert ledger.attempts("report-1")[0].outcomes == (CRASH, retry)

    def test_check_of_the_newest(self, ledger: Ledger) -> None:
        """The holder may go on."""
        ledger.check(claimed(ledger, document()).attempt)

    @pytest.mark.parametrize("how", ["taken over", "ended", "settled"])
    @pytest.mark.parametrize("call", ["renew", "check", "record_outcome", "end_attempt", "settle"])
    def test_stale_holder(self, ledger: Ledger, call: str, how: str) -> None:
        """A holder that lost its lease, gave it back or settled can write nothing more."""
        attempt = claimed(ledger, document()).attempt
        if how == "taken over":
            claimed(ledger, document(), holder=THERE, now=after(LEASE_S))
        elif how == "ended":
            ledger.end_attempt(attempt, now=after(1))
        else:
            ledger.settle(attempt, failed(attempt))
        before = (list(ledger.attempts("report-1")), ledger.settled("report-1"))
        with pytest.raises(LeaseLostError, match=r"cannot go on"):
            _call(ledger, call, attempt)
        assert (list(ledger.attempts("report-1")), ledger.settled("report-1")) == before

    # settling

    def test_settle(self, ledger: Ledger) -> None:
        """Settling ends the attempt and is the document's last word, field by field."""
        attempt = claimed(ledger, document()).attempt
        ledger.settle(attempt, converted(attempt, now=after(9)))
        assert ledger.settled("report-1") == converted(attempt, now=after(9))
        assert ledger.attempts("report-1")[0].ended_at == after(9)

    def test_settle_twice(self, ledger: Ledger) -> None:
        """A repeated settlement is harmless, and the first instant stays."""
        attempt = claimed(ledger, document()).attempt
        ledger.settle(attempt, converted(attempt, now=after(9)))
        ledger.settle(attempt, converted(attempt, now=after(10)))
        assert ledger.settled("report-1") == converted(attempt, now=after(9))

    def test_settle_otherwise(self, ledger: Ledger) -> None:
        """A terminal state is sticky: another word about the same document is refused."""
        attempt = claimed(ledger, document()).attempt
        ledger.settle(attempt, converted(attempt))
        with pytest.raises(LeaseLostError):
            ledger.settle(attempt, failed(attempt))
        assert ledger.settled("report-1") == converted(attempt)

    def test_settled_is_no_alias(self, ledger: Ledger) -> None:
        """What was not settled is None."""
        claimed(ledger, document())
        assert ledger.settled("report-1") is None
        assert ledger.settled("never-seen") is None
        assert ledger.document("never-seen") is None
        assert list(ledger.attempts("never-seen")) == []

    # leases that a dead parent left

    def test_break_leases(self, ledger: Ledger) -> None:
        """A restarted parent need not wait for the leases of its own dead life, and spares all others."""
        reborn = Holder(host="here", boot_id="boot-1", invocation="life-3", pid=103)
        claimed(ledger, document("dead"))
        claimed(ledger, document("foreign"), holder=THERE)
        claimed(ledger, document("own"), holder=reborn)
        done = claimed(ledger, document("done")).attempt
        ledger.settle(done, converted(done))
        ended = claimed(ledger, document("ended")).attempt
        ledger.end_attempt(ended, now=after(1))
        assert ledger.break_leases(host="here", invocation="life-3", now=after(2)) == 1
        assert ledger.break_leases(host="here", invocation="life-3", now=after(2)) == 0
        taken = claimed(ledger, document("dead"), holder=reborn, now=after(2))
        assert [attempt.ended_at for attempt in taken.history] == [after(2)]
        for name in ("foreign", "own"):
            assert isinstance(ledger.claim(document(name), holder=reborn, now=after(2), lease_s=LEASE_S), Held)

    # a person asks again

    def test_reopen(self, ledger: Ledger) -> None:
        """A reopened document gets a new number and a clean history; nothing is lost, its old holder stays stale."""
        attempt = claimed(ledger, document()).attempt
        ledger.record_outcome(attempt, CRASH)
        ledger.settle(attempt, failed(attempt))
        assert ledger.reopen("report-1") is True
        assert ledger.settled("report-1") is None
        with pytest.raises(LeaseLostError):
            ledger.settle(attempt, failed(attempt))
        again = claimed(ledger, document(), now=after(1))
        assert again.attempt.number == 2
        assert again.history == ()
        assert ledger.attempts("report-1")[0].outcomes == (CRASH,)
        with pytest.raises(LeaseLostError):
            ledger.check(attempt)

    def test_reopen_of_what_is_not_settled(self, ledger: Ledger) -> None:
        """Nothing to take back is said, and a running attempt is not disturbed."""
        attempt = claimed(ledger, document()).attempt
        assert ledger.reopen("report-1") is False
        assert ledger.reopen("never-seen") is False
        ledger.check(attempt)

    # what an operator asks

    def test_find(self, ledger: Ledger) -> None:
        """A whole id wins over a URI, a URI over the beginning of an id."""
        for identity in ("report-1", "report-12", "letter"):
            claimed(ledger, replace(document(), id=identity, uri=f"s3://bucket/{identity}"))
        assert [found.id for found in ledger.find("report-1")] == ["report-1"]
        assert [found.id for found in ledger.find("s3://bucket/report-12")] == ["report-12"]
        assert [found.id for found in ledger.find("report")] == ["report-1", "report-12"]
        assert ledger.find("%") == []
        assert ledger.find("nothing") == []

    def test_running(self, ledger: Ledger) -> None:
        """What runs now: the newest attempt of each unsettled document, oldest first, with outcomes so far."""
        claimed(ledger, document("b"), now=after(2))
        old = claimed(ledger, document("a"), now=after(1)).attempt
        ledger.record_outcome(old, CRASH)
        done = claimed(ledger, document("done")).attempt
        ledger.settle(done, converted(done))
        ended = claimed(ledger, document("ended")).attempt
        ledger.end_attempt(ended, now=after(1))
        claimed(ledger, document("taken"))
        claimed(ledger, document("taken"), holder=THERE, now=after(LEASE_S))
        assert [(each.document_id, each.number) for each in ledger.running()] == [("a", 1), ("b", 1), ("taken", 2)]
        assert ledger.running()[0].outcomes == (CRASH,)

    def test_counts(self, ledger: Ledger) -> None:
        """Every document is counted once, and every state is named even at zero."""
        assert ledger.counts() == {"running": 0, "waiting": 0, "converted": 0, "partial": 0, "failed": 0}
        claimed(ledger, document("runs"))
        for name in ("w1", "w2"):
            ledger.end_attempt(claimed(ledger, document(name)).attempt, now=T0)
        ok = claimed(ledger, document("ok")).attempt
        ledger.settle(ok, converted(ok))
        bad = claimed(ledger, document("bad")).attempt
        ledger.settle(bad, failed(bad))
        assert ledger.counts() == {"running": 1, "waiting": 2, "converted": 1, "partial": 0, "failed": 1}

    def test_recent(self, ledger: Ledger) -> None:
        """The last settled come first, at most as many as asked for; the later of two at one instant first."""
        for name, seconds in (("first", 1), ("third", 3), ("second", 2), ("also-third", 3)):
            attempt = claimed(ledger, document(name)).attempt
            ledger.settle(attempt, converted(attempt, now=after(seconds)))
        assert [each.document_id for each in ledger.recent(limit=3)] == ["also-third", "third", "second"]
        assert list(ledger.recent(limit=0)) == []


def _call(ledger: Ledger, name: str, attempt: Attempt) -> None:
    """Make one of the holder's own calls."""
    now = after(2)
    match name:
        case "renew":
            ledger.renew(attempt, now=now, lease_s=LEASE_S)
        case "check":
            ledger.check(attempt)
        case "record_outcome":
            ledger.record_outcome(attempt, CRASH)
        case "end_attempt":
            ledger.end_attempt(attempt, now=now)
        case _:
            ledger.settle(attempt, converted(attempt))
