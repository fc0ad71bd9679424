"""Log lines: JSON on a pipe, readable on a terminal, always on stderr.

Edge. `log = structlog.get_logger()` anywhere; `configure` once per process. A line is an event's name out
of `events.py` and typed fields. Nothing reaches the stream without `redact.scrub`: no document content, no
credentials, no line that journald would cut in two. `bound` adds the document's id and attempt to every
line of its thread, a library's lines too. A line that cannot be written is dropped, and nobody is hurt.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import structlog
from structlog.processors import ExceptionRenderer, TimeStamper
from structlog.stdlib import ProcessorFormatter
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

from daemon.config import LogSettings
from daemon.redact import Limits, scrub

#: journald cuts a line at 48 KiB (LineMax=) and the rest is no JSON; this leaves room for its own fields.
MAX_LINE_BYTES = 46_000
#: Frames of a traceback that are kept, innermost last.
MAX_FRAMES = 24
#: How much of each field a line holds, tried one after the other until the line is short enough.
_LINE_LIMITS = (Limits(), Limits(text=1_024), Limits(text=256, members=24), Limits(text=64, members=8, depth=2))

_Event = MutableMapping[str, Any]


#: Receives the fields of a line of ours that is ERROR or worse, `event` and `exc_info` among them.
Listener = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class _Listening:
    """Who is told of errors in this process, and who of every line."""

    listener: Listener | None = None
    counter: Listener | None = None


_listening = _Listening()


class _Stream(logging.StreamHandler[TextIO]):
    """Writes lines; one that cannot be written is dropped, since there is nowhere to say so."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's own name)
        """Drop `record`."""


def configure(settings: LogSettings, *, stream: TextIO | None = None) -> None:
    """Send every log line of this process, the libraries' too, to `stream` (stderr). Again: replaces the former."""
    target = stream if stream is not None else sys.stderr
    readable = settings.format == "console" or (settings.format == "auto" and target.isatty())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    handler = _Stream(target)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_library],
            processors=[ProcessorFormatter.remove_processors_meta, *_rendering(readable=readable, target=target)],
        )
    )
    root = logging.getLogger()
    for former in [each for each in root.handlers if isinstance(each, _Stream)]:
        root.removeHandler(former)
    root.addHandler(handler)
    # A library's debug lines hold bodies and headers, so theirs start at WARNING whatever ours start at.
    root.setLevel(max(level, logging.WARNING))
    _our_logger().setLevel(level)
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[*shared, _told, ProcessorFormatter.wrap_for_formatter],
        # INFO lines are counted, whether or not the logger below writes them.
        wrapper_class=structlog.make_filtering_bound_logger(min(level, logging.INFO)),
        logger_factory=_our_logger,
        cache_logger_on_first_use=False,
    )


def tell_errors_to(listener: Listener | None) -> None:
    """From now on call `listener` for each of our ERROR lines, in the thread that writes it; it must not raise."""
    _listening.listener = listener


def count_lines_by(counter: Listener | None) -> None:
    """From now on call `counter` for each line of ours that is INFO or worse, whatever `log.level` is.

    In the thread that writes it; it must not raise, and must not log.
    """
    _listening.counter = counter


@contextmanager
def bound(*, document_id: str, attempt: int | None = None) -> Iterator[None]:
    """Add the document, and the attempt when it has a number, to every line that this thread writes inside."""
    fields: dict[str, Any] = {"document_id": document_id}
    if attempt is not None:
        fields["attempt"] = attempt
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def _our_logger(*_args: Any) -> logging.Logger:
    """One logger for the whole package: `python -m daemon.child` must not log under the name `__main__`."""
    return logging.getLogger("daemon")


def _told(_logger: Any, _method: str, event: _Event) -> _Event:
    """Pass a line on to the counter, and an ERROR to the listener."""
    if _listening.counter is not None:
        _listening.counter(event)
    if _listening.listener is not None and event.get("level") in {"error", "critical"}:
        _listening.listener(dict(event))
    return event


def _name_library(_logger: Any, _method: str, event: _Event) -> _Event:
    """Make a library's line an event of ours: its text is a field, never a name."""
    record = event.get("_record")
    event["message"] = event.pop("event", "")
    event["logger"] = record.name if isinstance(record, logging.LogRecord) else ""
    event["event"] = "library.logged"
    return event


def _rendering(*, readable: bool, target: TextIO) -> list[Processor]:
    """Give the last steps of a line: exceptions, redaction, text."""
    if readable:
        console = structlog.dev.ConsoleRenderer(
            colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback, timestamp_key="at"
        )
        return [structlog.processors.format_exc_info, _scrubbed, console]
    structured = ExceptionRenderer(ExceptionDictTransformer(show_locals=False, max_frames=MAX_FRAMES, use_rich=False))
    return [structured, _json_line]


def _scrubbed(_logger: Any, _method: str, event: _Event) -> _Event:
    """Every field, masked and bounded."""
    return {key: scrub(value, key=key) for key, value in event.items()}


def _json_line(_logger: Any, _method: str, event: _Event) -> str:
    """One line of JSON below `MAX_LINE_BYTES`: the longest fields give way first, then the number of members."""
    first = {key: event.pop(key) for key in ("at", "level", "event") if key in event}
    line = ""
    for limits in _LINE_LIMITS:
        fields = {key: scrub(value, key=key, limits=limits) for key, value in (first | dict(event)).items()}
        line = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        if len(line.encode()) <= MAX_LINE_BYTES:
            return line
    kept = {key: scrub(value, key=key, limits=Limits(text=64)) for key, value in first.items()}
    return json.dumps(kept | {"dropped_fields": len(event)}, ensure_ascii=False)
