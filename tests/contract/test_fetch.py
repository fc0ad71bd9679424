"""What comes is bounded and judged, wherever it comes from; file:// reads below its roots and nowhere else."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from daemon.clock import SystemClock
from daemon.errors import DocumentError, WorldError
from daemon.fetch import sniff
from daemon.model import Cause, MediaType
from daemon.spool import Budget, Spool
from tests.contract.fetching import cause_of, content, fetcher
from tests.fakes.web import NET_S, PDF


@pytest.mark.parametrize(
    ("first", "media_type"),
    [
        (b"%PDF-1.4", MediaType.PDF),
        (b"\r\n" * 400 + b"%PDF-1.4", MediaType.PDF),
        (b"x" * 1020 + b"%PDF-", None),
        (b"\x89PNG\r\n\x1a\n", MediaType.PNG),
        (b"\xff\xd8\xff\xe0", MediaType.JPEG),
        (b"II*\x00", MediaType.TIFF),
        (b"MM\x00*", MediaType.TIFF),
        (b"II+\x00", MediaType.TIFF),
        (b"MM\x00+", MediaType.TIFF),
        (b"PK\x03\x04", None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_a_type_is_told_by_its_first_bytes(first: bytes, media_type: MediaType | None) -> None:
    """Names and headers are what a sender believes."""
    assert sniff(first) is media_type


class TestSpool:
    """What becomes of bytes, wherever they come from."""

    @pytest.fixture
    def spool(self, tmp_path: Path) -> Spool:
        """Takes 100,000 bytes."""
        clock = SystemClock()
        budget = Budget(deadline=clock.monotonic() + NET_S, timeout_s=NET_S, clock=clock, cancelled=threading.Event())
        return Spool(tmp_path, max_bytes=100_000, budget=budget)

    def test_what_is_handed_over_cannot_be_changed(self, spool: Spool, tmp_path: Path) -> None:
        """A hostile child gets a descriptor that only reads, of a file that has no name."""
        with spool:
            spool.write(PDF)
            fetched = spool.finish()
        with fetched.file as file:
            assert file.tell() == 0
            assert file.read() == PDF
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(file.fileno(), b"x")
        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk_is_the_worlds(self, spool: Spool) -> None:
        """The document is well; room is what is missing."""
        spool._file.close()
        spool._file = Path("/dev/full").open("r+b", buffering=0)  # type: ignore[assignment]  # noqa: SIM115 - as the spool's
        with pytest.raises(WorldError, match=os.strerror(errno.ENOSPC)) as caught, spool:
            spool.write(PDF)
        assert caught.value.cause is Cause.DISK_FULL

    def test_no_descriptor_is_left_after_a_failure(self, spool: Spool) -> None:
        """A thousand bad documents must not use the process's descriptors up."""
        before = len(list(Path("/proc/self/fd").iterdir()))
        spool.write(b"no document")
        with pytest.raises(DocumentError), spool:
            spool.finish()
        assert len(list(Path("/proc/self/fd").iterdir())) == before - 1  # the spool's own is closed


class TestFile:
    """file://."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """The only folder that is allowed, with one document; a secret beside it."""
        root = tmp_path / "root"
        root.mkdir()
        (root / "a b%.pdf").write_bytes(PDF)
        (tmp_path / "secret.pdf").write_bytes(PDF)
        (tmp_path / "root-2").mkdir()
        (tmp_path / "root-2" / "a.pdf").write_bytes(PDF)
        return root

    def test_a_file_below_a_root_is_read(self, tmp_path: Path, root: Path) -> None:
        """Percent-decoded once; `localhost` is nobody else."""
        source = fetcher(tmp_path / "scratch", file_roots=(root,))
        assert content(source, f"file://{root}/a%20b%25.pdf") == PDF
        assert content(source, f"file://localhost{root}/a%20b%25.pdf") == PDF

    def test_no_root_allows_nothing(self, tmp_path: Path, root: Path) -> None:
        """The default."""
        assert cause_of(fetcher(tmp_path), f"file://{root}/a%20b%25.pdf")[0] is Cause.SOURCE_REFUSED

    @pytest.mark.parametrize(
        "path",
        ["/../secret.pdf", "/%2e%2e/secret.pdf", "-2/a.pdf", "/link.pdf", "/folder/secret.pdf", "/../missing.pdf"],
    )
    def test_nothing_outside_is_read_nor_told_apart(self, tmp_path: Path, root: Path, path: str) -> None:
        """Neither by dots nor by links, and a missing file outside looks like one that is there."""
        (root / "link.pdf").symlink_to(tmp_path / "secret.pdf")
        (root / "folder").symlink_to(tmp_path)
        source = fetcher(tmp_path / "scratch", file_roots=(root,))
        assert cause_of(source, f"file://{root}{path}")[0] is Cause.SOURCE_REFUSED

    def test_a_link_within_the_root_is_followed(self, tmp_path: Path, root: Path) -> None:
        """Only where it ends counts."""
        (root / "link.pdf").symlink_to(root / "a b%.pdf")
        assert content(fetcher(tmp_path / "scratch", file_roots=(root,)), f"file://{root}/link.pdf") == PDF

    def test_what_is_no_regular_file_is_refused(self, tmp_path: Path, root: Path) -> None:
        """A FIFO would hang the slot, a device would never end."""
        os.mkfifo(root / "fifo")
        source = fetcher(tmp_path / "scratch", file_roots=(root, Path("/dev")))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for uri in (f"file://{root}/fifo", f"file://{root}", "file:///dev/zero"):
            assert cause_of(source, uri)[0] is Cause.SOURCE_REFUSED
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_a_missing_file_is_permanent(self, tmp_path: Path, root: Path) -> None:
        """Like 404."""
        source = fetcher(tmp_path / "scratch", file_roots=(root,))
        assert cause_of(source, f"file://{root}/gone.pdf")[0] is Cause.SOURCE_MISSING
        assert cause_of(source, f"file://{root}/a%20b%25.pdf/x")[0] is Cause.SOURCE_MISSING

    @pytest.mark.parametrize("uri", ["file://server/share/a.pdf", "file:///a%00b", "file://"])
    def test_what_names_no_file_here_is_refused(self, tmp_path: Path, uri: str) -> None:
        """Other hosts, NUL bytes, nothing at all."""
        assert cause_of(fetcher(tmp_path, file_roots=(Path("/"),)), uri)[0] is Cause.SOURCE_REFUSED

    def test_a_file_beyond_the_limit_is_refused(self, tmp_path: Path, root: Path) -> None:
        """By its size, before it is read."""
        with (root / "large.pdf").open("wb") as large:
            large.truncate(10**10)
        source = fetcher(tmp_path / "scratch", file_roots=(root,))
        assert cause_of(source, f"file://{root}/large.pdf")[0] is Cause.TOO_LARGE
