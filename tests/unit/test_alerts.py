"""Alerts: they arrive, they hold no content and no credential, and they never hold the daemon up."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import structlog
from pydantic import SecretStr
from structlog.testing import capture_logs

from daemon import alerts
from daemon import log as log_module
from daemon.config import LogSettings
from daemon.config_recovery import SentrySettings
from daemon.errors import ConfigurationError
from tests.fakes.clock import FakeClock

CANARY = "Xq7canaryXq7canary"
NET_S = 10


class Endpoint:
    """A loopback server that speaks Sentry's envelope: what arrives is in `received`, headers included."""

    def __init__(self, status: int = 200) -> None:
        self.received: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                received.put((dict(self.headers), body))
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_args: Any) -> None:
                """Nothing on stderr."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def settings(self) -> SentrySettings:
        """Settings that point here."""
        return SentrySettings(
            dsn=SecretStr(f"http://{CANARY}@127.0.0.1:{self.server.server_port}/1"), environment="test"
        )

    def event(self) -> tuple[dict[str, Any], str]:
        """The next event, decoded, and its envelope as text."""
        _, body = self.received.get(timeout=NET_S)
        _header, _item, payload = body.split(b"\n", 2)
        return json.loads(payload), body.decode()

    def check_in(self) -> dict[str, Any]:
        """The next check-in, decoded."""
        _, body = self.received.get(timeout=NET_S)
        _header, item, payload = body.split(b"\n", 2)
        assert json.loads(item)["type"] == "check_in"
        return dict(json.loads(payload))

    def close(self) -> None:
        """Stop."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A Sentry that answers."""
    server = Endpoint()
    yield server
    alerts.flush()
    server.close()


def test_alert_arrives_with_what_a_person_needs(endpoint: Endpoint) -> None:
    """Name, sentence, host's environment and release; same name and fingerprint make one issue."""
    alerts.configure(endpoint.settings, release="9.9")
    alerts.alert("queue.unavailable", "cannot receive: timed out", fingerprint=("eu-west-1",), queue="q", attempt=None)
    alerts.flush()
    event, _ = endpoint.event()
    assert event["message"] == "cannot receive: timed out"
    assert event["level"] == "error"
    assert event["tags"] == {"event": "queue.unavailable", "queue": "q"}
    assert event["fingerprint"] == ["queue.unavailable", "eu-west-1"]
    assert (event["environment"], event["release"]) == ("test", "bulkheadd@9.9")


def test_alert_holds_no_credential_and_no_local_variable(endpoint: Endpoint) -> None:
    """What is sent leaves the host, so it passes the same filter as the log; the DSN itself is not in it."""

    def fail() -> None:
        page_text = CANARY
        raise ValueError(f"{len(page_text)} from https://b.example/k?X-Amz-Signature={'x' + CANARY}")

    alerts.configure(endpoint.settings)
    logging.getLogger("botocore").error("secret %s", CANARY)
    try:
        fail()
    except ValueError as error:
        alerts.alert(
            "daemon.crashed",
            f"cannot go on: aws_secret_access_key={CANARY}",
            fingerprint=(f"https://b.example/k?sig={CANARY}",),
            error=error,
            session_token=CANARY,
            uri=f"https://user:{CANARY}@b.example/",
        )
    alerts.flush()
    event, envelope = endpoint.event()
    assert event["extra"]["error"] == "ValueError"
    assert "in fail" in event["extra"]["traceback"]
    payload = envelope.split("\n", 2)[2]
    assert CANARY not in payload
    assert endpoint.received.empty(), "a library's log line is no alert"


def test_only_known_fields_leave(endpoint: Endpoint) -> None:
    """A later SDK must not add modules, request bodies or the command line."""
    alerts.configure(endpoint.settings)
    alerts.alert("disk.filled", "cannot write")
    alerts.flush()
    event, _ = endpoint.event()
    # The SDK stamps these after `before_send`, or they are empty.
    assert set(event) <= alerts._KEPT | {"contexts", "breadcrumbs", "user"}
    assert set(event.get("contexts", {})) <= {"trace", "runtime"}


def test_every_error_line_is_an_alert(endpoint: Endpoint) -> None:
    """An ERROR means that a person must act, and whoever writes one must not have to remember the alert."""
    before = list(logging.getLogger().handlers)
    log_module.configure(LogSettings(), stream=io.StringIO())
    alerts.configure(endpoint.settings)
    log = structlog.get_logger()
    try:
        with log_module.bound(document_id="d-1"):
            log.warning("sizing.clamped", detail="no alert")
            log.error("store.unavailable", cause="disk_full", detail="cannot write: no space left", attempts=2)
        try:
            os.environ["NO_SUCH_VARIABLE"]
        except KeyError:
            log.exception("slot.failed")
    finally:
        alerts.flush()
        structlog.reset_defaults()
        logging.getLogger().handlers[:] = before
        logging.captureWarnings(capture=False)
    first, second = endpoint.event()[0], endpoint.event()[0]
    assert first["message"] == "store.unavailable: cannot write: no space left"
    assert first["fingerprint"] == ["store.unavailable", "disk_full"]
    assert first["tags"] == {
        "event": "store.unavailable", "cause": "disk_full", "document_id": "d-1", "attempts": "2",
    }  # fmt: skip
    assert second["extra"]["error"] == "KeyError"
    assert endpoint.received.empty()


