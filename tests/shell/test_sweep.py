"""A sweep: three reclaims and no more, one alert for one problem, and nothing lost wherever it is killed.

The daemon's side is the real `Delivery` of `test_order.py`. The sweep's life is cut at the n-th call of any edge,
before or after it took effect, for every n; then another sweep runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon.audit import AuditEdges, Finding, audit
from daemon.errors import LeaseLostError, WorldError
from daemon.intake import read
from daemon.ledgers import recovery_of
from daemon.model import Cause, Holder, PageRecord, PageReport, PageState, ResultStatus
from daemon.queue import DeadLetter
from daemon.queue_local import LocalQueue
from daemon.recovery import Parked
from daemon.sweep import HIDDEN_S, Sweep, SweepEdges, SweepRules
from tests.fakes.edges import Countdown, DiedError
from tests.fakes.listing import MemoryListing
from tests.shell.test_order import VISIBILITY_S, Case, Kind, World, own

#: Replaced by `test_order_shared.py`.
KIND: Kind = "real"
NOBODY = Countdown(0, DiedError, after=False)
RULES = SweepRules(max_reclaims=3, reclaim_delay_s=60, build="build 1")
KILLER = Case(
    body=json.dumps(own("killer")),
    script={"killer": (Cause.CRASHED, Cause.CRASHED)},
    ends={"killer": ResultStatus.FAILED},
)
GONE = Case(
    body=json.dumps(own("gone")), missing=frozenset({"s3://bucket/gone.pdf"}), ends={"gone": ResultStatus.FAILED}
)
GOOD = Case(body=json.dumps(own("good")), ends={"good": ResultStatus.CONVERTED})


class Swept:
    """A world with a real ledger, and sweeps of it."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.world = World(KIND, folder, case)
        self.recovery = recovery_of(self.world.ledger)
        self._lives = itertools.count()
        self.alerts = 0
        self.listings: list[MemoryListing] = []

    def daemon(self, countdown: Countdown = NOBODY) -> None:
        """One life of a parent."""
        with contextlib.suppress(DiedError):
            self.world.live(f"life-{next(self._lives)}", countdown)

    def sweep(self, countdown: Countdown = NOBODY, *, rules: SweepRules = RULES) -> Sweep:
        """One sweep, perhaps cut; then the letters that it held can be received again."""
        world = self.world
        edges = SweepEdges(
            queue=countdown.around(world.queue, "queue"),
            ledger=countdown.around(world.ledger, "ledger"),
            recovery=countdown.around(self.recovery, "recovery"),
            store=countdown.around(world.store, "store"),
            checkpoints=countdown.around(world.checkpoints, "checkpoints"),
            clock=world.clock,
            alive=lambda _holder: False,
            listings=[countdown.around(each, "listing") for each in self.listings],
        )
        sweep = Sweep(edges, rules)
        with capture_logs() as lines, contextlib.suppress(DiedError, WorldError):
            sweep.run()
        self.alerts += sum(line["event"] in {"document.parked", "parking.summed_up"} for line in lines)
        world.clock.advance(HIDDEN_S + 1)
        return sweep

    def audit(self) -> list[Finding]:
        """What does not agree."""
        findings: list[Finding] = []
        audited = audit(
            AuditEdges(
                recovery=self.recovery,
                store=self.world.store,
                checkpoints=self.world.checkpoints,
                queue=self.world.queue,
                clock=self.world.clock,
                holder=Holder(host="here", boot_id="boot", invocation="audit", pid=1),
            ),
            tell=findings.append,
        )
        assert audited.clean == (not findings)
        assert {check: number for check, number in audited.findings.items() if number} == Counter(
            finding.check for finding in findings
        )
        return findings

    def bodies(self) -> set[str]:
        """What waits in the queue, delayed or not."""
        self.world.clock.advance(1_000)
        received = self.world.queue.receive(10, stop=threading.Event())
        for message in received:
            self.world.queue.release(message)
        return {message.body for message in received}

    def parked(self) -> list[Parked]:
        """What waits for a person."""
        return list(self.recovery.parked())


def failed(folder: Path) -> Swept:
    """Its child died, and it was given up."""
    swept = Swept(folder, KILLER)
    swept.daemon()
    return swept


def spent(folder: Path) -> Swept:
    """Given up for the fourth time."""
    swept = failed(folder)
    for _ in range(3):
        swept.sweep()
        swept.world.clock.advance(1_000)
        swept.daemon()
    return swept


def gone(folder: Path) -> Swept:
    """Its bytes are no longer there."""
    swept = Swept(folder, GONE)
    swept.daemon()
    return swept


