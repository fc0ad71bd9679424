"""One turn of a calibration: the whole batch through a daemon of its own, in a folder that is thrown away.

Shell. Nothing imitates the daemon: parent, ledger, store, zygote and children are what `wiring.assembled` makes,
between a queue in memory and a folder, as for `bulkhead convert`. Whatever ends a turn, its folder and processes are
gone when `Batch.take` returns.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from daemon.attempt import DocumentEnded
from daemon.calibration import Run, Turn
from daemon.clock import Clock
from daemon.config import Settings, StoreSettings
from daemon.convert_inputs import Input
from daemon.errors import OperatorError, WorldError
from daemon.model import Cause, Message, ResultStatus
from daemon.parent import Parent
from daemon.processes import proportional_bytes_below
from daemon.queue_local import LocalQueue
from daemon.store import open_store
from daemon.warming import Parts
from daemon.wiring import Running, assembled

#: How often memory is looked at. A look reads the page tables of every child, some milliseconds each.
_LOOK_S = 0.5
_LOOKER_ENDS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A turn that was stopped before every document had ended: told to stop, or its time was over."""

    documents: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """This combination does not run here; `error` says why."""

    error: OperatorError


class Stop:
    """Whether to stop, and whoever must hear it. `ask` may be called from a signal handler and from any thread."""

    def __init__(self) -> None:
        self.asked = False
        self._parent: Parent | None = None

    def ask(self) -> None:
        """Stop what runs now at once, and begin nothing more."""
        self.asked = True
        if self._parent is not None:
            self._parent.request_stop(at_once=True)

    @contextmanager
    def telling(self, parent: Parent) -> Iterator[None]:
        """Tell `parent` while the block runs; one that comes too late is told at once."""
        self._parent = parent
        try:
            if self.asked:
                parent.request_stop(at_once=True)
            yield
        finally:
            self._parent = None


class Batch:
    """The documents of every turn, and what became of them."""

    def __init__(
        self,
        inputs: Sequence[Input],
        settings: Settings,
        *,
        copies: int,
        clock: Clock,
        stop: Stop,
        on_progress: Callable[[Turn, int, int], None],
        parts: Parts | None = None,
    ) -> None:
        """`on_progress` gets how many of how many documents of a turn have ended; from any thread."""
        roots = tuple(sorted({entry.path.resolve().parent for entry in inputs}))
        fetch = settings.fetch.model_copy(update={"file_roots": (*settings.fetch.file_roots, *roots)})
        self._settings = settings.model_copy(update={"fetch": fetch})
        # The biggest first, as `bulkhead convert` does: one picked up last would set the time of the whole turn.
        biggest_first = sorted(inputs, key=lambda entry: -entry.size_bytes)
        self._inputs = {each.id: each for entry in biggest_first for each in _copied(entry, copies)}
        self._clock = clock
        self._stop = stop
        self._on_progress = on_progress
        self._parts = parts or Parts(clock=clock)
        #: Pages of the longest document so far.
        self.longest_pages = 0
        #: What was lost of which file, in whichever turn; one sentence each.
        self.failures: dict[Path, str] = {}

    def __len__(self) -> int:
        """Documents in each turn."""
        return len(self._inputs)

    def take(self, turn: Turn, *, within_s: float, deadline: float) -> Run | Cut | Refused:
        """Convert the batch once with the combination of `turn`, cut off after `within_s` or at the deadline.

        Loading the engine is not in `within_s`; it is not interrupted by the deadline, a monotonic instant, either.
        """
        with tempfile.TemporaryDirectory(prefix="bulkhead-calibrate-") as folder:
            settings = _with(self._settings, turn, Path(folder))
            (Path(folder) / "out").mkdir()
            queue = LocalQueue(clock=self._clock)
            for entry in self._inputs.values():
                queue.send(entry.body)
            going = _Going(turn, len(self), clock=self._clock, on_progress=self._on_progress)
            try:
                with assembled(
                    settings,
                    queue=queue,
                    store=open_store(settings.store),
                    parts=self._parts,
                    on_ended=going.on_ended,
                    on_released=going.on_released,
                    on_poisoned=going.give_up,
                ) as running:
                    going.go(running, within_s=within_s, deadline=deadline, stop=self._stop)
            except OperatorError as error:
                return Refused(error=error)
        self._note(going.ended)
        return going.outcome()

    def _note(self, ended: Mapping[str, DocumentEnded]) -> None:
        for document_id, each in ended.items():
            self.longest_pages = max(self.longest_pages, each.settled.pages)
            if each.settled.status is not ResultStatus.CONVERTED:
                said = f"{each.settled.status}: {each.settled.cause}: {each.settled.detail}".rstrip(": ")
                self.failures.setdefault(self._inputs[document_id].path, said)


