"""Notices: what they say, and what they never say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.model import Cause, Document, Options, ResultStatus, Settled
from daemon.notice import NoticeState, of_parked, of_settled

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DOCUMENT = Document(id="report-1", uri="s3://in/report 1.pdf", version_id="v1", etag="e1", options=Options())
SETTLED = Settled(
    document_id="report-1",
    status=ResultStatus.PARTIAL,
    attempt=3,
    settled_at=AT,
    cause=Cause.CONVERTED,
    detail="page 7 says: the merger is off",
    manifest="s3://out/report-1/manifest.json",
    pages=9,
    pages_by_state={"text": 8, "failed": 1},
)


def test_a_settled_document() -> None:
    """Every field of schema 1; one that goes away or changes its meaning needs another number."""
    assert json.loads(of_settled(DOCUMENT, SETTLED).body) == {
        "schema": 1,
        "type": "bulkhead.notice",
        "document_id": "report-1",
        "sequence": 6,
        "state": "partial",
        "cause": "converted",
        "at": "2026-03-01T12:00:00+00:00",
        "uri": "s3://in/report 1.pdf",
        "version_id": "v1",
        "etag": "e1",
        "manifest": "s3://out/report-1/manifest.json",
        "pages": 9,
        "pages_by_state": {"text": 8, "failed": 1},
        "attempts": 3,
    }


def test_a_parked_document() -> None:
    """The same fields, without a result."""
    settled, parked = of_settled(DOCUMENT, SETTLED), of_parked(DOCUMENT, attempts=3, cause=Cause.CRASHED, at=AT)
    told = json.loads(parked.body)
    assert told.keys() == json.loads(settled.body).keys()
    assert (told["state"], told["cause"], told["manifest"], told["sequence"]) == ("parked", "crashed", None, 7)
    assert parked.state is NoticeState.PARKED


@pytest.mark.parametrize("status", ResultStatus)
def test_every_end_has_a_state(status: ResultStatus) -> None:
    """A new status without a word for it must not be found out in production."""
    assert str(of_settled(DOCUMENT, replace(SETTLED, status=status)).state) == str(status)


def test_no_content_and_no_credential() -> None:
    """Details can hold words of a document, a signed URL opens it: neither leaves."""
    signed = replace(DOCUMENT, uri="https://b.example/report.pdf?X-Amz-Credential=c&X-Amz-Signature=abcdef0123456789")
    body = of_settled(signed, SETTLED).body
    assert "merger" not in body
    assert "abcdef0123456789" not in body
    assert "b.example/report.pdf" in body


@given(st.lists(st.sampled_from(["settled", "parked"]), min_size=1, max_size=20), st.text(min_size=1, max_size=300))
def test_sequence_numbers_grow(states: list[str], uri: str) -> None:
    """Each attempt settles at most once and is parked at most once after that; each copy of a state is the same."""
    document = replace(DOCUMENT, uri=uri)
    told = []
    for attempt, state in enumerate(states, start=1):
        told.append(of_settled(document, replace(SETTLED, attempt=attempt)))
        if state == "parked":
            told.append(of_parked(document, attempts=attempt, cause=Cause.CRASHED, at=AT))
            assert told[-1] == of_parked(document, attempts=attempt, cause=Cause.CRASHED, at=AT)
    sequences = [notice.sequence for notice in told]
    assert sequences == sorted(set(sequences))
    assert len({notice.key for notice in told}) == len(told)
    assert all(notice.body.isascii() for notice in told)
    assert all(len(notice.body) < 64 * 1024 for notice in told), "SQS's smallest limit is 256 KiB"
