"""`bulkhead convert`: files and folders on this machine, without AWS.

Shell. The same parent, ledger, zygote and ladder as the daemon, between a queue in memory and a folder. What a
run finished is in the folder's ledger, so a second run skips what has not changed, failures included: the same
bytes would fail the same way. The biggest file goes first, since one picked up last would set the time of the whole
run; results are reported in the order in which they were asked for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daemon.attempt import DocumentEnded
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.convert_inputs import Input, describe, gather
from daemon.errors import EngineError, WorldError
from daemon.ledger import Ledger
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause, Message, Options, Outcome, ResultStatus, Settled
from daemon.queue_local import LocalQueue
from daemon.stop_signals import on_stop_signal
from daemon.store import open_store
from daemon.wiring import Running, assembled, ledger_path

#: State of `convert` below its output folder.
STATE = ".bulkhead"
#: Deliveries after which a document that the world keeps failing is reported as failed; the next run tries it again.
_DELIVERIES = 3
_CRASHES = frozenset({Cause.CRASHED, Cause.PROTOCOL, Cause.MEMORY, Cause.SCRATCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is told about one file; field names are those of `--json`."""

    path: str
    status: str
    pages: int = 0
    pages_by_state: Mapping[str, int] = field(default_factory=dict)
    children: int = 0
    crashes: int = 0
    elapsed_s: float = 0.0
    peak_rss_bytes: int = 0
    #: Path of the Markdown; None when there is none.
    markdown: str | None = None
    cause: str | None = None
    cause_detail: str | None = None
    #: Nothing was done: an earlier run had ended it, and the bytes are the same.
    skipped: bool = False

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a run ended."""

    lines: tuple[Line, ...]
    #: Files that were asked for and not reached before an interruption.
    unfinished: int = 0

    @property
    def failed(self) -> int:
        """Number of files without a result."""
        return sum(line.status == ResultStatus.FAILED for line in self.lines)


def convert(
    paths: Sequence[Path],
    settings: Settings,
    *,
    options: Options,
    force: bool,
    on_line: Callable[[Line], None],
    on_progress: Callable[[int, int], None],
) -> Report:
    """Convert `paths` into the folder that `settings.store.url` names.

    `on_line` gets each line in the order asked for, as soon as all before it are known; `on_progress` gets how many
    of how many are done. Raises `OperatorError`.
    """
    inputs = [describe(path, options) for path in gather(paths)]
    roots = tuple(sorted({entry.path.resolve().parent for entry in inputs}))
    settings = settings.model_copy(
        update={"fetch": settings.fetch.model_copy(update={"file_roots": (*settings.fetch.file_roots, *roots)})}
    )
    run = _Run(inputs, settings, on_line=on_line, on_progress=on_progress)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    run.leave_out_what_is_settled(force=force)
    if not run.finished():
        run.work()
    return run.report()


class _Run:
    """One run of `convert`: which files have ended, and who is told."""

    def __init__(
        self,
        inputs: Sequence[Input],
        settings: Settings,
        *,
        on_line: Callable[[Line], None],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._inputs = inputs
        self._by_id = {entry.id: entry for entry in inputs}
        self._settings = settings
        self._out = Path(settings.store.url)
        self._on_line = on_line
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._told = 0
        self._unheard: OSError | None = None
        #: Why this host cannot convert anything.
        self._poisoned: str | None = None
        self._running: Running | None = None

    def finished(self) -> bool:
        """Whether every file has its line."""
        return len(self._lines) == len(self._by_id)

    def report(self) -> Report:
        """What is known now, in the order asked for."""
        lines = tuple(self._lines[entry.id] for entry in self._inputs if entry.id in self._lines)
        return Report(lines=lines, unfinished=len(self._inputs) - len(lines))

    def leave_out_what_is_settled(self, *, force: bool) -> None:
        """Report what an earlier run ended; with `force`, take it back instead."""
        ledger = SqliteLedger.open(ledger_path(self._settings))
        try:
            for entry in self._inputs:
                settled = ledger.settled(entry.id)
                if settled is None:
                    continue
                if force or not self._still_there(settled):
                    ledger.reopen(entry.id)
                else:
                    self._end(entry.id, self._line(entry, settled, last_outcomes(ledger, entry.id), skipped=True))
        finally:
            ledger.close()

    def _still_there(self, settled: Settled) -> bool:
        return settled.manifest is None or Path(settled.manifest).exists()

    def work(self) -> None:
        """Run a parent until every file has ended or somebody interrupts."""
        queue = LocalQueue(clock=SystemClock())
        for entry in sorted(self._by_id.values(), key=lambda entry: -entry.size_bytes):
            if entry.id not in self._lines:
                queue.send(entry.body)
        store = open_store(self._settings.store)
        with (
            assembled(
                self._settings,
                queue=queue,
                store=store,
                on_ended=self._ended,
                on_released=self._released,
                on_poisoned=self._give_up,
            ) as running,
            # At once: what is finished is kept.
            on_stop_signal(lambda _: running.parent.request_stop(at_once=True)),
        ):
            self._running = running
            self._on_progress(len(self._lines), len(self._by_id))
            running.parent.run()
        if self._unheard is not None:
            raise self._unheard
        if self._poisoned is not None:
            raise EngineError(f"cannot go on: {self._poisoned}. `bulkhead doctor` tries the same; then run again.")

    def _give_up(self, detail: str) -> None:
        """Nobody waits hours for this host to recover while a command runs; what has ended is kept."""
        self._poisoned = detail
        if self._running is not None:
            self._running.parent.request_stop(at_once=True)

    def _ended(self, ended: DocumentEnded) -> None:
        entry = self._by_id[ended.document.id]
        self._end(entry.id, self._line(entry, ended.settled, ended.outcomes, skipped=False))

    def _released(self, message: Message, error: WorldError) -> None:
        if error.cause is Cause.DRAINED or message.receive_count < _DELIVERIES:
            return
        entry = self._by_id[json.loads(message.body)["id"]]
        status = str(ResultStatus.FAILED)
        line = Line(path=str(entry.path), status=status, cause=str(error.cause), cause_detail=error.detail)
        self._end(entry.id, line)

    def _end(self, document_id: str, line: Line) -> None:
        with self._lock:
            self._lines[document_id] = line
            try:
                self._tell()
            except OSError as error:  # nobody reads any more: `bulkhead convert … --json | head -1`
                self._unheard = error
            if self._running is not None and (self.finished() or self._unheard is not None):
                self._running.parent.request_stop(at_once=self._unheard is not None)

    def _tell(self) -> None:
        while self._told < len(self._inputs) and (known := self._lines.get(self._inputs[self._told].id)):
            self._told += 1
            self._on_line(known)
        self._on_progress(len(self._lines), len(self._by_id))

    def _line(self, entry: Input, settled: Settled, outcomes: Sequence[Outcome], *, skipped: bool) -> Line:
        failed = settled.status is ResultStatus.FAILED
        return Line(
            path=str(entry.path),
            status=str(settled.status),
            pages=settled.pages,
            pages_by_state=dict(settled.pages_by_state),
            children=sum(outcome.child > 0 for outcome in outcomes),
            crashes=sum(outcome.cause in _CRASHES for outcome in outcomes),
            elapsed_s=round(sum(outcome.elapsed_s for outcome in outcomes), 3),
            peak_rss_bytes=max((outcome.peak_rss_bytes for outcome in outcomes), default=0),
            markdown=None if failed else str(self._out / entry.id / "document.md"),
            cause=str(settled.cause) if failed else None,
            cause_detail=settled.detail if failed else None,
            skipped=skipped,
        )


def last_outcomes(ledger: Ledger, document_id: str) -> Sequence[Outcome]:
    """The children of the newest attempt."""
    attempts = ledger.attempts(document_id)
    return attempts[-1].outcomes if attempts else ()
