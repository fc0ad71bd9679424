"""What becomes of a dead letter: every row of the table, and that no letter escapes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from daemon.model import PERMANENT_CAUSES, Attempt, Cause, Document, Holder, Outcome, ResultStatus, Settled, Stage
from daemon.queue import DeadMessage
from daemon.recover import Discard, Leave, Now, Park, Reclaim, judged, judged_moved, reclaim_delay_s, unreadable
from daemon.recovery import Parked, Standing

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW = Now(at=NOON, build="build 1", max_reclaims=3)
DOC = Document(id="d", uri="s3://b/d.pdf")
LETTER = DeadMessage(
    message_id="m", receipt_handle="r", body="raw", cause=Cause.CRASHED, detail="why", document_id="d", attempts=2
)
CRASH = Outcome(cause=Cause.CRASHED, detail="SIGSEGV on page 3", signal="SIGSEGV", stage=Stage.LAYOUT)
OTHER = Outcome(cause=Cause.MEMORY, detail="2 GB", signal="SIGKILL", stage=Stage.OCR)
PARKED = Parked(key="d", body="", cause=Cause.CRASHED, since=NOON)


def attempt(number: int, *outcomes: Outcome, ended: bool = True, lease_s: float = 0) -> Attempt:
    """One try at the document."""
    return Attempt(
        document_id="d",
        number=number,
        holder=Holder(host="h", boot_id="b", invocation="i", pid=1),
        started_at=NOON,
        lease_until=NOON + timedelta(seconds=lease_s),
        ended_at=NOON if ended else None,
        outcomes=outcomes,
    )


def settled(number: int, status: ResultStatus = ResultStatus.FAILED) -> Settled:
    """How it ended."""
    return Settled(
        document_id="d", status=status, attempt=number, settled_at=NOON, cause=Cause.CRASHED, detail="SIGSEGV"
    )


#: Given up by the attempt that the letter speaks of.
GIVEN_UP = Standing(document=DOC, settled=settled(2), attempts=(attempt(1, OTHER), attempt(2, CRASH)))
OPEN = replace(GIVEN_UP, settled=None)
RECLAIM = Reclaim(document=DOC, key="attempt:2", attempt=2)
AGAIN = Reclaim(document=DOC, key="message:m", attempt=None)


def of_letter(standing: Standing, document: Document | None = DOC, **letter: Any) -> object:
    """The decision about our own letter."""
    return judged(replace(LETTER, **letter), document, standing, body="asks for d", now=NOW)


def of_moved(standing: Standing) -> object:
    """The decision about a message that SQS moved."""
    foreign = replace(LETTER, cause=None, document_id=None, attempts=0)
    return judged_moved(foreign, DOC, standing, body="asks for d", now=NOW)


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (GIVEN_UP, RECLAIM),
        (replace(GIVEN_UP, spent=2), RECLAIM),
        (replace(GIVEN_UP, spent=3), Park),
        (replace(GIVEN_UP, settled=settled(3)), Discard),
        (replace(GIVEN_UP, settled=settled(1)), Discard),
        (replace(GIVEN_UP, settled=settled(2, ResultStatus.CONVERTED)), Discard),
        (replace(GIVEN_UP, parked=PARKED), Discard),
        (replace(GIVEN_UP, parked=replace(PARKED, retrying=True)), Leave),
        (OPEN, Leave),
        (replace(OPEN, reopened_after=1), Leave),
        (replace(OPEN, reopened_after=2), Discard),
        (replace(OPEN, reopened_after=3), Discard),
        (replace(OPEN, reopened_after=2, reclaims={"attempt:2": 1}), RECLAIM),
        (replace(OPEN, reopened_after=3, reclaims={"attempt:2": 1}), Discard),
        (replace(OPEN, reclaims={"message:m": 1}), AGAIN),
        (Standing(), AGAIN),
    ],
)
def test_a_letter_of_ours(standing: Standing, expected: object) -> None:
    """The ledger knows more than the letter, so it decides."""
    found = of_letter(standing)
    assert found == expected or type(found) is expected


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing(), AGAIN),
        (OPEN, AGAIN),
        (replace(OPEN, spent=3), Park),
        (replace(OPEN, spent=3, reclaims={"message:m": 3}), AGAIN),
        (GIVEN_UP, Discard),
        (replace(OPEN, attempts=(attempt(1, ended=False, lease_s=1),)), Leave),
        (replace(OPEN, attempts=(attempt(1, ended=False, lease_s=0),)), AGAIN),
        (replace(OPEN, attempts=(attempt(1, lease_s=1),)), AGAIN),
        (replace(OPEN, parked=PARKED), Discard),
        (replace(OPEN, parked=replace(PARKED, retrying=True)), Leave),
    ],
)
def test_a_moved_message(standing: Standing, expected: object) -> None:
    """Nobody gave it up, so only who works on it and how often it came back count."""
    found = of_moved(standing)
    assert found == expected or type(found) is expected


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.CONVERTED, Cause.SLICED, Cause.MALFORMED_MESSAGE}))
def test_what_no_retry_cures_is_parked_at_once(cause: Cause) -> None:
    """And so is what killed its parents; everything else gets its reclaims."""
    at_once = cause in PERMANENT_CAUSES or cause is Cause.PARENT_DIED
    assert isinstance(of_letter(GIVEN_UP, cause=cause), Park if at_once else Reclaim)


def test_what_is_parked_tells_the_whole_story() -> None:
    """Fingerprint from the failure that gave it up, not from an earlier one; the message that asks for it again."""
    found = of_letter(replace(GIVEN_UP, spent=3))
    assert isinstance(found, Park)
    assert found.parked == Parked(
        key="d",
        document_id="d",
        uri="s3://b/d.pdf",
        body="asks for d",
        cause=Cause.CRASHED,
        signal="SIGSEGV",
        stage=Stage.LAYOUT,
        build="build 1",
        detail="why",
        attempts=2,
        reclaims=3,
        since=NOON,
    )
    assert found.parked.fingerprint == ("crashed", "SIGSEGV", "layout", "build 1")


def test_a_letter_whose_document_nobody_knows() -> None:
    """Neither ledger nor body says what it is: a person must look."""
    found = of_letter(Standing(), document=None)
    assert isinstance(found, Park)
    assert (found.parked.key, found.parked.uri, found.parked.attempts) == ("d", None, 2)


def test_an_unreadable_message_is_parked_as_it_came() -> None:
    """Under its own id, since it has no document."""
    parked = unreadable(LETTER, "no uri", now=NOW).parked
    assert (parked.key, parked.document_id, parked.body) == ("m", None, "raw")
    assert (parked.cause, parked.detail) == (Cause.MALFORMED_MESSAGE, "no uri")


def test_delays_grow_to_what_sqs_allows() -> None:
    """Each is four times the one before, and none is longer than 15 minutes."""
    assert [reclaim_delay_s(number, first_s=60) for number in (1, 2, 3, 4, 10**6)] == [60, 240, 900, 900, 900]
    assert reclaim_delay_s(1, first_s=0) == 0
