"""Frames survive any cutting, and nothing that a child can send raises anything but ProtocolError."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from daemon.errors import ProtocolError
from daemon.frames import (
    CHUNK_BYTES,
    CLAIMABLE_CAUSES,
    BlobChunk,
    Chunk,
    Failure,
    Frame,
    Hello,
    Job,
    Kind,
    LogLine,
    Opened,
    PageAccount,
    PageDone,
    Result,
    Sliced,
    StageStarted,
    WorkPlan,
    clean,
)
from daemon.model import ARTEFACTS, Cause, MediaType, PageMode, PageState, Plan, Stage
from daemon.wire import HEADER, MAX_FRAME_BYTES, VERSION, Decoder, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
COUNT = st.integers(1, 5000)
PAGE = st.none() | COUNT
ACCOUNT = st.builds(
    PageAccount,
    page=COUNT,
    state=st.sampled_from(PageState),
    engine=TEXT,
    reason=TEXT,
    elapsed_s=st.floats(0, 1e6, allow_nan=False),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MANIFEST = st.dictionaries(TEXT, JSON, max_size=3)
DIGEST = st.fixed_dictionaries({"size_bytes": st.integers(0, 2**40), "sha256": st.just("0" * 64)})
PLAN = st.builds(
    Plan,
    default=st.sampled_from(PageMode),
    modes=st.dictionaries(COUNT, st.sampled_from(PageMode), max_size=3),
    skip=st.frozensets(COUNT, max_size=3),
    only=PAGE,
    most_pages=COUNT,
    preview=st.booleans(),
)
FRAME: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, pid=COUNT, engine=st.none() | MANIFEST),
    st.builds(StageStarted, stage=st.sampled_from(Stage), page=PAGE),
    st.builds(Opened, pages=COUNT),
    st.builds(BlobChunk, page=st.integers(1, 2**32 - 1), data=st.binary(min_size=1, max_size=200)),
    st.builds(PageDone, account=ACCOUNT, size_bytes=st.integers(0, 2**40), sha256=st.just("f" * 64)),
    st.builds(Sliced, left=COUNT),
    st.builds(
        LogLine,
        level=st.sampled_from(["debug", "info", "warning", "error"]),
        event=TEXT,
        fields=st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT, max_size=5),
    ),
    st.builds(Chunk, name=st.sampled_from(ARTEFACTS), data=st.binary(min_size=1, max_size=200)),
    st.builds(
        Failure, cause=st.sampled_from(sorted(CLAIMABLE_CAUSES)), detail=TEXT, stage=st.sampled_from(Stage), page=PAGE
    ),
    st.builds(
        Result,
        pages=st.lists(ACCOUNT, max_size=3).map(tuple),
        engine=MANIFEST,
        artefacts=st.dictionaries(st.sampled_from(ARTEFACTS), DIGEST),
        warnings=st.lists(TEXT, max_size=3).map(tuple),
    ),
    st.builds(
        Job,
        document_id=TEXT,
        attempt=COUNT,
        child=COUNT,
        plan=PLAN.map(WorkPlan.of),
        media_type=st.sampled_from(MediaType),
        scratch=TEXT,
        max_output_bytes=st.integers(0, 2**40),
        failpoints=TEXT,
    ),
)


def decoder(max_total_bytes: int = 2**30) -> Decoder:
    """A decoder with room."""
    return Decoder(max_total_bytes=max_total_bytes)


@given(st.lists(FRAME, max_size=5), st.lists(st.integers(0, 4000), max_size=12))
def test_any_cutting(sent: Sequence[Frame], cuts: Sequence[int]) -> None:
    """What was encoded comes out the same, wherever the bytes are cut."""
    data = b"".join(encode(frame) for frame in sent)
    taken = decoder()
    received: list[Frame] = []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        received += taken.feed(data[start:end])
    taken.finish()
    assert received == sent


@given(st.binary(max_size=300))
def test_garbage(data: bytes) -> None:
    """Bytes without meaning end in ProtocolError, or are still awaiting their rest."""
    taken = decoder()
    try:
        for _ in taken.feed(data):
            pass
        taken.finish()
    except ProtocolError:
        pass


@given(st.sampled_from(Kind), st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_right_header_wrong_payload(kind: Kind, payload: bytes) -> None:
    """A payload that its model does not know ends in ProtocolError, however it is built."""
    try:
        frames = list(decoder().feed(HEADER.pack(VERSION, kind, len(payload)) + payload))
    except ProtocolError:
        return
    assert len(frames) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00", "starts with byte 0x00"),
        (HEADER.pack(VERSION, 99, 0), "no kind of frame has number 99"),
        (HEADER.pack(VERSION, Kind.STAGE, 2**20), "announces 1048576 bytes"),
        (HEADER.pack(VERSION, Kind.OPENED, 2**20), "announces"),
        (HEADER.pack(VERSION, Kind.SLICED, 2**20), "announces"),
        (HEADER.pack(VERSION, Kind.BLOB, MAX_FRAME_BYTES + 1), "announces"),
        (HEADER.pack(VERSION, Kind.ARTEFACT, MAX_FRAME_BYTES + 1), "announces"),
        (HEADER.pack(VERSION, Kind.ARTEFACT, 1) + b"\x00", "names nothing"),
        (HEADER.pack(VERSION, Kind.ARTEFACT, 2) + b"\x09a", "names nothing"),
        (HEADER.pack(VERSION, Kind.BLOB, 4) + bytes(3) + b"\x01", "names no page"),
        (HEADER.pack(VERSION, Kind.BLOB, 5) + bytes(5), "names no page"),
        (HEADER.pack(VERSION, Kind.BLOB, CHUNK_BYTES + 5) + b"a" * (CHUNK_BYTES + 5), "too long"),
        (HEADER.pack(VERSION, Kind.OPENED, 11) + b'{"pages":0}', "pages"),
        (HEADER.pack(VERSION, Kind.SLICED, 10) + b'{"left":0}', "left"),
        (HEADER.pack(VERSION, Kind.STAGE, 2) + b"{}", "stage: Field required"),
        (HEADER.pack(VERSION, Kind.HELLO, 40) + b"[" * 40, "not as agreed"),
        (HEADER.pack(VERSION, Kind.LOG, 30_000) + b"[" * 30_000, "not as agreed"),
        (HEADER.pack(VERSION, Kind.STAGE, 36) + b'{"stage":"ocr","page":null,"more":1}', "more: Extra inputs"),
        (HEADER.pack(VERSION, Kind.STAGE, 26) + b'{"stage":"ocr","page":"1"}', "page"),
        (HEADER.pack(VERSION, Kind.FAILURE, 36) + b'{"cause":"zygote_died","detail":"x"}'.ljust(36), "may not claim"),
        (HEADER.pack(VERSION, Kind.HELLO, 28) + b'{"pid":1,"engine":{"a":NaN}}', "not as agreed"),
    ],
)
def test_refused(data: bytes, words: str) -> None:
    """Each breach is named."""
    with pytest.raises(ProtocolError, match=words):
        list(decoder().feed(data))


def test_frames_before_the_fault_are_kept() -> None:
    """Where the child was when it broke the rules is worth knowing."""
    frame = StageStarted(stage=Stage.OCR, page=7)
    frames = decoder().feed(encode(frame) + b"garbage")
    assert next(frames) == frame
    with pytest.raises(ProtocolError):
        next(frames)


def test_announced_size_is_refused_before_it_is_kept() -> None:
    """A child cannot make its parent hold more than one frame."""
    with pytest.raises(ProtocolError):
        list(decoder().feed(HEADER.pack(VERSION, Kind.ARTEFACT, 2**32 - 1)))


def test_more_than_all_may_be() -> None:
    """The sum of the frames is bounded."""
    chunk = encode(Chunk(name="document.md", data=bytes(1000)))
    taken = Decoder(max_total_bytes=2500)
    assert len(list(taken.feed(chunk)) + list(taken.feed(chunk))) == 2
    with pytest.raises(ProtocolError, match="more than 2500 bytes"):
        list(taken.feed(chunk))


def test_more_frames_than_may_be() -> None:
    """Tiny frames are bounded by number: each costs more time than bytes."""
    frame = encode(StageStarted(stage=Stage.OCR))
    taken = Decoder(max_total_bytes=2**30, max_frames=3)
    with pytest.raises(ProtocolError, match="more than 3 frames"):
        list(taken.feed(frame * 4))


def test_half_a_frame() -> None:
    """An end inside a frame is told from an end between two, in the header and in the payload."""
    frame = encode(StageStarted(stage=Stage.OCR))
    for cut in range(1, len(frame)):
        taken = decoder()
        assert list(taken.feed(frame[:cut])) == []
        with pytest.raises(ProtocolError, match="into a frame"):
            taken.finish()


@given(st.text(max_size=30), st.integers(1, 20))
def test_clean_text_can_be_sent(text: str, limit: int) -> None:
    """Whatever an exception says fits into a frame: bounded, and sound UTF-8."""
    cleaned = clean(text, limit)
    assert len(cleaned) <= limit
    cleaned.encode("utf-8")


def test_a_bug_is_not_sent() -> None:
    """A chunk that was not cut is our own mistake, and asserted."""
    for uncut in (
        Chunk(name="document.md", data=bytes(CHUNK_BYTES + 1)),
        BlobChunk(page=1, data=bytes(CHUNK_BYTES + 1)),
        BlobChunk(page=1, data=b""),
    ):
        with pytest.raises(AssertionError):
            encode(uncut)


@given(PLAN)
def test_a_plan_travels_whole(plan: Plan) -> None:
    """What a child is to do is what the parent meant, to the page."""
    assert WorkPlan.model_validate_json(WorkPlan.of(plan).model_dump_json()).plan() == plan


@pytest.mark.parametrize("key", ["0", "01", "+1", " 1", "1.0", "1_0", "-1", "", "one", "9" * 10, "\u0661"])
def test_a_page_has_one_spelling(key: str) -> None:
    """Keys of JSON are texts; nothing but a page's own digits is a page."""
    spelled = WorkPlan.of(Plan(modes={1: PageMode.GAP})).model_dump(mode="json") | {"modes": {key: "gap"}}
    with pytest.raises(ValidationError):
        WorkPlan.model_validate_json(json.dumps(spelled))


def test_claims_of_others_are_refused_on_our_side_too() -> None:
    """A child cannot even build a failure with the parent's causes."""
    with pytest.raises(ValidationError):
        Failure(cause=Cause.DRAINED, detail="")
