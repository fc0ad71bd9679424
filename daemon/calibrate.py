"""`bulkhead calibrate`: measures workers, threads and slices on this host and documents, and recommends a setting.

Shell. `calibration.py` says what comes next and `calibration_choice.py` what is best; here it is done, within a limit
of time, and told. Nobody's settings are changed: what is written is a file that was asked for.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon import calibration, host
from daemon.build import build
from daemon.calibrate_run import Batch, Cut, Refused, Stop
from daemon.calibration import Combination, Plan, Run, Turn
from daemon.calibration_choice import Choice, choose
from daemon.calibration_report import Row, fragment, rows
from daemon.clock import Clock, SystemClock
from daemon.config import Settings
from daemon.convert_inputs import Input, describe, gather
from daemon.errors import ConfigurationError, OperatorError
from daemon.model import Options
from daemon.sizing import for_children_bytes
from daemon.stop_signals import on_stop_signal
from daemon.warming import Parts

#: Turns that are shorter say little: the start and the end of one are a large part of it.
_SHORT_S = 5.0
#: Of its CPUs: a host that is busier than that with other work when a calibration begins measures that work too.
_BUSY = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a calibration found."""

    rows: tuple[Row, ...]
    #: None when nothing had a result, or somebody interrupted.
    choice: Choice | None
    #: Date, host, versions and documents, by name.
    about: Mapping[str, str]
    #: What to know before trusting the figures; one sentence each.
    notes: tuple[str, ...]
    #: What was lost of which file.
    failures: Mapping[Path, str]
    interrupted: bool

    def as_toml(self) -> str:
        """The recommended settings, with everything else as comments; there must be a choice."""
        assert self.choice is not None, "nothing is recommended"
        return fragment(self.choice, self.rows, about=self.about, notes=self.notes)


class Calibration:
    """Takes turns until there are no more, the time is over, or somebody stops it."""

    def __init__(
        self,
        plan: Plan,
        take: Callable[[Turn, float, float], Run | Cut | Refused],
        *,
        memory_bytes: int,
        pages_per_child: int,
        rounds: int,
        seconds: float,
        clock: Clock,
        stop: Stop,
    ) -> None:
        """`take` gets how many seconds a turn has, and the deadline of all; `memory_bytes` is what children may use."""
        self._take = take
        self._memory_bytes = memory_bytes
        self._pages_per_child = pages_per_child
        self._rounds = rounds
        self._clock = clock
        self._deadline = clock.monotonic() + seconds
        self._stop = stop
        #: Grows by the slices that are worth trying, after the first round.
        self.planned = list(plan.combinations)
        self.why_not = dict(plan.refused)
        self.runs: list[Run] = []
        self._begun: set[Turn] = set()
        #: How long the turns of each took, loading included, in s.
        self._took: defaultdict[Combination, list[float]] = defaultdict(list)
        self._refusals: list[OperatorError] = []
        self._sliced = False

    def go(self, longest_pages: Callable[[], int]) -> None:
        """Measure. `longest_pages` is asked after the first round. Raises OperatorError when nothing runs here."""
        while not self._stop.asked and (turn := self._next(longest_pages)) is not None:
            self._begun.add(turn)
            began = self._clock.monotonic()
            left_s = self._deadline - began
            took_s = self._took[turn.combination]
            if calibration.worth_beginning(left_s=left_s, took_s=took_s):
                limit_s = calibration.hopeless_after_s(self.runs, number=turn.round)
                result = self._take(turn, left_s if limit_s is None else limit_s, self._deadline)
                took_s.append(self._clock.monotonic() - began)
                self._learn(turn, result)
        if self._refusals and not self.runs:
            raise self._refusals[0]

    def _next(self, longest_pages: Callable[[], int]) -> Turn | None:
        turn = self._first_not_begun()
        first_round_is_over = turn is None or turn.round > 1
        if first_round_is_over and not self._sliced and (choice := self.choice()) is not None:
            self._sliced = True
            self.planned += calibration.slices(choice.figures.combination, longest_pages=longest_pages())
            turn = self._first_not_begun()
        return turn

    def _first_not_begun(self) -> Turn | None:
        return calibration.next_turn(self.planned, self._begun, self.why_not, rounds=self._rounds)

    def _learn(self, turn: Turn, result: Run | Cut | Refused) -> None:
        measured = {run.turn.combination for run in self.runs}
        if isinstance(result, Run):
            self.runs.append(result)
        elif isinstance(result, Refused):
            self._refusals.append(result.error)
            self.why_not[turn.combination] = f"does not run here: {result.error}"
        elif not self._stop.asked and turn.combination not in measured:
            ended = f"{result.documents} of {result.of} documents had ended"
            if self._clock.monotonic() >= self._deadline:
                self.why_not[turn.combination] = f"not measured: the time was over when {ended}"
            else:
                slow = f"took {calibration.HOPELESS} times as long as the fastest"
                self.why_not[turn.combination] = f"stopped: it {slow} when {ended}"

    def choice(self) -> Choice | None:
        """The best so far; None when somebody interrupted: half of the turns recommend what came first."""
        if self._stop.asked:
            return None
        return choose(self.runs, memory_bytes=self._memory_bytes, pages_per_child=self._pages_per_child)


