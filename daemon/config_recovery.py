"""Settings of what looks after the daemon: its trust in the host, sweeps, alerts, metrics.

Edge, without I/O. `config.py` reads them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from daemon.config_section import Section
from daemon.config_values import (
    Destination,
    Dsn,
    Endpoint,
    Inventory,
    ListenAddress,
    Names,
    OptionalText,
    Prefixes,
    Seconds,
    TextFile,
)


class SweepSettings(Section):
    """Where a sweep looks for documents of which no message has come."""

    prefixes: Prefixes = ()
    """`s3://bucket/prefix` whose objects must all have been attempted; none: only the ledger is asked."""
    inventory: Inventory = ""
    """A file, or `s3://bucket/key`, that lists documents: one URI a line, or CSV of S3 Inventory; `.gz` too."""
    inventory_columns: Names = (
        "Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag",
    )  # fmt: skip
    """Columns of a CSV inventory, as `fileSchema` in its `manifest.json` says."""
    suffixes: Names = (".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff")
    """Objects of prefixes and CSV inventories that are documents, by the end of their names; none: all."""
    forgotten_after_s: Annotated[float, Field(ge=0, le=14 * 86_400)] = 21_600.0
    """Younger ones are not forgotten yet: their messages may still be on their way."""
    most_listed: Annotated[int, Field(ge=1_000, le=10_000_000)] = 50_000
    """Entries that one sweep reads of each source; the next one goes on from there."""
    most_enqueued: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Forgotten documents that one sweep enqueues, less what waits in the queue already."""


class HostSettings(Section):
    """When this host stops blaming its documents."""

    canary: bool = True
    """Convert a canary before a document is held to account for dying children; off: documents are always to blame."""
    suspect_after: Annotated[int, Field(ge=1, le=1_000)] = 3
    """So many different documents in trouble, with no clean one between, ask for the canary at once."""
    canary_timeout_s: Seconds = 60.0
    """Deadline of one canary; it takes about two seconds."""
    canary_pause_s: Seconds = 5.0
    """Pause after the second failed canary, then doubled each time; the second one comes at once, in a fresh zygote."""
    longest_canary_pause_s: Seconds = 300.0
    """The pause never grows beyond this."""


class NoticesSettings(Section):
    """Who is told when a document has ended; nobody unless set."""

    destination: Destination = ""
    """URL of an SQS queue or ARN of an SNS topic, FIFO or not, that is told of each document's end; empty: nobody."""
    region: OptionalText = None
    """Its AWS region; the one that its name bears when unset."""
    endpoint_url: Endpoint = None
    """Another endpoint of SQS or SNS, for instance an emulator on loopback."""


class SentrySettings(Section):
    """Alerts; off without a DSN."""

    dsn: Dsn = SecretStr("")
    """Where alerts go; empty: nowhere. Events carry no document content and no credentials."""
    environment: str = "production"
    """Shown beside each alert."""
    sweep_monitor: Annotated[str, Field(max_length=100)] = "bulkhead-sweep-{host}"
    """Slug of the cron monitor that sweeps check in with, `{host}` being this host's name; empty: none."""
    sweep_every_min: Annotated[int, Field(ge=1, le=10_080)] = 15
    """The monitor is told to expect a sweep this often; longer than the timer's interval and one sweep together."""
    sweep_longest_min: Annotated[int, Field(ge=1, le=1_440)] = 15
    """The monitor calls a sweep that takes longer a failed one."""


class MetricsSettings(Section):
    """Figures for Prometheus; off unless set."""

    listen: ListenAddress = ""
    """`127.0.0.1:9464` or the like, where the daemon answers `/metrics`; empty: nowhere."""
    textfile_dir: TextFile = ""
    """Folder of node_exporter's textfile collector, where sweep and audit write theirs; empty: nowhere."""
