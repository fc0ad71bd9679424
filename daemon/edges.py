"""The outside things that a delivery passes through, as the shell sees them, and what bounds the work.

Shell. Interfaces and values only; `wiring.py` fills them with the real ones, tests with fakes that passed the
same contract suites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from daemon.admission import Pool
from daemon.checkpoints import Checkpoints
from daemon.children import ChildJob, ChildResult, Deadlines, KillSwitch
from daemon.clock import Clock
from daemon.decide import Rules
from daemon.fetch import Fetched
from daemon.heartbeat import Heartbeat
from daemon.ledger import Ledger
from daemon.memory import Memory
from daemon.model import Document, PageRecord
from daemon.pulse import Pulse
from daemon.queue import Queue
from daemon.quota import Part, Quota
from daemon.spool import Flag
from daemon.store import Store
from daemon.trust import Trust
from daemon.turns import Turns


class Source(Protocol):
    """Where bytes come from."""

    def fetch(self, document: Document, *, cancelled: Flag, part: Part | None = None) -> Fetched:
        """The document's bytes, checked; raises `DocumentError` or `WorldError`, and with `part` like `Part.reach`."""
        ...


class Converter(Protocol):
    """What turns bytes into a conversion in a process that may die."""

    def run(
        self,
        job: ChildJob,
        document: BinaryIO,
        *,
        finished: BinaryIO | None,
        deadlines: Deadlines,
        switch: KillSwitch,
        on_page: Callable[[PageRecord, int], None],
    ) -> ChildResult:
        """One child's life, to its end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The outside things that a delivery passes through, in their order."""

    queue: Queue
    ledger: Ledger
    source: Source
    converter: Converter
    store: Store
    checkpoints: Checkpoints
    heartbeat: Heartbeat
    clock: Clock
    #: Called between two steps with the failpoint's name, the document's id and the attempt's number.
    failpoint: Callable[[str, str | None, int | None], None]
    #: What the engine says of itself; part of every checkpoint's fingerprint.
    engine: Mapping[str, object]
    #: Where unnamed files lie; the system's folder for temporary files when None.
    scratch: Path | None = None
    #: Handed to each child; see `failpoints.parse`.
    child_failpoints: str = ""
    #: Where the parent's threads say that they make progress.
    pulse: Pulse = field(default_factory=Pulse)
    #: Whether documents or this host are to blame.
    trust: Trust = field(default_factory=Trust)
    #: Who converts at the same time, with how much memory; by default nobody waits.
    turns: Turns = field(default_factory=lambda: Turns(Pool.of_shares(1_000)))
    #: How much a document asks for.
    memory: Memory = field(default_factory=lambda: Memory(Pool.of_shares(1_000)))
    #: How much may be fetched before its turn; by default nothing.
    quota: Quota = field(default_factory=Quota)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the work on one document."""

    document_timeout_s: float
    #: Added to the deadline for each page, up to `longest_timeout_s` in all.
    per_page_s: float
    longest_timeout_s: float
    rules: Rules
    #: Publish a document some of whose pages were lost.
    deliver_partial: bool
    lease_s: float
    max_attempts: int