class _Going:
    """One turn while it runs. Called back from the parent's threads."""

    def __init__(self, turn: Turn, of: int, *, clock: Clock, on_progress: Callable[[Turn, int, int], None]) -> None:
        self._turn = turn
        self._of = of
        self._clock = clock
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._parent: Parent | None = None
        self._refused: OperatorError | None = None
        self._began = self._last_end = 0.0
        self._peak_bytes = 0
        self._spawned = False
        self.ended: dict[str, DocumentEnded] = {}

    def go(self, running: Running, *, within_s: float, deadline: float, stop: Stop) -> None:
        """Let the parent work until all documents have ended, its time is over, or `stop` is asked."""
        self._parent = running.parent
        self._spawned = running.children.zygote_pid is None
        self._on_progress(self._turn, 0, self._of)
        left_s = max(0.0, min(within_s, deadline - self._clock.monotonic()))
        net = threading.Timer(left_s, lambda: running.parent.request_stop(at_once=True))
        net.daemon = True
        with stop.telling(running.parent), _peak_memory() as peak:
            self._began = self._clock.monotonic()
            net.start()
            try:
                running.parent.run()
            finally:
                net.cancel()
        self._peak_bytes = max(peak, default=0)

    def on_ended(self, each: DocumentEnded) -> None:
        """One document has ended; the last one ends the turn."""
        with self._lock:
            self._last_end = self._clock.monotonic()
            self.ended[each.document.id] = each
            number = len(self.ended)
        self._on_progress(self._turn, number, self._of)
        if number == self._of and self._parent is not None:
            self._parent.request_stop()

    def on_released(self, message: Message, error: WorldError) -> None:
        """A document that goes round in circles measures nothing."""
        del message
        if error.cause is not Cause.DRAINED:
            self.give_up(f"{error.cause}: {error.detail}")

    def give_up(self, detail: str) -> None:
        """This combination does not work here."""
        with self._lock:
            self._refused = self._refused or OperatorError(
                f"cannot convert anything with {self._turn.combination}: {detail}"
            )
        if self._parent is not None:
            self._parent.request_stop(at_once=True)

    def outcome(self) -> Run | Cut | Refused:
        """What is known when the parent has returned."""
        if self._refused is not None:
            return Refused(error=self._refused)
        if len(self.ended) < self._of:
            return Cut(documents=len(self.ended), of=self._of)
        every = [outcome for each in self.ended.values() for outcome in each.outcomes]
        with_result = [each.settled for each in self.ended.values() if each.settled.status is not ResultStatus.FAILED]
        return Run(
            turn=self._turn,
            documents=len(with_result),
            failed=sum(each.settled.status is not ResultStatus.CONVERTED for each in self.ended.values()),
            pages=sum(settled.pages for settled in with_result),
            elapsed_s=self._last_end - self._began,
            peak_memory_bytes=self._peak_bytes,
            largest_child_bytes=max((outcome.peak_rss_bytes for outcome in every), default=0),
            starved=sum(outcome.cause is Cause.MEMORY for outcome in every),
            spawned=self._spawned,
        )


@contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Memory of everything below this process, in bytes, one value per look; a thread looks until the block ends.

    The first look is at once, so that the shortest block has one.
    """
    looks: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while True:
            looks.append(proportional_bytes_below(os.getpid()))
            if ended.wait(_LOOK_S):
                return

    looker = threading.Thread(target=look, name="memory", daemon=True)
    looker.start()
    try:
        yield looks
    finally:
        ended.set()
        looker.join(_LOOKER_ENDS_S)


def _copied(entry: Input, copies: int) -> Iterator[Input]:
    """The file as `copies` documents of their own."""
    for number in range(1, copies + 1):
        identity = f"{entry.id}.{number}"
        body = json.dumps(json.loads(entry.body) | {"id": identity})
        yield dataclasses.replace(entry, id=identity, body=body)


def _with(settings: Settings, turn: Turn, folder: Path) -> Settings:
    of = turn.combination
    return settings.model_copy(
        update={
            "state_dir": folder / "state",
            "store": StoreSettings(url=str(folder / "out")),
            "workers": of.workers,
            "threads": of.threads,
            "child": settings.child.model_copy(update={"pages_per_child": of.pages_per_child}),
        }
    )
