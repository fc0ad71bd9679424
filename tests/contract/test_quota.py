"""What may lie here before its turn is bounded, whatever a sender says or leaves out, and leaves the disk its room."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from daemon.config import FetchSettings, Settings
from daemon.errors import DocumentError
from daemon.quota import BeyondQuotaError, Quota
from daemon.wiring import quota_of
from tests.contract.fetching import at, fetcher
from tests.fakes.web import NET_S, PDF, Answer, web

#: More than any disk.
EVERYTHING = 1 << 62


def chunks(answer: Answer, number: int) -> None:
    """Begin a PDF of so many kilobytes, whose length is not told."""
    answer.head(200, Connection="close")
    answer.wfile.write(PDF.ljust(1_000))
    for _ in range(number - 1):
        answer.wfile.write(b" " * 1_000)


class TestQuota:
    """All parts together."""

    def test_parts_share_it(self) -> None:
        """What one has, another cannot get before it is given back; once, however often that is said."""
        quota = Quota(10)
        one, other = quota.part(), quota.part()
        one.reach(6)
        one.reach(4)  # it has 6, which is enough
        assert quota.used_bytes == 6
        with pytest.raises(BeyondQuotaError):
            other.reach(5)
        assert quota.used_bytes == 6, "who was refused has nothing"
        other.reach(4)
        for _ in range(2):
            one.end()
        assert quota.used_bytes == 4
        other.reach(10)
        other.end()
        assert quota.used_bytes == 0

    def test_nothing_is_counted_after_its_end(self) -> None:
        """From then on the bytes are an attempt's, as many as there are."""
        quota = Quota(10)
        part = quota.part()
        part.reach(10)
        part.end()
        part.reach(1_000)
        assert quota.used_bytes == 0

    def test_the_disk_keeps_its_room(self, tmp_path: Path) -> None:
        """However small the document is: what converts comes first."""
        with pytest.raises(BeyondQuotaError, match="bytes free"):
            Quota(10, folder=tmp_path, keep_free_bytes=EVERYTHING).part().reach(1)
        disk = os.statvfs(tmp_path)
        half = disk.f_bavail * disk.f_frsize // 2
        quota = Quota(EVERYTHING, folder=tmp_path, keep_free_bytes=half)
        quota.part().reach(half // 2)
        with pytest.raises(BeyondQuotaError, match="bytes free"):
            quota.part().reach(half * 2)

    def test_each_worker_has_its_room(self, tmp_path: Path) -> None:
        """A whole fetch and a full scratch folder for each: with as many workers as would fill the disk, nothing."""
        settings = Settings(state_dir=tmp_path)
        worker_bytes = settings.fetch.max_bytes + settings.child.max_scratch_bytes
        disk = os.statvfs(tmp_path)
        too_many = disk.f_bavail * disk.f_frsize // worker_bytes + 1
        with pytest.raises(BeyondQuotaError, match=str(too_many * worker_bytes)):
            quota_of(settings, workers=too_many).part().reach(1)
        none_ahead = Settings(state_dir=tmp_path, fetch=FetchSettings(ahead_bytes=0))
        assert quota_of(none_ahead, workers=1).most_bytes == 0


class TestFetch:
    """A real fetch, ahead of its turn."""

    def test_within_it(self, tmp_path: Path) -> None:
        """As much is counted as there is, until it ends."""
        quota = Quota(1_000, folder=tmp_path)
        part = quota.part()
        with web(lambda answer: answer.whole(PDF)) as server:
            fetched = fetcher(tmp_path).fetch(at(server.url()), part=part)
        with fetched.file as file:
            assert file.read() == PDF
        assert quota.used_bytes == len(PDF)
        part.end()

    def test_a_length_beyond_it_is_refused_early(self, tmp_path: Path) -> None:
        """Not a byte of the body is waited for."""
        over = threading.Event()

        def answer(request: Answer) -> None:
            request.head(200, Content_Length="2000")
            assert over.wait(NET_S)

        quota = Quota(1_000, folder=tmp_path)
        with web(answer) as server:
            with pytest.raises(BeyondQuotaError):
                fetcher(tmp_path).fetch(at(server.url()), part=quota.part())
            over.set()
        assert quota.used_bytes == 0

    def test_no_length_is_counted_as_it_comes(self, tmp_path: Path) -> None:
        """Beyond the quota it is given up; the same document may be as large as it likes without one."""
        quota = Quota(2_500, folder=tmp_path)
        part = quota.part()
        with web(lambda answer: chunks(answer, 9)) as server:
            with pytest.raises(BeyondQuotaError):
                fetcher(tmp_path).fetch(at(server.url()), part=part)
            part.end()
            fetched = fetcher(tmp_path).fetch(at(server.url()), part=part)
        assert fetched.size_bytes == 9_000
        fetched.file.close()
        assert quota.used_bytes == 0

    def test_a_file_is_counted_too(self, tmp_path: Path) -> None:
        """Whatever the scheme: the spool counts."""
        (tmp_path / "a.pdf").write_bytes(PDF.ljust(2_000))
        source = fetcher(tmp_path / "scratch", file_roots=(tmp_path,))
        with pytest.raises(BeyondQuotaError):
            source.fetch(at((tmp_path / "a.pdf").as_uri()), part=Quota(1_000, folder=tmp_path).part())

    def test_too_large_is_too_large(self, tmp_path: Path) -> None:
        """What the settings refuse is refused by its own name."""
        with web(lambda answer: answer.whole(PDF.ljust(200_000))) as server, pytest.raises(DocumentError):
            fetcher(tmp_path).fetch(at(server.url()), part=Quota(1_000, folder=tmp_path).part())
