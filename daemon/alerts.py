"""Alerts to Sentry: what a person must look at, and nothing that a document holds.

Edge. Off without a DSN. Uses a client of its own, with no integration, no hook into logging or exceptions, no
breadcrumb and no local variable: an event is built here, field by field, and each field passes
`redact.scrub`. Sending happens in the SDK's thread; an alert that cannot be delivered is dropped and logged, and
neither a dead nor a silent endpoint delays the daemon beyond `FLUSH_S`, once, at its end. Every ERROR line of the
log is an alert, since both mean that a person must act.
"""

from __future__ import annotations

import re
import sys
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import sentry_sdk
import structlog
from sentry_sdk.crons import capture_checkin
from sentry_sdk.transport import HttpTransport
from sentry_sdk.types import Event, Hint

from daemon import __version__
from daemon.clock import Clock
from daemon.config_recovery import SentrySettings
from daemon.errors import ConfigurationError
from daemon.events import EventName
from daemon.log import tell_errors_to
from daemon.redact import scrub, scrub_text

if TYPE_CHECKING:
    from sentry_sdk._types import MonitorConfig

log = structlog.get_logger()

#: How long the end of the daemon may wait for alerts to leave.
FLUSH_S = 2.0
#: Alerts that wait while the endpoint does not answer; more are dropped.
QUEUE = 32
#: What may leave, whatever the SDK adds in a later version.
_KEPT = frozenset({
    "event_id", "timestamp", "level", "message", "tags", "extra", "fingerprint",
    "environment", "release", "server_name", "platform", "sdk",
})  # fmt: skip


_CHECK_IN = frozenset({
    "event_id", "timestamp", "type", "check_in_id", "monitor_slug", "status", "duration", "environment", "release",
    "monitor_config",
})  # fmt: skip
#: How late a check-in may be.
MARGIN_MIN = 5

#: Fields of a log line that an alert says otherwise.
_NOT_TAGS = frozenset({"at", "level", "event", "detail", "message", "exc_info", "name", "fingerprint", "error"})


@dataclass(slots=True)
class _Current:
    """The client of this process; None: alerts are off."""

    client: sentry_sdk.Client | None = None


_current = _Current()


class _Transport(HttpTransport):
    """The SDK's own, which says once that alerts are being lost; the log line beside each alert has the substance."""

    _said = False

    def on_dropped_event(self, _reason: str) -> None:
        """Log the first loss."""
        if not self._said:
            self._said = True
            log.warning("alert.dropped", reason=_reason)

    def kill(self) -> None:
        """End; what is still on its way is nobody's business any more."""
        self._said = True
        super().kill()


def configure(settings: SentrySettings, *, release: str = __version__) -> None:
    """Send alerts to `settings.dsn` from now on; an empty one turns them off. Raises ConfigurationError."""
    flush()
    dsn = settings.dsn.get_secret_value()
    if not dsn:
        return
    try:
        _current.client = sentry_sdk.Client(
            dsn=dsn,
            environment=settings.environment,
            release=f"bulkheadd@{release}",
            transport=_Transport,
            transport_queue_size=QUEUE,
            before_send=_before_send,
            default_integrations=False,
            auto_enabling_integrations=False,
            auto_session_tracking=False,
            send_client_reports=False,
            include_local_variables=False,
            include_source_context=False,
            attach_stacktrace=False,
            max_breadcrumbs=0,
            max_request_body_size="never",
            spotlight=False,
            debug=False,
        )
    except ValueError as error:  # the SDK's BadDsn; its text holds the DSN
        raise ConfigurationError("cannot send alerts: sentry.dsn is no DSN; copy it again from Sentry") from error
    tell_errors_to(from_line)


def alert(
    name: EventName,
    message: str,
    *,
    fingerprint: tuple[str, ...] = (),
    level: Literal["warning", "error", "fatal"] = "error",
    error: BaseException | None = None,
    **tags: str | float | None,
) -> None:
    """Tell a person; returns at once and never raises for what the network does.

    Events with the same `name` and `fingerprint` become one issue. `error` adds its type and traceback,
    without local variables.
    """
    _send(name, message, fingerprint=fingerprint, level=level, error=error, tags=tags)


