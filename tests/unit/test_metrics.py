"""Figures: they say what the log says, they cost nobody anything, and no label grows without bound."""

from __future__ import annotations

import http.client
import io
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from daemon import log as log_module
from daemon.config import LogSettings
from daemon.config_recovery import MetricsSettings
from daemon.errors import ResourceError
from daemon.log import count_lines_by
from daemon.metrics import _EVENTS, DaemonMetrics, described
from daemon.metrics_server import served
from daemon.metrics_textfile import written
from daemon.model import Cause
from daemon.standing import Phase, Standing
from tests.fakes.clock import FakeClock

SETTLED = {
    "event": "attempt.settled", "level": "info", "status": "partial", "cause": "converted", "elapsed_s": 7.0,
    "store_s": 0.5, "pages_by_state": {"text": 3, "failed": 1}, "document_id": "secret-name", "uri": "s3://b/secret",
}  # fmt: skip
EXITED = {
    "event": "child.exited", "level": "warning", "cause": Cause.CRASHED, "elapsed_s": 3.0, "peak_rss_bytes": 2**29,
}  # fmt: skip


def value(metrics: DaemonMetrics, name: str, **labels: str) -> float | None:
    """One sample."""
    return metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def metrics() -> DaemonMetrics:
    """All zero."""
    return DaemonMetrics(clock=FakeClock())


@pytest.fixture
def _logging() -> Iterator[None]:
    """The daemon's own logging, and nothing of it afterwards."""
    before = list(logging.getLogger().handlers)
    yield
    count_lines_by(None)
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = before
    logging.captureWarnings(capture=False)


def test_what_lines_come_to(metrics: DaemonMetrics) -> None:
    """Each figure from the line that has it."""
    for line in (
        SETTLED,
        EXITED,
        {"event": "document.fetched", "level": "info", "size_bytes": 1000, "elapsed_s": 0.2},
        {"event": "message.received", "level": "info"},
        {"event": "message.released", "level": "info", "cause": "drained"},
        {"event": "message.dead_lettered", "level": "warning", "cause": "timeout"},
        {"event": "attempt.marked", "level": "info"},
        {"event": "zygote.died", "level": "warning"},
        {"event": "heartbeat.failed", "level": "warning"},
    ):
        metrics.count(line)
    assert value(metrics, "bulkhead_documents_total", status="partial", cause="converted") == 1
    assert value(metrics, "bulkhead_document_seconds_sum", status="partial") == 7
    assert [value(metrics, "bulkhead_pages_total", state=state) for state in ("text", "failed")] == [3, 1]
    steps = [value(metrics, "bulkhead_step_seconds_sum", step=step) for step in ("fetch", "convert", "store")]
    assert steps == [0.2, 3, 0.5]
    assert value(metrics, "bulkhead_children_total", cause="crashed") == 1
    assert value(metrics, "bulkhead_child_peak_bytes_sum") == 2**29
    assert value(metrics, "bulkhead_fetched_bytes_total") == 1000
    assert value(metrics, "bulkhead_messages_released_total", cause="drained") == 1
    assert value(metrics, "bulkhead_dead_letters_total", cause="timeout") == 1
    assert value(metrics, "bulkhead_attempts_total") == 1
    assert value(metrics, "bulkhead_zygote_deaths_total") == 1
    assert value(metrics, "bulkhead_heartbeats_failed_total") == 1
    assert value(metrics, "bulkhead_last_receive_timestamp_seconds") == FakeClock().now().timestamp()
    assert value(metrics, "bulkhead_events_total", event="child.exited", level="warning") == 1
    assert value(metrics, "bulkhead_lines_uncounted_total") == 0


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"event": "attempt.settled"},
        {"event": "child.exited", "cause": None, "elapsed_s": "long", "peak_rss_bytes": []},
        {"event": "document.fetched", "size_bytes": -1, "elapsed_s": 0.1},
        {"event": ["x"], "level": 7},
    ],
)
def test_a_line_that_cannot_be_counted_costs_nothing(metrics: DaemonMetrics, line: dict[str, object]) -> None:
    """A bug in a figure is a figure, and never a document's end."""
    metrics.count(line)
    assert (value(metrics, "bulkhead_lines_uncounted_total") or 0) <= 1
    assert value(metrics, "bulkhead_events_total", event="other", level="") in {None, 1}


def test_labels_are_bounded(metrics: DaemonMetrics) -> None:
    """Whatever a line says: enums, names of events, or `other`; no id, no URI, no text."""
    for number in range(50):
        metrics.count({**SETTLED, "status": f"s{number}", "cause": f"c{number}", "pages_by_state": {f"p{number}": 1}})
        metrics.count({**EXITED, "cause": f"s3://bucket/{number}"})
        metrics.count({"event": f"new.{number}", "level": "info"})
    allowed = _EVENTS | set(Cause) | set(Phase) | {"other", "info", "warning", "fetch", "convert", "store"}
    for family in metrics.registry.collect():
        for sample in family.samples:
            labels = {key: label for key, label in sample.labels.items() if key not in {"le", "version"}}
            assert set(labels.values()) <= allowed, sample


def test_names_follow_the_conventions() -> None:
    """Ours begin with `bulkhead_` and end with a unit or `_total`; each has a meaning and is listed once."""
    rows = described(DaemonMetrics(clock=FakeClock()).registry)
    assert len({row[0] for row in rows}) == len(rows) > 20
    for name, kind, labels, meaning in rows:
        assert name.startswith("bulkhead_")
        assert name.endswith("_total") == (kind == "counter")
        assert meaning.endswith((".", "page", "never.", "version."))
        assert "id" not in labels.split(", ")