def unreadable(folder: Path) -> Swept:
    """A message that nobody can read."""
    swept = Swept(folder, Case(body='{"what": 1}', ends={}))
    swept.daemon()
    return swept


def moved(folder: Path) -> Swept:
    """SQS moved its message: it was received once, and that is once too often here."""
    swept = Swept(folder, GOOD)
    world = swept.world
    world.queue = LocalQueue(clock=world.clock, visibility_s=VISIBILITY_S, wait_s=0, max_receive_count=1)
    world.queue.send(GOOD.body)
    for _ in range(2):
        world.queue.receive(10, stop=threading.Event())
        world.clock.advance(VISIBILITY_S + 1)
    assert world.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 1}
    return swept


def stored(folder: Path) -> Swept:
    """Its parent died after it had stored the result."""
    for nth in range(1, 60):
        (folder / str(nth)).mkdir()
        swept = Swept(folder / str(nth), GOOD)
        countdown = Countdown(nth, DiedError, after=False)
        swept.daemon(countdown)
        if countdown.happened == "ledger.settle":
            swept.world.clock.advance(VISIBILITY_S + 1)
            return swept
    raise AssertionError("a life settles")


def settled_with_pages(folder: Path) -> Swept:
    """Its parent died after it had settled, before it dropped the finished pages."""
    swept = Swept(folder, GOOD)
    swept.daemon()
    report = PageReport(page=1, state=PageState.TEXT, engine="fake")
    swept.world.checkpoints.put("good", "f" * 64, PageRecord(page=1, report=report, blob=b"x"))
    return swept


def of_another_ledger(folder: Path) -> Swept:
    """A letter about a document that this ledger has never seen."""
    swept = Swept(folder, GOOD)
    swept.daemon()
    letter = DeadLetter(body="s3://bucket/x.pdf", cause=Cause.MEMORY, detail="", document_id="x-1", attempts=7)
    swept.world.queue.dead_letter(letter)
    return swept


def retried(folder: Path) -> Swept:
    """A person's retry died before it was sent."""
    swept = gone(folder)
    swept.sweep()
    assert swept.recovery.retry("gone", now=swept.world.clock.now()) is not None
    return swept


