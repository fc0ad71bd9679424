"""What may not be fetched is not dialled, whatever an attacker's URL, server or name server tries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from daemon import fetch_http
from daemon.addresses import refusal
from daemon.model import Cause
from tests.contract.fetching import cause_of, content, fetcher
from tests.fakes.web import PDF, Answer, certified, web


class TestGuard:
    """What an attacker's URL, server or name server tries."""

    @pytest.mark.parametrize(
        "uri",
        [
            "http://127.0.0.1:{port}/",
            "http://localhost:{port}/",
            "http://[::ffff:127.0.0.1]:{port}/",
            "http://0x7f.1:{port}/",
            "http://2130706433:{port}/",
            "http://0.0.0.0:{port}/",
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.1/",
            "http://[::1]:{port}/",
            "http://[fd00:ec2::254]/",
        ],
    )
    def test_a_private_address_is_not_dialled_however_it_is_spelt(self, tmp_path: Path, uri: str) -> None:
        """The address is judged, not its spelling."""
        with web(lambda answer: answer.whole(PDF)) as server:
            source = fetcher(tmp_path, allow_private_addresses=False)
            assert cause_of(source, uri.format(port=server.port))[0] is Cause.SOURCE_REFUSED
        assert server.seen == []

    def test_the_address_that_was_vetted_is_dialled(self, tmp_path: Path) -> None:
        """A name is asked for once per connection: a second answer (DNS rebinding) has nobody to tell it to."""
        asked: list[tuple[str, int]] = []

        def rebinding(host: str, port: int) -> Sequence[str]:
            asked.append((host, port))
            return ("127.0.0.1",) if len(asked) == 1 else ("10.255.255.1",)

        with web(lambda answer: answer.whole(PDF)) as server:
            source = fetcher(tmp_path, resolve=rebinding)
            assert content(source, server.url(host="rebind.example")) == PDF
            assert asked == [("rebind.example", server.port)]
            assert server.seen[0].headers["Host"] == f"rebind.example:{server.port}"

    def test_one_private_address_among_many_refuses_the_name(self, tmp_path: Path) -> None:
        """Which of them is dialled must not be the attacker's luck."""
        source = fetcher(tmp_path, resolve=lambda *_: ("93.184.216.34", "127.0.0.1"), allow_private_addresses=False)
        cause, detail = cause_of(source, "https://mixed.example/")
        assert cause is Cause.SOURCE_REFUSED
        assert "fetch.allow_private_addresses" in detail

    def test_the_next_address_is_tried_when_one_does_not_answer(self, tmp_path: Path) -> None:
        """A name with a dead IPv6 address still works."""
        with web(lambda answer: answer.whole(PDF)) as server:
            source = fetcher(tmp_path, resolve=lambda *_: ("::1", "127.0.0.1"))
            assert content(source, server.url(host="two.example")) == PDF

    @pytest.mark.parametrize(
        "location",
        [
            "http://127.0.0.2:{port}/",
            "http://169.254.169.254/latest/meta-data/iam/",
            "//10.0.0.1/",
            "file:///etc/passwd",
            "s3://bucket/key",
            "http://user:secret@127.0.0.1:{port}/",
            "http://[",
        ],
    )
    def test_every_redirect_goes_through_the_same_gate(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
    ) -> None:
        """A public server that points inside is how it is done."""

        def only_first(address: str, *, allow_private: bool = False) -> str | None:
            return None if address == "127.0.0.1" else refusal(address, allow_private=allow_private)

        monkeypatch.setattr(fetch_http, "refusal", only_first)
        with web(lambda answer: answer.whole(b"", 302, Location=location.format(port=answer.server.port))) as server:
            cause, detail = cause_of(fetcher(tmp_path, allow_private_addresses=False), server.url())
            assert cause is Cause.SOURCE_REFUSED
            assert "secret" not in detail
            assert len(server.seen) == 1

    def test_metadata_is_not_fetched_even_where_private_addresses_are_allowed(self, tmp_path: Path) -> None:
        """The instance's role is no document."""
        with web(lambda answer: answer.whole(b"", 307, Location="http://169.254.169.254/")) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is Cause.SOURCE_REFUSED

    def test_an_honest_redirect_is_followed(self, tmp_path: Path) -> None:
        """Relative ones too, and the query of the first is not carried along."""

        def moved(answer: Answer) -> None:
            if answer.path == "/real.pdf":
                answer.whole(PDF)
            else:
                answer.whole(b"", 301, Location="/real.pdf")

        with web(moved) as server:
            assert content(fetcher(tmp_path), server.url("/a.pdf?token=1")) == PDF

    def test_a_circle_of_redirects_ends(self, tmp_path: Path) -> None:
        """Five, then it is refused for good."""
        with web(lambda answer: answer.whole(b"", 302, Location="/again")) as server:
            assert cause_of(fetcher(tmp_path), server.url())[0] is Cause.SOURCE_REFUSED
            assert len(server.seen) == 6

    @pytest.mark.parametrize(
        "uri", ["http://docs.example/a.pdf", "https://u:secret@docs.example/", "ftp://x/", "https://"]
    )
    def test_what_the_settings_do_not_allow_is_refused(self, tmp_path: Path, uri: str) -> None:
        """Plain HTTP, passwords in URLs, other schemes; none is even resolved."""
        asked: list[str] = []

        def note(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ()

        source = fetcher(tmp_path, resolve=note, allow_http=False)
        cause, detail = cause_of(source, uri)
        assert cause is Cause.SOURCE_REFUSED
        assert "secret" not in detail
        assert asked == []

    def test_tls_is_checked_against_the_name(self, tmp_path: Path) -> None:
        """Dialling an address must not weaken the certificate's check; the server hears the name (SNI)."""
        pair = certified("docs.example", tmp_path)
        with web(lambda answer: answer.whole(PDF), tls=pair.server) as server:
            source = fetcher(tmp_path, resolve=lambda *_: ("127.0.0.1",), allow_http=False)
            source._http.__dict__["_tls"] = pair.client
            assert content(source, server.url(host="docs.example")) == PDF
            assert pair.asked == ["docs.example"]
            cause, detail = cause_of(source, server.url(host="other.example"))
        assert cause is Cause.SOURCE_UNAVAILABLE
        assert "certificate" in detail.lower()

    def test_an_unknown_certificate_is_the_worlds(self, tmp_path: Path) -> None:
        """The real trust store is in use, and does not know ours."""
        pair = certified("docs.example", tmp_path)
        with web(lambda answer: answer.whole(PDF), tls=pair.server) as server:
            source = fetcher(tmp_path, resolve=lambda *_: ("127.0.0.1",))
            cause, detail = cause_of(source, server.url(host="docs.example"))
        assert cause is Cause.SOURCE_UNAVAILABLE
        assert "certificate" in detail.lower()

    def test_a_redirect_from_https_to_http_is_refused(self, tmp_path: Path) -> None:
        """A downgrade needs fetch.allow_http."""
        pair = certified("docs.example", tmp_path)
        with web(lambda answer: answer.whole(b"", 302, Location="http://docs.example/"), tls=pair.server) as server:
            source = fetcher(tmp_path, resolve=lambda *_: ("127.0.0.1",), allow_http=False)
            source._http.__dict__["_tls"] = pair.client
            cause, detail = cause_of(source, server.url(host="docs.example"))
        assert cause is Cause.SOURCE_REFUSED
        assert "fetch.allow_http" in detail
