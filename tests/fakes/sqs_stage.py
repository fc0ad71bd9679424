"""An SQS on loopback that answers as a test tells it, in SQS's own JSON protocol."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

#: A net for a hang: what a handshake waits for comes at once or never.
NET_S = 20.0


class Stage(ThreadingHTTPServer):
    """An SQS that answers as it is told: one scripted answer per call, then success for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Scripted)
        #: (status, error code or None, body) of the next calls.
        self.script: SimpleQueue[tuple[int, str | None, dict[str, Any]]] = SimpleQueue()
        #: (action, parameters, access key) of every call, as it came in.
        self.calls: SimpleQueue[tuple[str, dict[str, Any], str]] = SimpleQueue()
        #: While it is clear, `ReceiveMessage` is not answered.
        self.gate = threading.Event()
        self.gate.set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fail(self, times: int, status: int, code: str) -> None:
        """Answer the next calls with an error."""
        for _ in range(times):
            self.script.put((status, code, {}))

    def called(self) -> tuple[str, dict[str, Any], str]:
        """The next call that came in."""
        return self.calls.get(timeout=NET_S)


class _Scripted(BaseHTTPRequestHandler):
    """Speaks SQS's JSON protocol."""

    server: Stage

    def do_POST(self) -> None:
        """Answer one call."""
        parameters = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        action = self.headers["X-Amz-Target"].partition(".")[2]
        key = self.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        self.server.calls.put((action, parameters, key))
        if action == "ReceiveMessage":
            self.server.gate.wait(NET_S)
        status, code, body = (200, None, {}) if self.server.script.empty() else self.server.script.get()
        if code is not None:
            body = {"__type": f"com.amazonaws.sqs#{code}", "message": "as scripted"}
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's own name
        """Stay quiet."""