def test_a_line_may_bring_its_own_fingerprint(endpoint: Endpoint) -> None:
    """Parked documents are one problem by cause, signal, stage and engine, not by cause alone."""
    alerts.configure(endpoint.settings)
    alerts.from_line({"event": "document.parked", "cause": "crashed", "fingerprint": ["crashed", "SIGSEGV", "ocr"]})
    alerts.flush()
    event, _ = endpoint.event()
    assert event["fingerprint"] == ["document.parked", "crashed", "SIGSEGV", "ocr"]


def test_a_monitor_hears_of_each_run(endpoint: Endpoint) -> None:
    """Before and after, under one id, with the schedule that the settings say: Sentry misses what does not come."""
    clock = FakeClock()
    settings = endpoint.settings.model_copy(update={"sweep_every_min": 20})
    alerts.configure(settings, release="9.9")
    with alerts.monitored(settings, host="Host_1.example.org", clock=clock):
        clock.advance(7)
    with pytest.raises(ZeroDivisionError), alerts.monitored(settings, host="Host_1.example.org", clock=clock):
        clock.advance(1 / 0)
    alerts.flush()
    told = [endpoint.check_in() for _ in range(4)]
    assert [(each["status"], each.get("duration")) for each in told] == [
        ("in_progress", None), ("ok", 7.0), ("in_progress", None), ("error", 0.0),
    ]  # fmt: skip
    assert [each["check_in_id"] for each in told] == [told[0]["check_in_id"]] * 2 + [told[2]["check_in_id"]] * 2
    assert told[0]["check_in_id"] != told[2]["check_in_id"]
    for each in told:
        assert each["monitor_slug"] == "bulkhead-sweep-host_1-example-org"
        assert (each["environment"], each["release"]) == ("test", "bulkheadd@9.9")
        assert each["monitor_config"]["schedule"] == {"type": "interval", "value": 20, "unit": "minute"}
        assert each["monitor_config"]["max_runtime"] == 15
        assert each.keys() <= alerts._CHECK_IN | {"contexts", "breadcrumbs", "user"}
    assert endpoint.received.empty()


def test_no_monitor(endpoint: Endpoint) -> None:
    """Without a slug, or without a DSN, nothing is sent."""
    clock = FakeClock()
    with alerts.monitored(SentrySettings(), host="h", clock=clock):
        pass
    settings = endpoint.settings.model_copy(update={"sweep_monitor": ""})
    alerts.configure(settings)
    with alerts.monitored(settings, host="h", clock=clock):
        pass
    alerts.flush()
    assert endpoint.received.empty()


@pytest.mark.parametrize(
    ("template", "slug"),
    [("bulkhead-sweep", "bulkhead-sweep"), ("{host}", "a-b"), ("x" * 80, "x" * 50), ("Sweep {host}!", "sweep-a-b")],
)
def test_slugs(template: str, slug: str) -> None:
    """As Sentry takes them."""
    assert alerts.monitor_slug(template, host="A.b") == slug


def test_without_a_dsn_nothing_happens() -> None:
    """Off is the default."""
    alerts.configure(SentrySettings())
    alerts.alert("disk.filled", "cannot write")
    alerts.flush()
    assert alerts._current.client is None


def test_endpoint_that_never_answers_does_not_hold_the_daemon_up() -> None:
    """Sentry's trouble must not become ours: sending returns at once, the end waits for its bound only."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        alerts.configure(SentrySettings(dsn=SecretStr(f"http://k@127.0.0.1:{silent.getsockname()[1]}/1")))
        began = time.monotonic()
        for _ in range(3 * alerts.QUEUE):
            alerts.alert("queue.unavailable", "cannot receive")
        sent = time.monotonic()
        alerts.flush(timeout_s=0.3)
        ended = time.monotonic()
    assert sent - began < 2
    assert ended - sent < 2


def test_endpoint_that_refuses_costs_the_alert_only() -> None:
    """A lost alert is a line in the log."""
    server = Endpoint(status=500)
    try:
        alerts.configure(server.settings)
        with capture_logs() as logs:
            alerts.alert("queue.unavailable", "cannot receive")
            alerts.flush()
    finally:
        server.close()
    assert [line["event"] for line in logs] == ["alert.dropped"]


def test_unreachable_endpoint_costs_the_alert_only() -> None:
    """Nobody listens: the daemon goes on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    alerts.configure(SentrySettings(dsn=SecretStr(f"http://k@127.0.0.1:{port}/1")))
    with capture_logs() as logs:
        alerts.alert("queue.unavailable", "cannot receive")
        alerts.flush()
    assert [line["event"] for line in logs] == ["alert.dropped"]


def test_dsn_that_is_none_is_refused_without_showing_it() -> None:
    """A refused start is logged; a key in the wrong place must not be in it."""
    broken = SentrySettings.model_construct(dsn=SecretStr(CANARY), environment="test")
    with pytest.raises(ConfigurationError, match=r"sentry\.dsn is no DSN") as caught:
        alerts.configure(broken)
    assert CANARY not in str(caught.value)
