"""Answers that are torn in the middle: the world's fault, at every edge that talks to AWS.

The SDK lets urllib3's own errors through here, and its parser's; and it takes the half that came for the whole.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from daemon.checkpoints_s3 import open_checkpoints
from daemon.clock import SystemClock
from daemon.config import LedgerSettings, StoreSettings
from daemon.config_queue import QueueSettings
from daemon.dynamodb_calls import Calls
from daemon.errors import WorldError
from daemon.model import Message
from daemon.sqs import SqsQueue
from daemon.store_s3 import S3Store


class _Breaking(ThreadingHTTPServer):
    daemon_threads = True
    status: int
    #: The connection is reset, once the client has seen the first half.
    reset: bool


class _Handler(BaseHTTPRequestHandler):
    server: _Breaking

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def _break(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        head = f"HTTP/1.1 {self.server.status} Half\r\nContent-Length: 1000\r\n\r\n"
        self.connection.sendall(head.encode() + b'{"hal')
        if self.server.reset:
            self.connection.settimeout(0.05)
            with suppress(TimeoutError):  # what was sent is read by then; were it not, the reset would come first
                self.connection.recv(1)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    do_GET = do_PUT = do_POST = _break  # noqa: N815 - the base class looks for these names


@pytest.fixture
def breaking(aws_environment: None) -> Iterator[_Breaking]:
    """An AWS that never finishes its sentences."""
    server = _Breaking(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def delete(url: str) -> None:
    """A message of SQS."""
    settings = QueueSettings(url=f"{url}/1/source", endpoint_url=url, retry_for_s=0.2)
    message = Message(message_id="m", receipt_handle="r", body="b", receive_count=1, received_monotonic_s=0.0)
    SqsQueue(settings, clock=SystemClock()).delete(message)


def publish(url: str) -> None:
    """A document in S3."""
    store = S3Store.open("bucket", "prefix", region="eu-central-1", endpoint_url=url)
    store._retry_for_s = 0.2
    store.check()


def resume(url: str) -> None:
    """Finished pages in S3."""
    settings = StoreSettings(endpoint_url=url, checkpoints_url="s3://bucket/prefix")
    open_checkpoints(settings, state_dir=Path("unused")).documents()


def look(url: str) -> None:
    """At a table of DynamoDB."""
    settings = LedgerSettings(table="ledger", endpoint_url=url, retry_for_s=0.2)
    Calls(settings).call("look", lambda db: db.describe_table(TableName="ledger"))


@pytest.mark.parametrize("call", [delete, publish, resume, look])
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("reset", [False, True], ids=["ends", "is reset"])
def test_an_answer_that_is_torn(breaking: _Breaking, call: Callable[[str], None], status: int, *, reset: bool) -> None:
    """It releases the document and ends no daemon; and it is never taken for an answer that holds nothing."""
    breaking.status, breaking.reset = status, reset
    with pytest.raises(WorldError):
        call(f"http://127.0.0.1:{breaking.server_port}")