def check_target(out: Path, *, force: bool) -> None:
    """Raise ConfigurationError when `out` cannot be written at the end, before anything is measured for it."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ConfigurationError(f"cannot write {out}: name a file in a folder that exists")
    if out.exists() and not force:
        raise ConfigurationError(f"cannot write {out}: it exists; name another file, or add --force")


def write(out: Path, text: str, *, force: bool) -> None:
    """Write the fragment. Raises ConfigurationError; what is there already is only replaced with `force`."""
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"cannot write {out}: {error.strerror}; it is printed instead") from error


def sampled(paths: Sequence[Path], most: int) -> tuple[Input, ...]:
    """At most `most` of the files, evenly over size; the same file is in it once.

    Raises ConfigurationError as `bulkhead convert` does: nothing there, or one of them cannot be read.
    """
    files = {str(path.absolute()): path for path in gather(paths)}
    sizes: dict[str, int] = {}
    for name, path in files.items():
        try:
            sizes[name] = path.stat().st_size
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}; check that it is readable") from error
    inputs = [describe(files[name], Options()) for name in calibration.sample(sizes, most)]
    return tuple({entry.id: entry for entry in inputs}.values())


def calibrate(
    inputs: Sequence[Input],
    settings: Settings,
    *,
    rounds: int,
    seconds: float,
    on_progress: Callable[[Turn, int, int], None],
    clock: Clock | None = None,
    parts: Parts | None = None,
) -> Report:
    """Measure `inputs`, for at most `seconds` and the loading of one engine.

    Raises OperatorError when nothing can be measured.
    """
    clock, stop = clock or SystemClock(), Stop()
    cpus, memory_bytes = host.usable_cpus(), host.usable_memory_bytes()
    plan = calibration.plan(
        cpus=cpus,
        memory_bytes=memory_bytes,
        memory_per_child_bytes=settings.child.memory_bytes,
        pages_per_child=settings.child.pages_per_child,
    )
    copies = calibration.copies(len(inputs), plan.combinations)
    batch = Batch(inputs, settings, copies=copies, clock=clock, stop=stop, on_progress=on_progress, parts=parts)
    began_at, load = clock.now(), os.getloadavg()[0]
    going = Calibration(
        plan,
        lambda turn, within_s, deadline: batch.take(turn, within_s=within_s, deadline=deadline),
        memory_bytes=for_children_bytes(memory_bytes),
        pages_per_child=settings.child.pages_per_child,
        rounds=rounds,
        seconds=seconds,
        clock=clock,
        stop=stop,
    )
    # Ends the turn at once, or as soon as the engine is loaded; nothing is left behind.
    with on_stop_signal(lambda _: stop.ask()):
        going.go(lambda: batch.longest_pages)
    if not going.runs and not stop.asked:
        raise ConfigurationError(
            f"cannot recommend anything: no run of {len(batch)} documents ended within {seconds:.0f} s; give it more "
            "--seconds, or fewer documents (--sample)"
        )
    about = {
        "Measured": f"{began_at:%Y-%m-%d %H:%M} UTC, {len({run.turn.round for run in going.runs})} round(s)",
        "Host": f"{host.holder().host}, {cpus} CPU(s), {memory_bytes / 2**30:.1f} GiB, load {load:.1f} when it began",
        "Versions": build(),
        "Documents": f"{len(inputs)}, each {copies} time(s) in a run",
    }
    return Report(
        rows=rows(going.runs, going.planned, going.why_not),
        choice=going.choice(),
        about=about,
        notes=tuple(_notes(going.runs, inputs, load=load, cpus=cpus)),
        failures=batch.failures,
        interrupted=stop.asked,
    )


def _notes(runs: Sequence[Run], inputs: Sequence[Input], *, load: float, cpus: int) -> Iterator[str]:
    if load > _BUSY * cpus:
        yield (
            f"This host was busy when it began (load {load:.1f} on {cpus} CPU(s)): the figures are about that work "
            "too; measure again when it is quiet."
        )
    if len(inputs) == 1:
        yield "Only one document was measured: the setting is for documents like it."
    shortest_s = min((run.elapsed_s for run in runs), default=_SHORT_S)
    if shortest_s < _SHORT_S:
        yield f"The shortest run took {shortest_s:.1f} s, which is little: more documents tell more (--sample)."
