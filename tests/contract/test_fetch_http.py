"""Fetching over real sockets: a hostile or broken server costs its own document and a bounded time."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

import pytest

from daemon.errors import WorldError
from daemon.model import Cause
from tests.contract.fetching import at, cause_of, content, fetcher
from tests.fakes.web import NET_S, PDF, Answer, web


class TestHttp:
    """https:// and http://."""

    def test_a_document_comes_whole(self, tmp_path: Path) -> None:
        """Bytes, size, digest and type; asked for without compression."""
        with web(lambda answer: answer.whole(PDF)) as server:
            assert content(fetcher(tmp_path), server.url("/a%20b.pdf?sig=1#page")) == PDF
        assert server.seen[0].target == "/a%20b.pdf?sig=1"
        assert server.seen[0].headers["Accept-Encoding"] == "identity"
        assert server.seen[0].headers["Host"] == f"127.0.0.1:{server.port}"

    @pytest.mark.parametrize(
        ("status", "cause"),
        [
            (404, Cause.SOURCE_MISSING),
            (410, Cause.SOURCE_MISSING),
            (401, Cause.SOURCE_UNAVAILABLE),
            (403, Cause.SOURCE_UNAVAILABLE),
            (429, Cause.SOURCE_UNAVAILABLE),
            (500, Cause.SOURCE_UNAVAILABLE),
            (503, Cause.SOURCE_UNAVAILABLE),
            (304, Cause.SOURCE_UNAVAILABLE),
        ],
    )
    def test_a_status_is_somebodys_problem(self, tmp_path: Path, status: int, cause: Cause) -> None:
        """404 is permanent; 403 and 5xx are the world's and cost no attempt."""
        with web(lambda answer: answer.whole(b"" if status == 304 else b"sorry", status)) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is cause

    @pytest.mark.parametrize("body", [b"", b"<html>not found</html>", b"PK\x03\x04"])
    def test_what_is_no_document_is_permanent(self, tmp_path: Path, body: bytes) -> None:
        """An error page with status 200 must not reach a parser."""
        with web(lambda answer: answer.whole(body, Content_Type="application/pdf")) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is Cause.NOT_A_DOCUMENT

    def test_compression_that_nobody_asked_for_is_refused(self, tmp_path: Path) -> None:
        """What is unpacked has no bound that its size tells."""
        with web(lambda answer: answer.whole(PDF, Content_Encoding="gzip")) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is Cause.NOT_A_DOCUMENT

    def test_a_length_beyond_the_limit_is_refused_early(self, tmp_path: Path) -> None:
        """Not a byte of the body is waited for."""

        def large(answer: Answer) -> None:
            answer.head(200, Content_Length=str(10**12))
            answer.server.over.wait(NET_S)

        with web(large) as server:
            cause, detail = cause_of(fetcher(tmp_path), server.url())
        assert cause is Cause.TOO_LARGE
        assert "fetch.max_bytes" in detail

    def test_a_body_without_a_length_is_cut_at_the_limit(self, tmp_path: Path) -> None:
        """An endless body costs the limit and no more."""

        def endless(answer: Answer) -> None:
            answer.head(200, Transfer_Encoding="chunked")
            while not answer.server.over.is_set():
                answer.wfile.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")

        with web(endless) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is Cause.TOO_LARGE

    def test_a_body_shorter_than_its_length_is_the_worlds(self, tmp_path: Path) -> None:
        """A connection that broke must not become a broken document."""

        def short(answer: Answer) -> None:
            answer.head(200, Content_Length=str(len(PDF) + 10))
            answer.wfile.write(PDF)
            answer.close_connection = True

        with web(short) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is Cause.SOURCE_UNAVAILABLE

    @pytest.mark.parametrize("where", ["body", "head", "before"])
    def test_a_server_that_drips_is_cut_by_the_deadline(self, tmp_path: Path, where: str) -> None:
        """Byte after byte, each in time, must not hold a slot for hours."""

        def drip(answer: Answer) -> None:
            if where == "body":
                answer.head(200, Content_Length="5000")
            elif where == "head":
                answer.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not answer.server.over.wait(0.02):
                if where != "before":
                    answer.wfile.write(b"%")
                    answer.wfile.flush()

        with web(drip) as server:
            cause, detail = cause_of(fetcher(tmp_path, timeout_s=0.5), server.url())
        assert cause is Cause.SOURCE_UNAVAILABLE
        assert "too slow" in detail or "fetch.timeout_s" in detail

    def test_a_cancelled_fetch_ends(self, tmp_path: Path) -> None:
        """A drain, or a lost lease, does not wait for a server that hangs."""
        asked, cancelled = threading.Event(), threading.Event()
        ended: SimpleQueue[Exception] = SimpleQueue()

        def hang(answer: Answer) -> None:
            asked.set()
            answer.server.over.wait(NET_S)

        def run(uri: str) -> None:
            try:
                fetcher(tmp_path).fetch(at(uri), cancelled=cancelled)
            except WorldError as error:
                ended.put(error)

        with web(hang) as server:
            thread = threading.Thread(target=run, args=(server.url(),))
            thread.start()
            assert asked.wait(NET_S)
            cancelled.set()
            error = ended.get(timeout=NET_S)
            assert not server.over.is_set()
            thread.join()
        assert isinstance(error, WorldError)
        assert error.cause is Cause.DRAINED

    def test_nobody_listening_is_the_worlds(self, tmp_path: Path) -> None:
        """A refused connection is an outage."""
        assert cause_of(fetcher(tmp_path), "http://127.0.0.1:9/a.pdf")[0] is Cause.SOURCE_UNAVAILABLE

    def test_a_name_that_does_not_resolve_is_the_worlds(self, tmp_path: Path) -> None:
        """DNS has outages too."""

        def nothing(host: str, port: int) -> Sequence[str]:
            raise OSError(errno.EIO, "no answer")

        cause, detail = cause_of(fetcher(tmp_path, resolve=nothing), "https://docs.example/a.pdf")
        assert cause is Cause.SOURCE_UNAVAILABLE
        assert "cannot resolve docs.example" in detail

    def test_a_resolver_that_hangs_is_cut_by_the_deadline(self, tmp_path: Path) -> None:
        """The C library waits as long as it likes; we do not."""
        over = threading.Event()

        def hang(host: str, port: int) -> Sequence[str]:
            over.wait(NET_S)
            return ()

        source = fetcher(tmp_path, resolve=hang, timeout_s=0.3)
        assert cause_of(source, "https://docs.example/a.pdf")[0] is Cause.SOURCE_UNAVAILABLE
        over.set()

    def test_proxies_of_the_environment_are_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy would resolve and dial by itself, past the guard."""
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        with web(lambda answer: answer.whole(PDF)) as server:
            assert content(fetcher(tmp_path), server.url()) == PDF
