"""Serves the daemon's metrics over HTTP, on one address, to whoever may reach it.

Edge. Rules: off unless an address is configured; a refused address is a refused start; serving happens in threads of
its own, which end with the process; nothing is served but figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import start_http_server

from daemon.config_recovery import MetricsSettings
from daemon.errors import ResourceError
from daemon.log import count_lines_by
from daemon.metrics import DaemonMetrics

log = structlog.get_logger()


@contextmanager
def served(settings: MetricsSettings, metrics: DaemonMetrics) -> Iterator[None]:
    """Count every line of ours inside, and answer `GET /metrics`. Raises `ResourceError` when the address is taken."""
    if not settings.listen:
        yield
        return
    host, _, port = settings.listen.rpartition(":")
    try:
        server, thread = start_http_server(
            int(port), addr=host.removeprefix("[").removesuffix("]"), registry=metrics.registry
        )
    except OSError as error:
        message = f"cannot serve metrics on {settings.listen}: {error.strerror or error}; correct metrics.listen"
        raise ResourceError(message) from error
    count_lines_by(metrics.count)
    log.info("metrics.served", address=settings.listen, port=server.server_port)
    try:
        yield
    finally:
        count_lines_by(None)
        server.shutdown()
        server.server_close()
        thread.join()