@pytest.mark.usefixtures("_logging")
@pytest.mark.parametrize("level", ["info", "error"])
def test_lines_are_counted_whatever_the_log_level_is(level: str) -> None:
    """`log.level = "error"` must not make a busy daemon look idle; what is counted is not written for that."""
    stream, metrics = io.StringIO(), DaemonMetrics(clock=FakeClock())
    log_module.configure(LogSettings(level=level, format="json"), stream=stream)
    with served(MetricsSettings(listen="127.0.0.1:0"), metrics):
        structlog.get_logger().info("message.received", message_id="m")
    structlog.get_logger().info("message.received", message_id="after the end")
    assert value(metrics, "bulkhead_messages_received_total") == 1
    assert ("message.received" in stream.getvalue()) == (level == "info")


def scraped(port: int) -> dict[str, float]:
    """What is served, samples without labels by name."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}


@pytest.mark.usefixtures("_logging")
def test_served_over_http(metrics: DaemonMetrics) -> None:
    """What is in hand is asked for at each scrape; when the daemon has ended nobody answers."""
    log_module.configure(LogSettings(), stream=io.StringIO())
    with capture_logs() as lines, served(MetricsSettings(listen="127.0.0.1:0"), metrics):
        port = next(line["port"] for line in lines if line["event"] == "metrics.served")
        metrics.watch(lambda: Standing(phase=Phase.PAUSED, in_hand=3, held_back=2))
        figures = scraped(port)
        assert figures["bulkhead_messages_in_hand"] == 3
        assert figures["bulkhead_documents_held_back"] == 2
        assert figures["process_resident_memory_bytes"] > 0
        assert metrics.registry.get_sample_value("bulkhead_phase", {"phase": "paused"}) == 1
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/metrics")
        assert connection.getresponse().status >= 400
        connection.close()
    with pytest.raises(urllib.error.URLError):
        scraped(port)


def test_an_address_that_is_taken_is_a_refused_start(metrics: DaemonMetrics) -> None:
    """Said before anything is received, with the setting's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        serving = served(MetricsSettings(listen=listen), metrics)
        with pytest.raises(ResourceError, match=r"correct metrics\.listen"), serving:
            pytest.fail("it must not begin")


@pytest.mark.parametrize("listen", ["9464", "localhost:9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "::1:x"])
def test_an_address_that_is_none(listen: str) -> None:
    """A name could mean every interface."""
    with pytest.raises(ValueError, match="must"):
        MetricsSettings(listen=listen)


def test_off_by_default(metrics: DaemonMetrics) -> None:
    """Nobody listens, nothing is counted."""
    with capture_logs() as lines, served(MetricsSettings(), metrics):
        pass
    assert lines == []


def figures(path: Path) -> dict[tuple[str, str], float]:
    """Samples of a file by name and label."""
    families = text_string_to_metric_families(path.read_text())
    return {
        (each.name, next(iter(each.labels.values()), "")): each.value for family in families for each in family.samples
    }


def test_a_sweep_writes_its_figures(tmp_path: Path) -> None:
    """Whole files that the collector may read; a failed run keeps the instant of the last good one."""
    clock = FakeClock()
    with written(str(tmp_path), "sweep", clock=clock) as told:
        clock.advance(3)
        told.done |= {"reclaimed": 2, "parked": 0}
        told.parked |= {"crashed": 7}
    good = clock.now().timestamp()
    last = figures(tmp_path / "bulkhead_sweep.prom")
    assert last["bulkhead_sweep_done", "reclaimed"] == 2
    assert last["bulkhead_sweep_done", "parked"] == 0
    assert last["bulkhead_parked", "crashed"] == 7
    assert (last["bulkhead_sweep_last_run_seconds", ""], last["bulkhead_sweep_succeeded", ""]) == (3, 1)
    clock.advance(600)
    with pytest.raises(ZeroDivisionError), written(str(tmp_path), "sweep", clock=clock):
        clock.advance(1 / 0)
    assert figures(tmp_path / "bulkhead_sweep.prom")["bulkhead_sweep_succeeded", ""] == 0
    assert figures(tmp_path / "bulkhead_sweep_success.prom") == {
        ("bulkhead_sweep_last_success_timestamp_seconds", ""): good
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bulkhead_sweep.prom", "bulkhead_sweep_success.prom"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_an_audit_writes_every_check(tmp_path: Path) -> None:
    """Zero is a figure too: what has none cannot be alerted on."""
    with written(str(tmp_path), "audit", clock=FakeClock()) as told:
        told.findings |= {"lost": 0, "abandoned": 3}
        told.documents = 9
    last = figures(tmp_path / "bulkhead_audit.prom")
    assert [last["bulkhead_audit_findings", check] for check in ("lost", "abandoned")] == [0, 3]
    assert last["bulkhead_audit_documents", ""] == 9


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    """A full disk or a wrong path costs the figures and a line, never the sweep."""
    for folder in (tmp_path / "none", Path("/proc")):
        with capture_logs() as lines, written(str(folder), "sweep", clock=FakeClock()):
            pass
        assert [line["event"] for line in lines] == ["metrics.not_written"] * 2
    (tmp_path / "bulkhead_sweep.prom").mkdir()
    (tmp_path / "bulkhead_sweep.prom" / "in the way").touch()
    with capture_logs() as lines, written(str(tmp_path), "sweep", clock=FakeClock()):
        pass
    assert [line["event"] for line in lines] == ["metrics.not_written"]
    assert list(tmp_path.glob(".*")) == [], "nothing half-written is left"


def test_nowhere(tmp_path: Path) -> None:
    """Off is the default."""
    with written("", "sweep", clock=FakeClock()) as told:
        told.done["reclaimed"] = 1
    assert list(tmp_path.iterdir()) == []
