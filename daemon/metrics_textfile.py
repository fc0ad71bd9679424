"""What a sweep or an audit came to, as a file for node_exporter's textfile collector.

Edge. Rules: a file is replaced whole, and readable by the collector's own user; two files a command, since one that
failed must keep the instant of the last that did not; a file that cannot be written costs a line in the log, never the
command. Values of labels are enums' or the sweep's own words.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import structlog
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from daemon.clock import Clock

log = structlog.get_logger()

Command = Literal["sweep", "audit"]


@dataclass(slots=True, kw_only=True)
class Figures:
    """What a command came to; filled while it runs."""

    #: A sweep's: how often each thing was done.
    done: dict[str, int] = field(default_factory=dict)
    #: A sweep's: what waits for a person, by cause.
    parked: dict[str, int] = field(default_factory=dict)
    #: An audit's: every check with its number of findings.
    findings: dict[str, int] = field(default_factory=dict)
    #: An audit's: documents it looked at.
    documents: int | None = None


@contextmanager
def written(folder: str, command: Command, *, clock: Clock) -> Iterator[Figures]:
    """Figures that are written to `folder` (empty: nowhere) afterwards, whatever happened."""
    figures, started, succeeded = Figures(), clock.monotonic(), False
    try:
        yield figures
        succeeded = True
    finally:
        if folder:
            now = clock.now().timestamp()
            _write(
                Path(folder) / f"bulkhead_{command}.prom",
                ran(command, figures, now, clock.monotonic() - started, succeeded=succeeded),
            )
            if succeeded:
                _write(Path(folder) / f"bulkhead_{command}_success.prom", success(command, now))


def ran(command: Command, figures: Figures, now: float, seconds: float, *, succeeded: bool) -> CollectorRegistry:
    """Figures of the last run."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, value: float) -> None:
        Gauge(f"bulkhead_{command}_{name}", text, registry=registry).set(value)

    def gauges(name: str, text: str, label: str, values: Mapping[str, int]) -> None:
        family = Gauge(f"bulkhead_{name}", text, [label], registry=registry)
        for member, value in values.items():
            family.labels(member).set(value)

    gauge("last_run_timestamp_seconds", f"When the last {command} ended, however it did.", now)
    gauge("last_run_seconds", f"How long the last {command} took.", seconds)
    gauge("succeeded", f"1 when the last {command} came to its end, 0 when it failed.", float(succeeded))
    if command == "sweep":
        gauges("sweep_done", "What the last sweep did, by kind.", "what", figures.done)
        gauges("parked", "Documents that wait for a person, by cause.", "cause", figures.parked)
    else:
        gauges("audit_findings", "Findings of the last audit, by check.", "check", figures.findings)
        if figures.documents is not None:
            gauge("documents", "Documents that the last audit looked at.", figures.documents)
    return registry


def success(command: Command, now: float) -> CollectorRegistry:
    """When it last came to its end."""
    registry = CollectorRegistry()
    name = f"bulkhead_{command}_last_success_timestamp_seconds"
    Gauge(name, f"When a {command} last came to its end.", registry=registry).set(now)
    return registry


def _write(path: Path, registry: CollectorRegistry) -> None:
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(generate_latest(registry))
            os.fchmod(file.fileno(), 0o644)
        Path(temporary).replace(path)
    except OSError as error:
        log.warning("metrics.not_written", path=str(path), detail=error.strerror or str(error))
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()