def forgotten(folder: Path) -> Swept:
    """One document of the source was converted; of the other no message has ever come."""
    swept = Swept(folder, GOOD)
    swept.daemon()
    documents = [read(json.dumps(own(name)), message_id="m").documents[0] for name in ("good", "lost")]
    swept.listings = [MemoryListing(documents, modified_at=swept.world.clock.now() - timedelta(hours=7))]
    return swept


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What holds after a sweep, wherever an earlier one was cut."""

    prepare: Callable[[Path], Swept]
    #: Ids in the queue, parked, and with how many reclaims.
    queued: frozenset[str] = frozenset()
    parked: tuple[Cause, ...] = ()
    reclaims: int = 0
    of: str = ""


PROMISES = {
    "failed": Promise(prepare=failed, queued=frozenset({"killer"}), reclaims=1, of="killer"),
    "spent": Promise(prepare=spent, parked=(Cause.CRASHED,), reclaims=3, of="killer"),
    "gone": Promise(prepare=gone, parked=(Cause.SOURCE_MISSING,), of="gone"),
    "unreadable": Promise(prepare=unreadable, parked=(Cause.MALFORMED_MESSAGE,)),
    "moved": Promise(prepare=moved, queued=frozenset({"good"}), reclaims=1, of="good"),
    "stored": Promise(prepare=stored, queued=frozenset({"good"}), of="good"),
    "settled": Promise(prepare=settled_with_pages, of="good"),
    "another": Promise(prepare=of_another_ledger, queued=frozenset({"x-1"}), reclaims=1, of="x-1"),
    "retried": Promise(prepare=retried, queued=frozenset({"gone"}), of="gone"),
    "forgotten": Promise(prepare=forgotten, queued=frozenset({"lost"}), of="lost"),
}


def check(swept: Swept, promise: Promise) -> None:
    """Nothing lost, nothing counted twice."""
    assert swept.world.queue.depth()["dead"] == 0
    assert [each.cause for each in swept.parked()] == list(promise.parked)
    assert all(each.alerted and not each.retrying for each in swept.parked())
    assert {json.loads(body)["id"] for body in swept.bodies()} == promise.queued
    assert swept.recovery.standing(promise.of).spent == promise.reclaims
    assert list(swept.world.checkpoints.documents()) == []
    assert swept.audit() == []
    if promise.prepare is stored:
        settled = swept.world.ledger.settled("good")
        assert settled is not None
        assert (settled.status, settled.manifest) == (
            ResultStatus.CONVERTED,
            swept.world.store.location("good", "manifest.json"),
        )
        swept.daemon()
        assert swept.world.puts == 1, "it is not converted again"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", PROMISES)
def test_a_sweep_that_dies_at_any_call(tmp_path: Path, name: str, after: bool) -> None:  # noqa: FBT001
    """Killed at any edge call, before or after it took effect: the next sweep ends it, and counts nothing twice."""
    promise = PROMISES[name]
    for nth in range(1, 60):
        folder = tmp_path / str(nth)
        folder.mkdir()
        swept = promise.prepare(folder)
        told = swept.alerts
        countdown = Countdown(nth, DiedError, after=after)
        swept.sweep(countdown)
        swept.sweep()
        check(swept, promise)
        swept.world.ledger.close()
        if not countdown.happened:
            assert swept.alerts == told + bool(promise.parked)
            if promise.prepare is forgotten:
                assert sum(swept.world.queue.depth().values()) == 1
            return
    pytest.fail("a sweep has fewer than 60 edge calls")


@pytest.mark.parametrize("name", PROMISES)
def test_an_edge_that_fails_at_any_call(tmp_path: Path, name: str) -> None:
    """The world fails any one call: the sweep ends with that, and the next one goes on from there."""
    promise = PROMISES[name]
    for nth in range(1, 60):
        (tmp_path / str(nth)).mkdir()
        swept = promise.prepare(tmp_path / str(nth))
        countdown = Countdown(nth, lambda: WorldError(Cause.QUEUE_UNAVAILABLE, "not now"), after=nth % 2 == 0)
        swept.sweep(countdown)
        swept.sweep()
        check(swept, promise)
        swept.world.ledger.close()
        if not countdown.happened:
            return
    pytest.fail("a sweep has fewer than 60 edge calls")


def test_a_receipt_that_ran_out(tmp_path: Path) -> None:
    """The letter comes back and is found done: parked once, told once; sent once more, and counted once."""
    for prepare, told in ((gone, 1), (failed, 0)):
        (tmp_path / prepare.__name__).mkdir()
        swept = prepare(tmp_path / prepare.__name__)
        lost = Countdown(1, lambda: LeaseLostError("run out"), after=False)
        delete = swept.world.queue.delete_dead
        swept.world.queue.delete_dead = lambda each, d=delete, c=lost: c.call("x", d, each)  # type: ignore[method-assign, misc]
        swept.sweep()
        assert swept.world.queue.depth()["dead"] == 1
        swept.sweep()
        assert swept.world.queue.depth()["dead"] == 0
        assert (len(swept.parked()), swept.alerts) == (told, told)
        assert swept.recovery.standing("killer").spent == 1 - told


def test_three_reclaims_then_a_person(tmp_path: Path) -> None:
    """A document that kills every child: four rounds in all with growing pauses, one parked entry, one alert."""
    swept = Swept(tmp_path, KILLER)
    pauses = []
    for _ in range(8):
        swept.daemon()
        before = swept.world.clock.monotonic()
        swept.sweep()
        while swept.world.queue.depth()["in_flight"]:
            swept.world.clock.advance(10)
            assert swept.world.clock.monotonic() - before < 2_000
        pauses.append(round(swept.world.clock.monotonic() - before, -1))
    assert len(swept.world.ledger.attempts("killer")) == 4
    assert pauses[:3] == [300, 300, 900], "60 s and 240 s pass while the sweep's letters are hidden"
    (parked,) = swept.parked()
    assert (parked.key, parked.cause, parked.reclaims, parked.attempts) == ("killer", Cause.CRASHED, 3, 4)
    assert (parked.uri, json.loads(parked.body)["id"]) == ("s3://bucket/killer.pdf", "killer")
    assert swept.alerts == 1
    assert swept.world.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 0}


def test_one_alert_for_many_documents(tmp_path: Path) -> None:
    """Forty documents of one cause are one line with ten names; another cause is another line."""
    swept = Swept(tmp_path, Case(body="", ends={}))
    swept.daemon()
    queue = swept.world.queue
    for number in range(40):
        body = json.dumps(own(f"d{number}"))
        cause = Cause.TOO_LARGE if number else Cause.ENCRYPTED
        queue.dead_letter(DeadLetter(body=body, cause=cause, detail="", document_id=f"d{number}", attempts=1))
    swept.sweep()
    assert len(swept.parked()) == 41
    assert swept.alerts == 3, "too_large, encrypted, and the empty message"
    swept.sweep()
    assert swept.alerts == 3


def test_a_letter_whose_document_has_not_ended_is_left(tmp_path: Path) -> None:
    """Its parent died between dead letter and settling: the message still exists, and decides."""
    for nth in range(1, 60):
        (tmp_path / str(nth)).mkdir()
        swept = Swept(tmp_path / str(nth), KILLER)
        countdown = Countdown(nth, DiedError, after=True)
        swept.daemon(countdown)
        if countdown.happened == "queue.dead_letter":
            break
    sweep = swept.sweep()
    assert [each.what for each in sweep.did] == ["left"]
    assert swept.world.queue.depth()["dead"] == 1
    assert swept.recovery.standing("killer").spent == 0
    swept.daemon()
    swept.sweep()
    assert swept.world.queue.depth()["dead"] == 0, "the older letter goes with the newer one"
    assert swept.recovery.standing("killer").spent == 1


def test_a_document_that_kills_its_parents_is_not_tried_again(tmp_path: Path) -> None:
    """After the limit of attempts it is parked at once; each reclaim might cost three more parents."""
    swept = Swept(tmp_path, GOOD)
    for life in range(3):
        swept.daemon(Countdown(2, DiedError, after=True))
        swept.world.next_parent(f"life-{life}")
    swept.daemon()
    swept.sweep()
    (parked,) = swept.parked()
    assert (parked.cause, parked.reclaims, parked.attempts) == (Cause.PARENT_DIED, 0, 4)
    assert swept.world.converter.jobs == []


def test_another_ledgers_letter_is_reclaimed_by_its_body(tmp_path: Path) -> None:
    """A ledger that was moved away, or another host's: numbers of attempts mean nothing, the limit still holds."""
    swept = Swept(tmp_path, Case(body="", ends={}))
    swept.daemon()
    for attempt in (7, 1, 1, 2):
        letter = DeadLetter(
            body="s3://bucket/x.pdf", cause=Cause.MEMORY, detail="2 GB", document_id="x-1", attempts=attempt
        )
        swept.world.queue.dead_letter(letter)
        swept.sweep()
    assert swept.recovery.standing("x-1").spent == 1, "while it is not settled, other letters about it wait"
    assert [json.loads(body) for body in swept.bodies()] == [{"uri": "s3://bucket/x.pdf", "id": "x-1"}]


