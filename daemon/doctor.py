"""`bulkhead doctor`: would this host work, and if not, what must change.

Shell. Each check does what the daemon would do: it starts the zygote, converts the canary in a real child, asks the
queue for its attributes, writes a probe into the store. A check that cannot be made because its setting is missing is
told as `skipped`, never as good.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from daemon import cgroup_find, doctor_host
from daemon.children import Children
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.doctor_host import Found, Verdict
from daemon.errors import BulkheadError, EngineError, ExitStatus, OperatorError
from daemon.ledgers import open_to_look, place
from daemon.proof import convert_canary
from daemon.sandbox_parts import Mode, parts
from daemon.sqs_rights import Rights
from daemon.store import open_store
from daemon.warming import sizing_of
from daemon.wiring import failpoint, open_queue

#: SigV4 allows 5 minutes; the date in an answer is cut to seconds and has travelled.
_SKEW_BAD_S, _SKEW_WARNING_S = 240.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    verdict: Verdict
    detail: str
    #: What `bulkhead doctor` leaves with when this is the first bad one.
    status: ExitStatus = ExitStatus.DONE


def examine(settings: Settings) -> Iterator[Finding]:
    """Every finding, in the order in which the daemon would meet them."""
    yield from _checked("failpoints", lambda: _failpoints(settings))
    yield from _checked("unit", doctor_host.unit)
    yield from _checked("sizing", lambda: _sizing(settings))
    yield from _checked("limits", lambda: doctor_host.limits(workers=sizing_of(settings).workers))
    yield from _checked("locale", doctor_host.text)
    yield from _checked("state", lambda: _state(settings))
    yield from _checked("disk", lambda: doctor_host.disk(settings, workers=sizing_of(settings).workers))
    yield from _checked("sandbox", lambda: _sandbox(settings))
    yield from _checked("engine", lambda: _engine(settings))
    if settings.queue.url:
        yield from _checked("queue", lambda: _queue(settings))
        yield from _checked("rights", lambda: _rights(settings))
        yield from _checked("clock", lambda: _clock(settings))
    else:
        yield Finding(check="queue", verdict=Verdict.SKIPPED, detail="queue.url is not set")
    if settings.store.url:
        yield from _checked("store", lambda: _store(settings))
    else:
        yield Finding(check="store", verdict=Verdict.SKIPPED, detail="store.url is not set")


def _checked(check: str, findings: Callable[[], Found]) -> Iterator[Finding]:
    """The findings of one check; an error is its last one."""
    try:
        for verdict, detail in findings():
            status = ExitStatus.CONFIGURATION if verdict is Verdict.BAD else ExitStatus.DONE
            yield Finding(check=check, verdict=verdict, detail=detail, status=status)
    except OperatorError as error:
        yield Finding(check=check, verdict=Verdict.BAD, detail=str(error), status=error.status)
    except BulkheadError as error:
        yield Finding(check=check, verdict=Verdict.BAD, detail=str(error), status=ExitStatus.UNAVAILABLE)
    except OSError as error:
        detail = f"{error.strerror or error}: {error.filename or 'no file named'}"
        yield Finding(check=check, verdict=Verdict.BAD, detail=detail, status=ExitStatus.CONFIGURATION)


def _failpoints(settings: Settings) -> Found:
    failpoint(settings)
    if settings.allow_failpoints:
        yield Verdict.WARNING, f"failpoints are allowed ({settings.failpoints or 'none set'}): this is a drill"
    else:
        yield Verdict.GOOD, "failpoints are off"


def _sizing(settings: Settings) -> Found:
    sizing = sizing_of(settings)
    gib = sizing.memory_bytes_per_child / 2**30
    yield Verdict.GOOD, f"{sizing.workers} workers of {sizing.threads} thread(s), {gib:.1f} GiB for each child"
    for note in sizing.notes:
        yield Verdict.WARNING, note
    place = cgroup_find.find()
    if place.base is not None:
        yield Verdict.GOOD, f"the kernel holds each child to that in a cgroup of its own, below {place.base}"
    else:
        yield Verdict.GOOD, f"RLIMIT_DATA and samples hold each child to that; no cgroup here: {place.reason}"


def _state(settings: Settings) -> Found:
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    ledger, behind = open_to_look(settings)
    try:
        known = sum(ledger.counts().values())
    finally:
        ledger.close()
    yield Verdict.GOOD, f"{place(settings)} can be used; it knows {known} documents"
    if behind > 0:
        yield Verdict.GOOD, f"the daemon will bring the ledger's schema {behind} further when this version starts"
    if behind < 0:
        yield Verdict.WARNING, "the ledger was written by a newer version, and still lets this one use it"


def _sandbox(settings: Settings) -> Found:
    """What keeps a child, part by part."""
    mode = Mode(settings.child.sandbox)
    if mode is Mode.OFF:
        yield Verdict.WARNING, "child.sandbox is off: a hostile document can do whatever the daemon's user can"
        return
    for part in parts():
        verdict = Verdict.GOOD if part.in_force or part.covered else Verdict.WARNING
        yield Verdict.BAD if verdict is Verdict.WARNING and mode is Mode.REQUIRED else verdict, part.detail


def _engine(settings: Settings) -> Found:
    """The declared engine, warm, and the canary through a real child."""
    clock = SystemClock()
    sizing = sizing_of(settings)
    scratch = tempfile.TemporaryDirectory(prefix="bulkhead-doctor-")
    children = Children(
        settings=settings.model_copy(update={"threads": sizing.threads}),
        memory_bytes=sizing.memory_bytes_per_child,
        scratch_root=Path(scratch.name),
        clock=clock,
    )
    try:
        manifest = children.start()
        yield Verdict.GOOD, "declared: " + ", ".join(f"{name}={value}" for name, value in sorted(manifest.items()))
        proof = convert_canary(children, clock=clock, timeout_s=settings.host.canary_timeout_s)
    finally:
        children.stop()
        scratch.cleanup()
    if not proof.passed:
        raise EngineError(proof.detail)
    yield Verdict.GOOD, f"{proof.detail}, in a child of its own"


def _queue(settings: Settings) -> Found:
    queue = open_queue(settings)
    try:
        depth = queue.depth()
        yield Verdict.GOOD, "reachable: " + ", ".join(f"{number} {name}" for name, number in depth.items())
        for finding in queue.findings(settings):
            yield Verdict.WARNING, finding
    finally:
        queue.close()


def _rights(settings: Settings) -> Found:
    """What this host may do with the queues; the store's probe shows what it may do there."""
    queue, rights = open_queue(settings), Rights(settings.queue, clock=SystemClock())
    try:
        depth = queue.depth()
        missing = list(rights.missing(empty=not depth["visible"]))
    finally:
        queue.close()
        rights.close()
    for sentence in missing:
        yield Verdict.BAD, sentence
    if not missing:
        yield Verdict.GOOD, "messages of both queues may be extended and deleted"
    if depth["visible"]:
        yield Verdict.SKIPPED, "sqs:ReceiveMessage was not tried: the queue holds messages, and each try counts for one"
    yield Verdict.SKIPPED, "sqs:SendMessage to the dead-letter queue was not tried: it would leave a message there"


def _clock(settings: Settings) -> Found:
    """AWS refuses requests whose clock is five minutes off."""
    rights = Rights(settings.queue, clock=SystemClock())
    try:
        skew_s = rights.skew_s()
    finally:
        rights.close()
    if skew_s is None:
        yield Verdict.SKIPPED, "the queue's answers bear no date"
    elif abs(skew_s) > _SKEW_BAD_S:
        yield Verdict.BAD, f"this host's clock is {skew_s:+.0f} s off: AWS refuses its requests; let NTP set it"
    elif abs(skew_s) > _SKEW_WARNING_S:
        yield Verdict.WARNING, f"this host's clock is {skew_s:+.0f} s off; is NTP running?"
    else:
        yield Verdict.GOOD, f"within {_SKEW_WARNING_S:.0f} s of the queue's"


def _store(settings: Settings) -> Found:
    open_store(settings.store).check()
    yield Verdict.GOOD, f"{settings.store.url} can be written"
