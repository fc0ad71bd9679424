"""Figures for Prometheus, made of the daemon's own log lines.

Edge. Rules: whoever works never counts: every line of ours passes here, whatever `log.level` is, and what it says is
counted, so that a figure and its line cannot differ. Counting never raises and never waits. The values of a label are
members of an enum or of `events.py`, or `other`; never an id, a URI or a text. Nothing here is read back to decide.
`metrics_server.py` serves these, `metrics_textfile.py` writes those of the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

from daemon import __version__
from daemon.clock import Clock
from daemon.events import ErrorEvent, InfoEvent, WarningEvent
from daemon.model import Cause, PageState, ResultStatus
from daemon.standing import Phase, Standing

#: From a page to the longest document, in seconds.
_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3_600, 14_400)
#: From a warm child to what a large host gives one, in bytes.
_BYTES = tuple(2**28 * factor for factor in (1, 2, 3, 4, 6, 8, 12, 16, 32))
_EVENTS = frozenset(name for kind in (InfoEvent, WarningEvent, ErrorEvent) for name in get_args(kind))

_Line = Mapping[str, Any]


class Step(StrEnum):
    """Parts of an attempt whose seconds are measured."""

    FETCH = "fetch"
    #: One child, from its start to its end.
    CONVERT = "convert"
    STORE = "store"


class DaemonMetrics:
    """The daemon's figures; one for each process, its methods safe to call from any thread."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._uncounted = Counter(
            "bulkhead_lines_uncounted", "Log lines that could not be counted: a bug.", registry=registry
        )
        self._events = Counter(
            "bulkhead_events", "Log lines by event and level; every event is in this page.", ["event", "level"],
            registry=registry,
        )  # fmt: skip
        self._documents = Counter(
            "bulkhead_documents", "Documents that were settled, by status and cause.", ["status", "cause"],
            registry=registry,
        )  # fmt: skip
        self._document_seconds = Histogram(
            "bulkhead_document_seconds", "Seconds of an attempt that settled its document, by status.", ["status"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._pages = Counter("bulkhead_pages", "Pages of settled documents, by state.", ["state"], registry=registry)
        self._attempts = Counter("bulkhead_attempts", "Attempts that began.", registry=registry)
        self._step_seconds = Histogram(
            "bulkhead_step_seconds", "Seconds of one step of an attempt.", ["step"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._children = Counter(
            "bulkhead_children", "Children that ended, by what became of them.", ["cause"], registry=registry
        )
        self._child_bytes = Histogram(
            "bulkhead_child_peak_bytes", "Peak resident memory of a child.", buckets=_BYTES, registry=registry
        )
        self._fetched_bytes = Counter("bulkhead_fetched_bytes", "Bytes of documents fetched.", registry=registry)
        self._received = Counter("bulkhead_messages_received", "Messages received.", registry=registry)
        self._deleted = Counter("bulkhead_messages_deleted", "Messages deleted.", registry=registry)
        self._released = Counter(
            "bulkhead_messages_released", "Messages given back, by cause.", ["cause"], registry=registry
        )
        self._dead_letters = Counter(
            "bulkhead_dead_letters", "Dead letters sent, by cause.", ["cause"], registry=registry
        )
        self._last_receive = Gauge(
            "bulkhead_last_receive_timestamp_seconds", "When a message was last received; 0: never.",
            registry=registry,
        )  # fmt: skip
        self._last_settled = Gauge(
            "bulkhead_last_settled_timestamp_seconds", "When a document was last settled; 0: never.",
            registry=registry,
        )  # fmt: skip
        self._zygotes = Counter("bulkhead_zygote_starts", "Zygotes that became ready.", registry=registry)
        self._zygote_deaths = Counter("bulkhead_zygote_deaths", "Zygotes that died while needed.", registry=registry)
        self._retried = Counter(
            "bulkhead_queue_calls_retried", "Calls to the queue that failed and were tried again.", registry=registry
        )
        self._heartbeats = Counter(
            "bulkhead_heartbeats_failed", "Extensions of messages and leases that failed this time.",
            registry=registry,
        )  # fmt: skip
        self._leases = Counter("bulkhead_leases_lost", "Receipts and leases that were lost.", registry=registry)
        self._in_hand = Gauge("bulkhead_messages_in_hand", "Messages whose receipt is held.", registry=registry)
        self._held_back = Gauge(
            "bulkhead_documents_held_back", "Documents that wait for memory while a worker is free.", registry=registry
        )
        self._phase = Gauge("bulkhead_phase", "1 for what the daemon is doing now.", ["phase"], registry=registry)
        info = Gauge("bulkhead_build_info", "1, with the version.", ["version"], registry=registry)
        info.labels(__version__).set(1)
        self._counts: Mapping[str, Callable[[_Line], None]] = {
            "attempt.marked": lambda _: self._attempts.inc(),
            "attempt.settled": self._settled,
            "child.exited": self._exited,
            "document.fetched": self._fetched,
            "message.received": self._message,
            "message.deleted": lambda _: self._deleted.inc(),
            "message.released": lambda line: self._released.labels(_member(Cause, line.get("cause"))).inc(),
            "message.dead_lettered": lambda line: self._dead_letters.labels(_member(Cause, line.get("cause"))).inc(),
            "zygote.ready": lambda _: self._zygotes.inc(),
            "zygote.died": lambda _: self._zygote_deaths.inc(),
            "queue.retried": lambda _: self._retried.inc(),
            "heartbeat.failed": lambda _: self._heartbeats.inc(),
            "lease.lost": lambda _: self._leases.inc(),
        }

    def count(self, line: _Line) -> None:
        """Take in one line of the log; never raises."""
        try:
            event = str(line.get("event"))
            known = event if event in _EVENTS else "other"
            self._events.labels(known, line.get("level", "")).inc()
            if known in self._counts:
                self._counts[known](line)
        except Exception:  # noqa: BLE001 - a figure must not cost a document, and there is nobody to tell but a figure
            self._uncounted.inc()

    def watch(self, standing: Callable[[], Standing]) -> None:
        """From now on show what `standing` says at each scrape."""
        self._in_hand.set_function(lambda: standing().in_hand)
        self._held_back.set_function(lambda: standing().held_back)
        for phase in Phase:
            self._phase.labels(phase).set_function(partial(_is, standing, phase))

    def _settled(self, line: _Line) -> None:
        status = _member(ResultStatus, line.get("status"))
        self._documents.labels(status, _member(Cause, line.get("cause"))).inc()
        self._document_seconds.labels(status).observe(line["elapsed_s"])
        self._last_settled.set(self._clock.now().timestamp())
        for state, pages in line["pages_by_state"].items():
            self._pages.labels(_member(PageState, state)).inc(pages)
        if line.get("store_s"):
            self._step_seconds.labels(Step.STORE).observe(line["store_s"])

    def _exited(self, line: _Line) -> None:
        self._children.labels(_member(Cause, line.get("cause"))).inc()
        self._step_seconds.labels(Step.CONVERT).observe(line["elapsed_s"])
        self._child_bytes.observe(line["peak_rss_bytes"])

    def _fetched(self, line: _Line) -> None:
        self._fetched_bytes.inc(line["size_bytes"])
        self._step_seconds.labels(Step.FETCH).observe(line["elapsed_s"])

    def _message(self, _line: _Line) -> None:
        self._received.inc()
        self._last_receive.set(self._clock.now().timestamp())


def _is(standing: Callable[[], Standing], phase: Phase) -> float:
    return float(standing().phase is phase)


def _member(kind: type[StrEnum], value: object) -> str:
    """The value as a label: a member's, or `other`."""
    return str(value) if value in set(kind) else "other"


def described(registry: CollectorRegistry) -> list[tuple[str, str, str, str]]:
    """(name, kind, labels, meaning) of our own metrics, in the order in which they were made."""
    rows = []
    for collector in registry._collector_to_names:  # noqa: SLF001 - the library tells labels nowhere else
        if isinstance(collector, MetricWrapperBase):
            labels = ", ".join(collector._labelnames)  # noqa: SLF001 - the same
            for family in collector.describe():
                suffix = "_total" if family.type == "counter" else ""
                rows.append((f"{family.name}{suffix}", family.type, labels, family.documentation))
    return rows