def test_a_letter_whose_body_was_cut(tmp_path: Path) -> None:
    """Too large for the dead-letter queue: the ledger knows what to ask for; where it does not, a person is asked."""
    swept = failed(tmp_path)
    (letter,) = swept.world.queue._dead.values()
    letter.body = letter.body[:9] + "…"
    swept.sweep()
    assert {json.loads(body)["uri"] for body in swept.bodies()} == {"s3://bucket/killer.pdf"}
    swept.world.queue.dead_letter(
        DeadLetter(body='{"uri…', cause=Cause.CRASHED, detail="", document_id="who", attempts=1)
    )
    swept.sweep()
    assert [(each.key, each.cause, each.body) for each in swept.parked()] == [("who", Cause.CRASHED, '{"uri…')]


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """It says what it would do, and the real one then does it."""
    swept = failed(tmp_path)
    dry = swept.sweep(rules=SweepRules(max_reclaims=3, reclaim_delay_s=60, build="", dry_run=True))
    assert [each.what for each in dry.did] == ["reclaimed"]
    assert swept.world.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 1}
    assert swept.world.ledger.settled("killer") is not None
    assert [each.what for each in swept.sweep().did] == ["reclaimed"]


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    """One damaged result is left to the next delivery; the rest of the sweep goes on."""
    swept = stored(tmp_path)
    swept.world.queue.dead_letter(DeadLetter(body="?", cause=Cause.MALFORMED_MESSAGE, detail="no uri"))
    Path(swept.world.store.location("good", "manifest.json")).write_text('{"fencing_token": 1}')
    assert [each.what for each in swept.sweep().did] == ["left_behind", "parked", "alerted"]
    assert swept.world.ledger.settled("good") is None


def test_a_lease_of_a_living_parent_is_left_alone(tmp_path: Path) -> None:
    """A parent that was only slow to renew settles its own result."""
    swept = stored(tmp_path)
    edges = SweepEdges(
        queue=swept.world.queue,
        ledger=swept.world.ledger,
        recovery=swept.recovery,
        store=swept.world.store,
        checkpoints=swept.world.checkpoints,
        clock=swept.world.clock,
        alive=lambda _holder: True,
    )
    assert Sweep(edges, RULES).run() == {}
