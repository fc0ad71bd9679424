"""Finished pages are found again by whoever may use them, and by nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.checkpoints import Checkpoints, DirectoryCheckpoints, fingerprint, sealed, unsealed
from daemon.checkpoints_s3 import open_checkpoints
from daemon.config import StoreSettings
from daemon.errors import WorldError
from daemon.model import Document, Options, PageRecord, PageReport, PageState
from tests.aws import REGION
from tests.fakes.checkpoints import MemoryCheckpoints

PRINT, OTHER = "a" * 64, "b" * 64


def record(page: int, blob: bytes = b"blob") -> PageRecord:
    """One finished page."""
    return PageRecord(page=page, report=PageReport(page=page, state=PageState.TEXT, engine="fake"), blob=blob)


class CheckpointContract:
    """What holds for every implementation."""

    def test_nothing_kept(self, checkpoints: Checkpoints) -> None:
        """A document that was never seen has no pages, and dropping it is harmless."""
        assert dict(checkpoints.each("d", PRINT)) == {}
        checkpoints.drop("d")

    def test_pages_come_back_in_order(self, checkpoints: Checkpoints) -> None:
        """Ten comes after two, whatever order they were finished in; the bytes are what they were."""
        for page in (10, 2, 1):
            checkpoints.put("d", PRINT, record(page, bytes([page]) * 3))
        assert list(checkpoints.each("d", PRINT)) == [(1, b"\1\1\1"), (2, b"\2\2\2"), (10, b"\n\n\n")]

    def test_the_same_page_again(self, checkpoints: Checkpoints) -> None:
        """The newer one stands."""
        checkpoints.put("d", PRINT, record(1, b"old"))
        checkpoints.put("d", PRINT, record(1, b"new"))
        assert dict(checkpoints.each("d", PRINT)) == {1: b"new"}

    def test_another_fingerprint_never_resumes(self, checkpoints: Checkpoints) -> None:
        """New bytes, options or engine begin at page 1."""
        checkpoints.put("d", PRINT, record(1))
        assert dict(checkpoints.each("d", OTHER)) == {}
        assert dict(checkpoints.each("e", PRINT)) == {}

    def test_dropped_with_all_fingerprints(self, checkpoints: Checkpoints) -> None:
        """A settled document leaves nothing, and its neighbour everything."""
        checkpoints.put("d", PRINT, record(1))
        checkpoints.put("d", OTHER, record(1))
        checkpoints.put("d2", PRINT, record(1))
        checkpoints.drop("d")
        assert dict(checkpoints.each("d", PRINT)) == dict(checkpoints.each("d", OTHER)) == {}
        assert dict(checkpoints.each("d2", PRINT)) == {1: b"blob"}

    def test_documents_are_listed_until_they_are_dropped(self, checkpoints: Checkpoints) -> None:
        """A sweep finds what a dead parent left behind a settled document."""
        assert list(checkpoints.documents()) == []
        for document_id in ("b", "a"):
            checkpoints.put(document_id, PRINT, record(1))
            checkpoints.put(document_id, OTHER, record(1))
        assert list(checkpoints.documents()) == ["a", "b"]
        assert [checkpoints.holds(document_id) for document_id in ("a", "b", "c")] == [True, True, False]
        checkpoints.drop("a")
        assert list(checkpoints.documents()) == ["b"]
        assert not checkpoints.holds("a")

    def test_an_empty_blob(self, checkpoints: Checkpoints) -> None:
        """A page without content is a page."""
        checkpoints.put("d", PRINT, record(1, b""))
        assert dict(checkpoints.each("d", PRINT)) == {1: b""}


class TestMemoryCheckpoints(CheckpointContract):
    """The fake."""

    @pytest.fixture
    def checkpoints(self) -> MemoryCheckpoints:
        """Empty."""
        return MemoryCheckpoints()


class TestDirectoryCheckpoints(CheckpointContract):
    """On a disk."""

    @pytest.fixture
    def checkpoints(self, tmp_path: Path) -> DirectoryCheckpoints:
        """Empty; its folder does not exist yet."""
        return DirectoryCheckpoints(tmp_path / "checkpoints")

    @pytest.mark.parametrize(
        "damage", [lambda content: content[:-1], lambda _: b"", lambda content: content[:40] + b"X"]
    )
    def test_a_damaged_page_is_not_there(self, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
        """A torn or changed file means that its page is converted again; the others stand."""
        checkpoints = DirectoryCheckpoints(tmp_path)
        for page in (1, 2):
            checkpoints.put("d", PRINT, record(page, b"a blob of some length"))
        path = tmp_path / "d" / f"{PRINT}-1.page"
        path.write_bytes(damage(path.read_bytes()))
        assert dict(checkpoints.each("d", PRINT)) == {2: b"a blob of some length"}

    def test_half_a_write_is_not_there(self, tmp_path: Path) -> None:
        """What a killed parent left half-written has another name."""
        checkpoints = DirectoryCheckpoints(tmp_path)
        checkpoints.put("d", PRINT, record(1))
        (tmp_path / "d" / f"{PRINT}-2.part").write_bytes(sealed(b"blob"))
        assert dict(checkpoints.each("d", PRINT)) == {1: b"blob"}

    def test_no_room(self, tmp_path: Path) -> None:
        """A disk that takes nothing is the world's problem, and says which page."""
        (tmp_path / "d").write_text("in the way")
        with pytest.raises(WorldError, match="page 7 of d"):
            DirectoryCheckpoints(tmp_path).put("d", PRINT, record(7))


@pytest.mark.aws
class TestS3Checkpoints(CheckpointContract):
    """In a bucket, over real HTTP."""

    @pytest.fixture
    def checkpoints(self, moto_endpoint: str, tmp_path: Path) -> Checkpoints:
        """Empty, below a prefix."""
        client = boto3.client("s3", endpoint_url=moto_endpoint, region_name=REGION)
        client.create_bucket(Bucket="kept", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        settings = StoreSettings(checkpoints_url="s3://kept/some/prefix", endpoint_url=moto_endpoint, region=REGION)
        return open_checkpoints(settings, state_dir=tmp_path)

    def test_a_missing_bucket(self, moto_endpoint: str, tmp_path: Path) -> None:
        """The world's problem: the conversion goes on without."""
        settings = StoreSettings(checkpoints_url="s3://gone/x", endpoint_url=moto_endpoint, region=REGION)
        with pytest.raises(WorldError, match="cannot keep page 1"):
            open_checkpoints(settings, state_dir=tmp_path).put("d", PRINT, record(1))


@given(st.binary(max_size=200))
def test_a_seal_opens_to_what_was_sealed(blob: bytes) -> None:
    """And to nothing else: one byte more or less breaks it."""
    assert unsealed(sealed(blob)) == blob
    assert unsealed(sealed(blob) + b"x") is None
    assert unsealed(sealed(blob)[:-1]) is None


def test_what_decides_a_fingerprint() -> None:
    """The bytes, the options and the engine; not the id, not the URI."""
    document = Document(id="d", uri="s3://b/k")
    before = fingerprint(document, sha256="1", engine={"docling": "1"})
    assert before == fingerprint(Document(id="e", uri="s3://b/other"), sha256="1", engine={"docling": "1"})
    assert before != fingerprint(document, sha256="2", engine={"docling": "1"})
    assert before != fingerprint(document, sha256="1", engine={"docling": "2"})
    no_ocr = Document(id="d", uri="s3://b/k", options=Options(ocr=False))
    assert before != fingerprint(no_ocr, sha256="1", engine={"docling": "1"})
