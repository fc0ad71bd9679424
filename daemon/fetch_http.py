"""https:// as a source: the address that was vetted is the address that is dialled, on every hop.

Edge. Rules: the name is resolved in the network backend, at the moment of dialling, so nothing can change between
check and use; one refused address among a name's addresses refuses the name. TLS is checked against the name. A
redirect is a new request through the same gate, five at most. No proxies, cookies, credentials or compression.
Every wait on the network is cut by the fetch's deadline, so that a server which drips bytes gains nothing.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from daemon.addresses import refusal
from daemon.config import FetchSettings
from daemon.errors import DocumentError, WorldError
from daemon.model import Cause
from daemon.spool import Budget, Spool

MAX_REDIRECTS = 5
#: How long a read may overlook that its fetch was cancelled.
GLANCE_S = 0.25
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MISSING = frozenset({404, 410})
_NETWORK_ERRORS = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)

#: (host, port) → numeric addresses; raises `OSError` when there are none.
Resolve = Callable[[str, int], Sequence[str]]


def resolve(host: str, port: int) -> Sequence[str]:
    """What the host's resolver says, in its order of preference. Raises `OSError`, or `UnicodeError` for no name."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))


class HttpSource:
    """Fetches over HTTP; safe to use from several threads, each fetch has connections of its own."""

    def __init__(self, settings: FetchSettings, *, resolve: Resolve = resolve) -> None:
        self._settings = settings
        self._resolve = resolve

    def fetch_into(self, spool: Spool, uri: str) -> None:
        """Stream the body at `uri` into `spool`, redirects followed.

        Raises `DocumentError(SOURCE_MISSING | SOURCE_REFUSED | TOO_LARGE | NOT_A_DOCUMENT)` or
        `WorldError(SOURCE_UNAVAILABLE)`.
        """
        url = self._checked(uri)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                location = self._hop(spool, url)
            except _NETWORK_ERRORS as error:
                spool.budget.left_s()
                raise _unavailable(url, f"{type(error).__name__} {error}".strip()) from error
            if location is None:
                return
            url = self._checked(location, base=url)
        raise DocumentError(Cause.SOURCE_REFUSED, f"cannot fetch {shown(uri)}: more than {MAX_REDIRECTS} redirects")

    def _checked(self, text: str, *, base: httpx.URL | None = None) -> httpx.URL:
        """The URL, if the settings allow its scheme and it bears no credentials."""
        try:
            url = base.join(text) if base else httpx.URL(text)
        except (httpx.InvalidURL, ValueError) as error:
            raise _refused(text, "it cannot be parsed") from error
        allowed = ("https", "http") if self._settings.allow_http else ("https",)
        if url.scheme not in allowed:
            hint = "; set fetch.allow_http to allow it" if url.scheme == "http" else ""
            raise _refused(text, f"{url.scheme or 'no scheme'} is not {' or '.join(allowed)}{hint}")
        if url.userinfo:
            raise _refused(text, "credentials in a URL would be logged and stored")
        if not url.host or "%" in url.host:
            raise _refused(text, "it names no host")
        return url

    def _hop(self, spool: Spool, url: httpx.URL) -> str | None:
        """One request; the body goes to `spool`, or the next location is returned."""
        headers: dict[bytes | str, bytes | str] = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": "bulkhead",
            "Accept": "application/pdf, image/*;q=0.9, */*;q=0.5",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        backend = VettedBackend(self._settings, self._resolve, spool.budget)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        with (
            httpcore.ConnectionPool(ssl_context=self._tls, network_backend=backend, max_connections=1) as pool,
            pool.stream("GET", target, headers=headers) as response,
        ):
            location = _accepted(url, response)
            if location is not None:
                return location
            length = _header(response, b"content-length")
            spool.expect(int(length) if length.isdigit() else None)
            for chunk in response.iter_stream():
                spool.write(chunk)
        return None

    @cached_property  # made twice by two threads at the worst
    def _tls(self) -> ssl.SSLContext:
        """Trusts what certifi trusts and what this host trusts."""
        context = httpx.create_ssl_context(trust_env=False)
        context.load_default_certs()
        return context


