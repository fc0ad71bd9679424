"""An HTTP proxy between daemons and the embedded AWS: it injects faults, shortens waits, and keeps a record.

Real HTTP on loopback. Rules: the record is what the embedded AWS has confirmed, whatever the daemon was told; a fault
is drawn before the request is forwarded. Waits that are long in production (a dead letter that a killed sweep has
hidden, a message that is released with back-off) are cut to `longest_s`, as if time ran faster there.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from bench._chaos_faults import Drawn, Fault, Faults, Service, refusal
from daemon.intake import read

#: Of one connection or exchange; a net, the embedded AWS answers in milliseconds.
_TIMEOUT_S = 60.0
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_WAITS = ("VisibilityTimeout", "DelaySeconds")


@dataclass(slots=True)
class Record:
    """What has really been done, as the proxy saw the embedded AWS confirm it."""

    #: Fencing tokens of the manifests that were put, by document id.
    manifests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: The same, one after the other: when, of which document, with which token; the instant is this machine's.
    manifests_put: list[tuple[datetime, str, str]] = field(default_factory=list)
    #: Documents of which a dead letter was confirmed, and bodies of dead letters without one.
    dead_documents: set[str] = field(default_factory=set)
    dead_bodies: set[str] = field(default_factory=set)
    #: Body by receipt, of messages of the main queue.
    received: dict[str, str] = field(default_factory=dict)
    #: Bodies of messages whose deletion was asked for before a result or a dead letter was confirmed.
    early_deletions: list[str] = field(default_factory=list)
    requests: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_confirmed(self, body: str) -> bool:
        """Whether all that a message asks for has a result or a dead letter."""
        if body in self.dead_bodies:
            return True
        asked = read(body, message_id="")
        return not asked.malformed and all(
            document.id in self.manifests or document.id in self.dead_documents for document in asked.documents
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as it came."""

    service: Service
    #: `ReceiveMessage`, `PUT` and the like.
    operation: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def fields(self) -> dict[str, Any]:
        """The JSON object of an SQS request."""
        content: dict[str, Any] = json.loads(self.body)
        return content


class Proxy:
    """Listens on a port of its own until it is closed."""

    def __init__(
        self, target_url: str, *, faults: Faults, record: Record, results: str, dead_url: str, longest_s: int
    ) -> None:
        """`results` is the path of the store's prefix (`/bucket/prefix/`), `dead_url` the dead-letter queue's."""
        parts = urlsplit(target_url)
        assert parts.hostname, "an embedded AWS has an address"
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.target = (parts.hostname, parts.port or 80)
        self._server.faults = faults
        self._server.recorder = Recorder(record, results=results, dead_url=dead_url)
        self._server.longest_s = longest_s
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


