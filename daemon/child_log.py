"""A child's own log lines, as frames to the parent.

Edge. Whatever the engine logs through `logging`, `warnings` or structlog becomes a LOG frame, bounded in
length and in number: a document must not be able to fill the daemon's log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, MutableMapping
from typing import Any, Literal

import structlog

from daemon import frames

#: Lines of one child; what comes after is dropped.
MAX_LINES = 200

Level = Literal["debug", "info", "warning", "error"]
Send = Callable[[frames.Frame], None]


class _Outlet:
    """Counts lines and sends the first of them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._left = MAX_LINES
        self._lock = threading.Lock()

    def write(self, level: Level, event: str, fields: dict[str, frames.LogValue]) -> None:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                return
        self._send(frames.LogLine(level=level, event=frames.clean(event), fields=fields))


class _Handler(logging.Handler):
    """`logging` to frames; records below WARNING of libraries are theirs alone."""

    def __init__(self, outlet: _Outlet) -> None:
        super().__init__(logging.WARNING)
        self._outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        self._outlet.write(level, record.getMessage(), {"logger": frames.clean(record.name)})


def send_through(send: Send) -> None:
    """Route every log line of this process through `send`, and nothing to stderr."""
    outlet = _Outlet(send)
    root = logging.getLogger()
    root.handlers[:] = [_Handler(outlet)]
    logging.captureWarnings(capture=True)

    def to_frame(_logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        level: Level = "error" if method in {"error", "critical", "exception"} else _level(method)
        fields = {frames.clean(str(key)): _value(value) for key, value in list(event.items())[:20] if key != "event"}
        outlet.write(level, str(event.get("event", "")), fields)
        raise structlog.DropEvent

    structlog.configure(processors=[to_frame], cache_logger_on_first_use=False)


def _level(method: str) -> Level:
    match method:
        case "debug":
            return "debug"
        case "warning" | "warn":
            return "warning"
        case _:
            return "info"


def _value(value: object) -> frames.LogValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else frames.clean(str(value))
    if isinstance(value, float) and value - value == 0.0:
        return value
    return frames.clean(str(value))
