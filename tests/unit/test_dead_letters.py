"""Whatever is given up fits the dead-letter queue, and its body stays what it was as long as that is possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.dead_letters import MAX_DETAIL_BYTES, parcel, sendable, shortened
from daemon.model import Cause
from daemon.queue import DeadLetter


def letter(body: str = "s3://bucket/a", detail: str = "SIGSEGV on page 3") -> DeadLetter:
    """A document that was given up."""
    return DeadLetter(body=body, cause=Cause.CRASHED, detail=detail, document_id="a-1", attempts=2)


def test_an_ordinary_letter_is_whole() -> None:
    """Body as it came, cause and history as attributes."""
    packed = parcel(letter(), host="h", max_bytes=262_144)
    assert packed.body == "s3://bucket/a"
    assert {name: value for name, (_, value) in packed.attributes.items()} == {
        "cause": "crashed",
        "detail": "SIGSEGV on page 3",
        "document_id": "a-1",
        "attempts": "2",
        "host": "h",
    }


def test_the_detail_is_cut_before_the_body() -> None:
    """A redrive needs the body; a person can do with less of the detail."""
    packed = parcel(letter("b" * 900, "é" * 9000), host="h", max_bytes=2000)
    assert packed.body == "b" * 900
    assert packed.attributes["detail"][1].endswith("é…")
    assert 1990 <= packed.size_bytes <= 2000


def test_a_body_that_fits_nowhere_is_cut_and_says_so() -> None:
    """A message beyond the dead-letter queue's limit must still end there, not come back for ever."""
    packed = parcel(letter("b" * 5000), host="h", max_bytes=1024)
    assert packed.body.startswith("bbb")
    assert packed.attributes["body_bytes"] == ("Number", "5000")
    assert packed.size_bytes <= 1024


def test_an_empty_message_can_be_given_up() -> None:
    """SQS refuses a message without a body and attributes without a value."""
    packed = parcel(DeadLetter(body="", cause=Cause.MALFORMED_MESSAGE, detail=""), host="", max_bytes=2048)
    assert packed.body
    assert all(value for _, value in packed.attributes.values())


texts = st.text(alphabet=st.characters(exclude_categories=()))


@given(body=texts, detail=texts, host=texts, repeat=st.sampled_from([1, 50, 2000]), max_bytes=st.integers(1024, 70_000))
def test_every_letter_fits_and_can_be_sent(body: str, detail: str, host: str, repeat: int, max_bytes: int) -> None:
    """For every text and limit: within the limit, only characters that SQS takes."""
    packed = parcel(letter(body * repeat, detail * repeat), host=host, max_bytes=max_bytes)
    assert packed.size_bytes <= max_bytes
    for text in (packed.body, *(value for _, value in packed.attributes.values())):
        assert text == sendable(text)
    assert len(packed.attributes.get("detail", ("", ""))[1].encode()) <= MAX_DETAIL_BYTES


@given(text=st.text(), max_bytes=st.integers(0, 40))
def test_shortening_never_cuts_a_character(text: str, max_bytes: int) -> None:
    """What is left is a prefix, in whole characters."""
    short = shortened(text, max_bytes)
    assert len(short.encode()) <= max_bytes or short == text
    assert text.startswith(short.removesuffix("…"))