class Recorder:
    """Keeps the record; asked only about exchanges that the embedded AWS has confirmed."""

    def __init__(self, record: Record, *, results: str, dead_url: str) -> None:
        self._record = record
        self._results = results
        self._dead_name = dead_url.rpartition("/")[2]

    def before(self, exchange: Exchange) -> None:
        """Whether a deletion comes too early."""
        record = self._record
        if exchange.operation == "DeleteMessage" and not self._is_dead(exchange):
            with record.lock:
                body = record.received.get(exchange.fields()["ReceiptHandle"])
                if body is not None and not record.is_confirmed(body):
                    record.early_deletions.append(body)

    def after(self, exchange: Exchange, answer: bytes) -> None:
        """What this exchange has changed."""
        record = self._record
        with record.lock:
            record.requests += 1
            if exchange.service is Service.S3 and exchange.method == "PUT":
                path = unquote(urlsplit(exchange.path).path)
                document_id, _, name = path.removeprefix(self._results).partition("/")
                if path.startswith(self._results) and name == "manifest.json":
                    token = exchange.headers.get("x-amz-meta-fencing-token", "?")
                    record.manifests[document_id].add(token)
                    record.manifests_put.append((datetime.now(UTC), document_id, token))
            elif exchange.operation == "SendMessage" and self._is_dead(exchange):
                fields = exchange.fields()
                about = fields.get("MessageAttributes", {}).get("document_id", {}).get("StringValue")
                record.dead_documents |= {about} if about else set()
                record.dead_bodies |= set() if about else {fields["MessageBody"]}
            elif exchange.operation == "ReceiveMessage" and not self._is_dead(exchange):
                for message in json.loads(answer or b"{}").get("Messages", ()):
                    record.received[message["ReceiptHandle"]] = message["Body"]

    def _is_dead(self, exchange: Exchange) -> bool:
        return str(exchange.fields().get("QueueUrl", "")).endswith(f"/{self._dead_name}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    target: tuple[str, int]
    faults: Faults
    recorder: Recorder
    longest_s: int

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A daemon that was killed hangs up in the middle: that is the point."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = _TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def _serve(self) -> None:
        exchange = self._read()
        drawn = self.server.faults.draw(exchange.service, exchange.operation)
        if drawn.fault in {Fault.THROTTLED, Fault.FAILED, Fault.EXPIRED}:
            self._refuse(exchange, drawn.fault)
        elif drawn.fault is Fault.RESET:
            self._reset()
        else:
            self._forward(exchange, drawn)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the base class looks for these names

    def _read(self) -> Exchange:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        namespace, _, name = self.headers.get("X-Amz-Target", "").partition(".")
        if namespace:
            service = Service.DYNAMODB if namespace.startswith("DynamoDB") else Service.SQS
        else:
            service, name = Service.S3, self.command
        headers = {key.lower(): value for key, value in self.headers.items()}
        return Exchange(
            service=service, operation=name, method=self.command, path=self.path, headers=headers, body=body
        )

    def _forward(self, exchange: Exchange, drawn: Drawn) -> None:
        threading.Event().wait(drawn.wait_s)
        self.server.recorder.before(exchange)
        connection = http.client.HTTPConnection(*self.server.target, timeout=_TIMEOUT_S)
        try:
            headers = {name: value for name, value in exchange.headers.items() if name not in _NOT_FORWARDED}
            body = _hurried(exchange, drawn, self.server.longest_s)
            connection.request(exchange.method, exchange.path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status < 300:
            self.server.recorder.after(exchange, content)
        if drawn.fault is Fault.DONE_AND_FAILED:
            self._refuse(exchange, drawn.fault)
        elif drawn.fault is Fault.DONE_AND_RESET:
            self._reset()
        else:
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            length = answer.getheader("Content-Length") if exchange.method == "HEAD" else str(len(content))
            self._answer(answer.status, [*kept, ("Content-Length", length or "0")], content, drawn.fault)

    def _refuse(self, exchange: Exchange, fault: Fault) -> None:
        status, kind, body = refusal(exchange.service, fault)
        content = b"" if exchange.method == "HEAD" else body
        self._answer(status, [("Content-Type", kind), ("Content-Length", str(len(content)))], content, Fault.NONE)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, fault: Fault) -> None:
        """In one piece: a second small packet would wait for the first one's acknowledgement."""
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Unknown')}"]
        head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers), "", ""]).encode("latin-1")
        whole = head + content
        if fault is Fault.HALF_ANSWERED:
            self.connection.sendall(whole[: len(head) + len(content) // 2] if content else whole[: len(head) // 2])
            self.close_connection = True  # no reset, which could overtake the half that was sent
        else:
            self.connection.sendall(whole)

    def _reset(self) -> None:
        """Close so that the other side gets an RST."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


#: The connection to the embedded AWS has its own.
_NOT_FORWARDED = frozenset({"connection", "expect", "content-length", "transfer-encoding"})


def _hurried(exchange: Exchange, drawn: Drawn, longest_s: int) -> bytes:
    """The body that is forwarded: no wait is longer than `longest_s`, and what is delivered twice is hardly hidden."""
    if exchange.service is not Service.SQS:
        return exchange.body
    fields = exchange.fields()
    for name in _WAITS:
        if name in fields:
            fields[name] = min(int(fields[name]), longest_s)
    if drawn.fault is Fault.DELIVERED_TWICE:
        fields["VisibilityTimeout"] = 1
    return json.dumps(fields).encode()
