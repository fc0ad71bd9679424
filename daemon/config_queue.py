"""Settings of the queues, and of when what came from them is given up.

Edge, without I/O. `config.py` reads them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from daemon.config_section import Section
from daemon.config_values import Endpoint, OptionalText, QueueUrl, Seconds


class QueueSettings(Section):
    """Where messages come from and dead letters go."""

    url: QueueUrl = ""
    """URL of the SQS queue. Required by `run` and `submit`."""
    dead_letter_url: QueueUrl = ""
    """URL of the dead-letter queue. Required by `run`."""
    region: OptionalText = None
    """AWS region of the queues; the SDK's own choice when unset."""
    endpoint_url: Endpoint = None
    """Another SQS endpoint, for instance an emulator on loopback."""
    wait_s: Annotated[int, Field(ge=0, le=20)] = 20
    """Long polling; SQS allows 20 s at most."""
    visibility_s: Annotated[int, Field(ge=10, le=43_200)] = 60
    """How long a message stays hidden after each heartbeat; a dead daemon's message returns within this."""
    retry_for_s: Seconds = 60.0
    """How long one call is retried, with jitter, before the world is called unavailable."""

    @property
    def heartbeat_s(self) -> float:
        """Interval of heartbeats: a third of the visibility, so that two may fail."""
        return self.visibility_s / 3


class RetrySettings(Section):
    """When a document is given up."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Counted attempts of one document, over all hosts; then the dead-letter queue."""
    max_page_crashes: Annotated[int, Field(ge=1, le=1_000)] = 12
    """Failures of single pages before the rest of the document goes without OCR; after as many again it is given up."""
    partial: Literal["deliver", "dead_letter"] = "deliver"
    """What becomes of a document with lost pages: published as `partial`, or sent to the dead-letter queue."""
    max_reclaims: Annotated[int, Field(ge=0, le=100)] = 3
    """How often a sweep sends a given-up document back to the queue, all hosts together; then it is parked."""
    reclaim_delay_s: Annotated[float, Field(ge=0, le=900)] = 60.0
    """How long a reclaimed document waits in the queue; four times as long each next time, up to 15 min."""
    release_delay_s: Annotated[float, Field(ge=0, le=43_200)] = 30.0
    """How long a released message stays hidden after the first world's failure; doubled each time, up to 15 min."""