def from_line(line: Mapping[str, Any]) -> None:
    """The alert of an ERROR line; same event and cause make one issue, whatever the document.

    A line that knows better has a `fingerprint` of its own.
    """
    fields = {
        key: value for key, value in line.items() if key not in _NOT_TAGS and isinstance(value, str | int | float)
    }
    told = line.get("exc_info")
    error = told if isinstance(told, BaseException) else sys.exc_info()[1] if told else None
    detail = str(line.get("detail") or line.get("message") or error or "")
    own = line.get("fingerprint") or ([line["cause"]] if line.get("cause") else [])
    _send(
        line["event"],
        f"{line['event']}: {detail}" if detail else line["event"],
        fingerprint=tuple(str(part) for part in own),
        level="error",
        error=error,
        tags=fields,
    )


def flush(*, timeout_s: float = FLUSH_S) -> None:
    """Let waiting alerts leave for up to `timeout_s`, then turn alerts off."""
    tell_errors_to(None)
    client, _current.client = _current.client, None
    if client is not None:
        client.close(timeout=timeout_s)


@contextmanager
def monitored(settings: SentrySettings, *, host: str, clock: Clock) -> Iterator[None]:
    """Check in with a cron monitor before and after what is done inside; one that never comes is then an alert itself.

    The monitor is made, or brought up to date, by the first check-in. Does nothing without a client or a slug.
    """
    slug = monitor_slug(settings.sweep_monitor, host=host)
    if _current.client is None or not slug:
        yield
        return
    schedule: MonitorConfig = {
        "schedule": {"type": "interval", "value": settings.sweep_every_min, "unit": "minute"},
        "checkin_margin": MARGIN_MIN,
        "max_runtime": settings.sweep_longest_min,
        "failure_issue_threshold": 1,
        "recovery_threshold": 1,
    }
    started, check_in_id = clock.monotonic(), uuid.uuid4().hex
    _check_in(slug, "in_progress", check_in_id, None, schedule)
    status = "error"
    try:
        yield
        status = "ok"
    finally:
        _check_in(slug, status, check_in_id, clock.monotonic() - started, schedule)


def monitor_slug(template: str, *, host: str) -> str:
    """`template` with the host's name, as Sentry takes it: lower case, 50 characters at most."""
    named = template.replace("{host}", host).lower()
    return re.sub(r"[^a-z0-9_-]+", "-", named)[:50].strip("-")


def _check_in(slug: str, status: str, check_in_id: str, duration: float | None, schedule: MonitorConfig) -> None:
    """Hand one check-in to the SDK's thread; the SDK finds its client in the current scope."""
    with sentry_sdk.new_scope() as scope:
        scope.set_client(_current.client)
        capture_checkin(slug, check_in_id, status, duration, schedule)


def _send(
    name: str,
    message: str,
    *,
    fingerprint: tuple[str, ...],
    level: Literal["warning", "error", "fatal"],
    error: BaseException | None,
    tags: Mapping[str, str | float | None],
) -> None:
    """Hand an event to the SDK's thread, if alerts are on."""
    client = _current.client
    if client is None:
        return
    event: Event = {
        "level": level,
        "message": message,
        "fingerprint": [name, *fingerprint],
        "tags": {**{key: str(value) for key, value in tags.items() if value is not None}, "event": name},
    }
    if error is not None:
        event["extra"] = {"error": type(error).__name__, "traceback": "".join(traceback.format_exception(error))}
    client.capture_event(event)


def _before_send(event: Event, _hint: Hint) -> Event | None:
    """Only fields that are known, each one masked and bounded."""
    if event.get("type") == "check_in":  # made here, of settings and figures alone
        return cast("Event", {key: value for key, value in event.items() if key in _CHECK_IN})
    kept: dict[str, Any] = {key: value for key, value in event.items() if key in _KEPT}
    for key in ("tags", "extra"):
        kept[key] = {name: scrub(value, key=name) for name, value in dict(kept.get(key) or {}).items()}
    kept["message"] = scrub_text(str(kept.get("message", "")))
    kept["fingerprint"] = [scrub_text(str(part), limit=200) for part in kept.get("fingerprint", ())]
    return kept  # type: ignore[return-value]  # a dict of the keys above