class VettedBackend(httpcore.NetworkBackend):
    """Resolves, vets and dials in one step; the only way of this module to the network."""

    def __init__(self, settings: FetchSettings, resolve: Resolve, budget: Budget) -> None:
        self._allow_private = settings.allow_private_addresses
        self._resolve = resolve
        self._budget = budget
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Dial the first vetted address of `host` that answers.

        Raises `DocumentError(SOURCE_REFUSED)` when one address is refused, `httpcore.ConnectError` when none answers.
        """
        del timeout, local_address, socket_options  # the budget decides
        addresses = self._addresses(host, port)
        for address in addresses:
            if reason := refusal(address, allow_private=self._allow_private):
                hint = "" if self._allow_private else "; set fetch.allow_private_addresses if that is wanted"
                raise DocumentError(Cause.SOURCE_REFUSED, f"cannot fetch from {host}: {reason}{hint}")
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            # An address that swallows packets must leave time for the others.
            share_s = self._budget.left_s() / (len(addresses) - number)
            try:
                stream = self._sockets.connect_tcp(address, port, timeout=share_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _BudgetStream(stream, self._budget)
        raise failure

    def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve in a thread of its own: the C library's resolver knows no deadline."""
        answers: SimpleQueue[Sequence[str] | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._resolve(host, port))
            except (OSError, UnicodeError) as error:
                answers.put(error)

        threading.Thread(target=ask, name="resolve", daemon=True).start()
        while True:
            try:
                answer = answers.get(timeout=min(self._budget.left_s(), GLANCE_S))
            except Empty:
                continue
            if isinstance(answer, UnicodeError):
                raise DocumentError(
                    Cause.SOURCE_REFUSED, f"cannot fetch from {host!r}: it is no host's name"
                ) from answer
            if isinstance(answer, Exception):
                raise httpcore.ConnectError(f"cannot resolve {host}: {answer}") from answer
            return answer


class _BudgetStream(httpcore.NetworkStream):
    """A connection whose every wait ends at the fetch's deadline, or when it is cancelled."""

    def __init__(self, stream: httpcore.NetworkStream, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        del timeout  # the budget decides, here and below
        while True:
            try:
                return self._stream.read(max_bytes, timeout=min(self._budget.left_s(), GLANCE_S))
            except httpcore.ReadTimeout:
                continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        del timeout
        self._stream.write(buffer, timeout=self._budget.left_s())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        del timeout
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout=self._budget.left_s())
        return _BudgetStream(stream, self._budget)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _accepted(url: httpx.URL, response: httpcore.Response) -> str | None:
    """None for a body to read, the location of a redirect; everything else raises."""
    status = response.status
    if status == 200:  # noqa: PLR2004 - HTTP
        encoding = _header(response, b"content-encoding").lower()
        if encoding not in {"", "identity"}:
            detail = f"cannot convert {shown(str(url))}: it comes as {encoding}, although we asked for no compression"
            raise DocumentError(Cause.NOT_A_DOCUMENT, detail)
        return None
    location = _header(response, b"location")
    if status in _REDIRECTS and location:
        return location
    if status in _MISSING:
        raise DocumentError(Cause.SOURCE_MISSING, f"cannot fetch {shown(str(url))}: status {status}, it is not there")
    raise _unavailable(url, f"status {status}")


def _header(response: httpcore.Response, name: bytes) -> str:
    for key, value in response.headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return ""


def shown(uri: str) -> str:
    """`uri` without query and credentials, which may be secrets."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "the URI"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _refused(uri: str, reason: str) -> DocumentError:
    return DocumentError(Cause.SOURCE_REFUSED, f"cannot fetch {shown(uri)}: {reason}")


def _unavailable(url: httpx.URL, reason: str) -> WorldError:
    return WorldError(Cause.SOURCE_UNAVAILABLE, f"cannot fetch {shown(str(url))}: {reason}")
