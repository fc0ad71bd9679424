"""What a child's frames add up to: nothing is finished before every byte of it is accounted for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import ProtocolError
from daemon.frames import BlobChunk, Chunk, Frame, Opened, PageAccount, PageDone, Result, Sliced
from daemon.model import PageReport, PageState, Plan
from daemon.pack import MAX_BLOB_BYTES
from daemon.report import Report


def opened(pages: int = 2, plan: Plan | None = None) -> Report:
    """A report on a document that was opened."""
    report = Report(plan or Plan(), max_pages=100)
    report.accept(Opened(pages=pages))
    return report


def done(page: int, blob: bytes = b"blob", **other: object) -> PageDone:
    """The account of a page whose blob is `blob`."""
    made = PageDone(account=account(page), size_bytes=len(blob), sha256=hashlib.sha256(blob).hexdigest())
    return made.model_copy(update=other)


def blob(page: int, data: bytes = b"blob") -> BlobChunk:
    """Bytes of a page."""
    return BlobChunk(page=page, data=data)


def account(page: int) -> PageAccount:
    """One page."""
    return PageAccount.of(PageReport(page=page, state=PageState.TEXT, engine="fake"))


def result(pages: Sequence[int] = (1, 2), **contents: bytes) -> Result:
    """An honest result for `contents`."""
    digests = {
        name.replace("_", "."): {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in contents.items()
    }
    pages_json = [account(page).model_dump(mode="json") for page in pages]
    return Result.model_validate_json(json.dumps({"pages": pages_json, "engine": {}, "artefacts": digests}))


def test_a_whole_result() -> None:
    """Chunks, in their order, become the artefacts."""
    report = opened()
    for frame in (
        Chunk(name="document.md", data=b"a"),
        Chunk(name="document.json", data=b"{}"),
        Chunk(name="document.md", data=b"b"),
    ):
        report.accept(frame)
    report.accept(result(document_md=b"ab", document_json=b"{}"))
    assert report.conversion is not None
    assert report.conversion.artefacts == {"document.md": b"ab", "document.json": b"{}"}
    assert [page.page for page in report.conversion.pages] == [1, 2]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (result(document_md=b"other", document_json=b"{}"), "is not the 5 bytes"),
        (result(document_md=b"Text", document_json=b"{}"), "is not the 4 bytes"),
        (result(document_md=b"text"), "the result names"),
        (result(document_md=b"text", document_json=b"{}", preview_webp=b"x"), "the result names"),
        (result((), document_md=b"text", document_json=b"{}"), "are not 1, 2, 3"),
        (result((2, 1), document_md=b"text", document_json=b"{}"), "are not 1, 2, 3"),
        (result((1, 3), document_md=b"text", document_json=b"{}"), "are not 1, 2, 3"),
        (result((1, 2, 3), document_md=b"text", document_json=b"{}"), "3 pages, 2 were announced"),
        (result((1,), document_md=b"text", document_json=b"{}"), "1 pages, 2 were announced"),
    ],
)
def test_a_result_that_does_not_add_up(last: Result, words: str) -> None:
    """Sizes, digests, names and pages are all checked before a result is one."""
    report = opened()
    for frame in (
        Chunk(name="document.md", data=b"text"),
        Chunk(name="document.json", data=b"{}"),
    ):
        report.accept(frame)
    with pytest.raises(ProtocolError, match=words):
        report.accept(last)
    assert report.conversion is None


def test_a_size_that_does_not_fit_its_digest() -> None:
    """The right digest does not excuse a wrong size."""
    report = opened()
    report.accept(Chunk(name="document.md", data=b"text"))
    report.accept(Chunk(name="document.json", data=b"{}"))
    honest = result(document_md=b"text", document_json=b"{}")
    digests = honest.artefacts | {"document.md": honest.artefacts["document.md"].model_copy(update={"size_bytes": 5})}
    with pytest.raises(ProtocolError, match="is not the 5 bytes"):
        report.accept(honest.model_copy(update={"artefacts": digests}))


def test_the_two_main_artefacts_are_never_missing() -> None:
    """A preview alone is no result, however honest its digest."""
    report = opened()
    report.accept(Chunk(name="preview.webp", data=b"x"))
    with pytest.raises(ProtocolError, match="the result names"):
        report.accept(result(preview_webp=b"x"))


def test_a_page() -> None:
    """A page is handed out once its bytes are there and are what they should be."""
    report = opened()
    assert report.accept(blob(2, b"bl")) is None
    assert report.accept(blob(2, b"ob")) is None
    record = report.accept(done(2))
    assert record is not None
    assert (record.page, record.blob, record.report) == (2, b"blob", account(2).report())
    assert (report.done, report.pages) == ({2}, 2)


def test_pages_one_after_the_other() -> None:
    """Each page has its own bytes, in whatever order the pages come."""
    report = opened(3)
    blobs = []
    for frame in (blob(3, b"c"), done(3, b"c"), blob(1, b"a"), done(1, b"a"), done(2, b"")):
        record = report.accept(frame)
        blobs += [(record.page, record.blob)] if record is not None else []
    assert blobs == [(3, b"c"), (1, b"a"), (2, b"")]


def test_an_empty_page() -> None:
    """Whether a page may be empty is the engine's business."""
    record = opened().accept(done(1, b""))
    assert record is not None
    assert record.blob == b""


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([blob(1), done(1, b"other")], "page 1 is not the 5 bytes"),
        ([blob(1), done(1, b"blub")], "page 1 is not the 4 bytes"),
        ([blob(1), done(1, size_bytes=3)], "page 1 is not the 3 bytes"),
        ([done(1)], "page 1 is not the 4 bytes"),
        ([blob(1), done(1), blob(1)], "page 1 is finished twice"),
        ([blob(1), done(1), done(1)], "page 1 is finished twice"),
        ([blob(1), blob(2)], "bytes of page 2 amid those of page 1"),
        ([blob(1), done(2)], "page 2 is finished amid the bytes of page 1"),
        ([blob(3)], "page 3 does not exist: 2 pages"),
        ([done(3)], "page 3 does not exist"),
        ([Opened(pages=3)], "was opened again, and has 3 now"),
        ([Sliced(left=1)], "none was finished"),
        ([blob(1), done(1), Sliced(left=2)], "2 pages are left of 2, and 1 are done"),
    ],
)
def test_pages_that_contradict(frames: Sequence[Frame], words: str) -> None:
    """A page is done once, whole and in one piece; a document does not grow; a share is not empty."""
    report = opened()
    for frame in frames[:-1]:
        report.accept(frame)
    with pytest.raises(ProtocolError, match=words):
        report.accept(frames[-1])


