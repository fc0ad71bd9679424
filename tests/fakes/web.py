"""A web server on loopback that answers as a test tells it, over HTTP or HTTPS."""

from __future__ import annotations

import datetime as dt
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PDF = b"%PDF-1.7\nnot much of a document, but it says what it is\n%%EOF\n"
#: What a handler that waits for the other side waits for at most; it never decides.
NET_S = 20.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One request."""

    target: str
    headers: dict[str, str]


class Answer(BaseHTTPRequestHandler):
    """What the test's function is given to answer with."""

    protocol_version = "HTTP/1.1"
    server: Web

    def do_GET(self) -> None:
        """Note the request and let the test answer."""
        self.server.seen.append(Seen(self.path, dict(self.headers.items())))
        try:
            self.server.answer(self)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def head(self, status: int, **headers: str) -> None:
        """Status and headers; `_` in a name is `-`."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def whole(self, body: bytes, status: int = 200, **headers: str) -> None:
        """A complete answer."""
        self.head(status, Content_Length=str(len(body)), **headers)
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's own name
        """Stay quiet."""


class Web(ThreadingHTTPServer):
    """The server; `answer` may be exchanged at any time."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.answer = answer
        self.seen: list[Seen] = []
        #: Set when the test is over, so that an answer which hangs ends.
        self.over = threading.Event()
        self.scheme = "http"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def url(self, path: str = "/a.pdf", host: str = "127.0.0.1") -> str:
        """A URL of ours."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or does not trust us, is what many tests want."""


@contextmanager
def web(answer: Callable[[Answer], None], *, tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    """A running server."""
    server = Web(answer)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.scheme = "https"
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Certified:
    """A server's context with a certificate for one name, and a client's that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    #: Names that clients asked for in their handshakes.
    asked: list[str | None] = field(default_factory=list)


def certified(name: str, folder: Path) -> Certified:
    """A fresh self-signed certificate for `name`."""
    from cryptography import x509  # noqa: PLC0415 - only the test over TLS pays
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = folder / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(secret + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    pair = Certified(server, ssl.create_default_context(cafile=str(pem)))
    server.sni_callback = lambda _socket, asked, _context: pair.asked.append(asked)
    return pair