@pytest.mark.parametrize(
    ("plan", "page"),
    [(Plan(skip=frozenset({2})), 2), (Plan(only=1), 2), (Plan(only=2), 1), (Plan(most_pages=1), 2)],
)
def test_pages_that_nobody_asked_for(plan: Plan, page: int) -> None:
    """A child converts its own share and nothing else, whether it sends bytes or only an account."""
    for frame in (blob(page), done(page)):
        report = opened(plan=plan)
        if plan.most_pages == 1:
            report.accept(done(1, b""))
        with pytest.raises(ProtocolError, match=f"page {page} is not this child's"):
            report.accept(frame)


def test_nothing_before_it_was_opened() -> None:
    """A page, a share or a result of a document that nobody counted is none."""
    report = Report(Plan(), max_pages=100)
    report.accept(Chunk(name="document.md", data=b"text"))
    report.accept(Chunk(name="document.json", data=b"{}"))
    for frame in (blob(1), done(1), Sliced(left=1), result((1,), document_md=b"text", document_json=b"{}")):
        with pytest.raises(ProtocolError):
            report.accept(frame)
    report.accept(Opened(pages=1))
    report.accept(result((1,), document_md=b"text", document_json=b"{}"))
    assert report.conversion is not None


def test_more_pages_than_are_allowed() -> None:
    """What a child counts is bounded, because the parent counts on."""
    with pytest.raises(ProtocolError, match="101 pages were announced, 100 are allowed"):
        opened(101)


def test_a_page_without_end() -> None:
    """The parent keeps no more of one page than a blob may have."""
    report = opened()
    chunk = blob(1, bytes(2**20))
    for _ in range(MAX_BLOB_BYTES // 2**20):
        report.accept(chunk)
    with pytest.raises(ProtocolError, match=f"page 1 has more than {MAX_BLOB_BYTES} bytes"):
        report.accept(blob(1, b"x"))


def test_a_share() -> None:
    """A share says what is left; restored pages, which the parent does not count, make it less."""
    report = opened(5)
    report.accept(done(1, b""))
    report.accept(Sliced(left=2))
    assert report.left == 2
    assert report.conversion is None


FRAME = st.one_of(
    st.builds(Opened, pages=st.integers(1, 4)),
    st.builds(blob, st.integers(1, 4), st.binary(min_size=1, max_size=2)),
    st.builds(done, st.integers(1, 4), st.binary(max_size=2)),
    st.builds(Sliced, left=st.integers(1, 3)),
)


@given(st.lists(FRAME, max_size=12), st.frozensets(st.integers(1, 4)))
def test_whatever_comes(frames: Sequence[Frame], skip: frozenset[int]) -> None:
    """No order of frames finishes a page twice, unasked or with other bytes than accounted for."""
    report = Report(Plan(skip=skip), max_pages=100)
    finished: list[int] = []
    for frame in frames:
        try:
            record = report.accept(frame)
        except ProtocolError:
            break
        if record is not None:
            assert isinstance(frame, PageDone)
            assert hashlib.sha256(record.blob).hexdigest() == frame.sha256
            finished.append(record.page)
    assert len(finished) == len(set(finished))
    assert not skip & set(finished)
