"""mark → fetch → convert → store → settle → delete: stopped at every edge call, and run again.

The parent's life is cut at the n-th call of any edge, before or after it took effect, for every n; then another
parent gets the same message. Nothing may be lost, nothing published twice, whatever n was.
"""

from __future__ import annotations

import contextlib
import errno
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from daemon.attempt import DocumentEnded
from daemon.checkpoints import Checkpoints, DirectoryCheckpoints, fingerprint
from daemon.children import KillSwitch
from daemon.decide import Rules, counted
from daemon.delivery import Delivery
from daemon.edges import Edges, Limits
from daemon.errors import DocumentError, EngineError, OperatorError, ResourceError, WorldError
from daemon.heartbeat import Heartbeat, InHand
from daemon.intake import read
from daemon.ledger import Ledger
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause, Holder, PageMode, ResultStatus
from daemon.queue_local import LocalQueue
from daemon.store import Store
from daemon.store_directory import DirectoryStore
from tests.fakes.checkpoints import MemoryCheckpoints
from tests.fakes.clock import FakeClock
from tests.fakes.edges import Countdown, DiedError, ScriptedConverter, ScriptedSource
from tests.fakes.ledger import MemoryLedger
from tests.fakes.store import MemoryStore

VISIBILITY_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a world keeps what it has done."""

    ledger: Ledger
    store: Store
    checkpoints: Checkpoints


#: From a folder of the world's own, and its clock.
Opener = Callable[[Path, FakeClock], Places]
Kind = Literal["memory", "real"] | Opener


def places(kind: Kind, folder: Path, clock: FakeClock) -> Places:
    """Opened, and empty unless the folder is an earlier world's."""
    if kind == "memory":
        return Places(ledger=MemoryLedger(), store=MemoryStore(), checkpoints=MemoryCheckpoints())
    if kind != "real":
        return kind(folder, clock)
    (folder / "store").mkdir(exist_ok=True)
    return Places(
        ledger=SqliteLedger.open(folder / "ledger.db", clock=clock, boot_id="boot"),
        store=DirectoryStore(folder / "store"),
        checkpoints=DirectoryCheckpoints(folder / "checkpoints"),
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One message, what its documents do, and how each must end."""

    body: str
    script: Mapping[str, Sequence[Cause]] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    pages: Mapping[str, int] = field(default_factory=dict)
    traps: Mapping[tuple[str, int], Collection[PageMode]] = field(default_factory=dict)
    ends: Mapping[str, ResultStatus]


def own(identity: str) -> dict[str, object]:
    """Our own message for one document."""
    return {"uri": f"s3://bucket/{identity}.pdf", "id": identity, "etag": "1"}


CASES = {
    "converts": Case(body=json.dumps(own("good")), ends={"good": ResultStatus.CONVERTED}),
    "crashes_then_converts": Case(
        body=json.dumps(own("shaky")),
        script={"shaky": (Cause.CRASHED, Cause.CONVERTED)},
        ends={"shaky": ResultStatus.CONVERTED},
    ),
    "crashes_twice": Case(
        body=json.dumps(own("killer")),
        script={"killer": (Cause.CRASHED, Cause.CRASHED)},
        ends={"killer": ResultStatus.FAILED},
    ),
    "five_pages_one_trap": Case(
        body=json.dumps(own("long")),
        pages={"long": 5},
        traps={("long", 3): {PageMode.FULL}},
        ends={"long": ResultStatus.CONVERTED},
    ),
    "is_gone": Case(
        body=json.dumps(own("gone")),
        missing=frozenset({"s3://bucket/gone.pdf"}),
        ends={"gone": ResultStatus.FAILED},
    ),
}


class World:
    """What survives a parent: queue, ledger, store, and the time that passes."""

    def __init__(self, kind: Kind, folder: Path, case: Case) -> None:
        self.clock = FakeClock()
        self.case = case
        self.queue = LocalQueue(clock=self.clock, visibility_s=VISIBILITY_S, wait_s=0.0)
        self.queue.send(case.body)
        opened = places(kind, folder, self.clock)
        self.ledger, self.store, self.checkpoints = opened.ledger, opened.store, opened.checkpoints
        self.converter = ScriptedConverter(causes=case.script, pages=case.pages, traps=case.traps)
        self.contents: dict[str, bytes] = {}
        self.puts = 0
        self.released: list[str] = []
        self.ended: list[DocumentEnded] = []

    def live(self, invocation: str, countdown: Countdown) -> None:
        """One parent's life: take what is visible, carry it, release it when the world fails."""
        for message in self.queue.receive(10, stop=threading.Event()):
            held = InHand(message, KillSwitch())
            try:
                self._delivery(invocation, countdown).carry(held)
            except (WorldError, OperatorError, OSError) as error:
                self.released.append(str(error))
                self.queue.release(message)

    def _delivery(self, invocation: str, countdown: Countdown) -> Delivery:
        source = ScriptedSource(
            {uri: DocumentError(Cause.SOURCE_MISSING, f"no such object: {uri}") for uri in self.case.missing},
            self.contents,
        )
        queue, ledger = countdown.around(self.queue, "queue"), countdown.around(self.ledger, "ledger")
        edges = Edges(
            queue=queue,
            ledger=ledger,
            source=countdown.around(source, "source"),
            converter=countdown.around(self.converter, "converter"),
            store=countdown.around(_CountingStore(self), "store"),
            checkpoints=countdown.around(self.checkpoints, "checkpoints"),
            engine={"name": "fake"},
            heartbeat=Heartbeat(queue=queue, ledger=ledger, clock=self.clock, visibility_s=60, interval_s=20),
            clock=self.clock,
            failpoint=lambda _name, _document, _attempt: None,
        )
        holder = Holder(host="here", boot_id="boot", invocation=invocation, pid=1)
        limits = Limits(
            document_timeout_s=900,
            per_page_s=10,
            longest_timeout_s=3600,
            rules=Rules(max_page_crashes=5, pages_per_child=2),
            deliver_partial=True,
            lease_s=VISIBILITY_S,
            max_attempts=3,
        )
        return Delivery(edges, limits=limits, holder=holder, on_ended=self.ended.append)

    def next_parent(self, invocation: str) -> None:
        """The old parent is gone: its receipt and its lease run out, or are broken by its successor."""
        self.clock.advance(VISIBILITY_S + 1)
        self.ledger.break_leases(host="here", invocation=invocation, now=self.clock.now())

    def check(self, *, forgotten: bool = False) -> None:
        """The invariants, once the last parent has done its work; `forgotten`: checkpoints could not be dropped."""
        assert self.queue.depth()["visible"] == 0, self.released
        assert self.queue.depth()["in_flight"] == 0
        for identity in self.case.ends:
            fingerprint = _fingerprint(identity)
            left = list(self.checkpoints.each(identity, fingerprint))
            assert forgotten or not left, "gone when the document settles"
        for identity, status in self.case.ends.items():
            settled = self.ledger.settled(identity)
            assert settled is not None, "every document is settled"
            assert settled.status is status
            manifest = self.store.manifest(identity)
            if status is ResultStatus.FAILED:
                assert manifest is None, "a failed document has no manifest"
                assert {letter.document_id for letter in self.queue.dead} == {identity}
            else:
                assert manifest is not None, "a settled document has its manifest"
                assert self.puts == 1, "nothing is published twice"
                pages = self.case.pages.get(identity, 1)
                assert {page for _, page in self.converter.converted} == set(range(1, pages + 1))
                assert len(self.converter.converted) <= pages + 1, "only the page in hand is converted again"
                assert not self.queue.dead


def _fingerprint(identity: str) -> str:
    document = read(json.dumps(own(identity)), message_id="m").documents[0]
    fetched = ScriptedSource().fetch(document)
    return fingerprint(document, sha256=fetched.sha256, engine={"name": "fake"})


class _CountingStore:
    def __init__(self, world: World) -> None:
        self._world = world
        self.manifest = world.store.manifest
        self.location = world.store.location

    def put(self, *args: object, **kwargs: object) -> str:
        location = self._world.store.put(*args, **kwargs)  # type: ignore[arg-type]
        self._world.puts += 1
        return location


def _cut_at(nth: int, fault: Callable[[], BaseException], *, after: bool, world: World) -> Countdown:
    """One life that is cut, and one that is not."""
    countdown = Countdown(nth, fault, after=after)
    with contextlib.suppress(DiedError):
        world.live("first", countdown)
    world.next_parent("second")
    world.live("second", Countdown(0, DiedError, after=False))
    return countdown


@pytest.mark.parametrize("kind", ["memory", "real"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_a_parent_that_dies_at_any_call(tmp_path: Path, case: str, after: bool, kind: Kind) -> None:  # noqa: FBT001
    """Killed at any edge call, before or after it took effect: the next parent ends every document, once."""
    cut_everywhere(tmp_path, CASES[case], kind, after=after)


def cut_everywhere(tmp_path: Path, case: Case, kind: Kind, *, after: bool) -> None:
    """Cut a first life at its n-th call, for every n, and hold the promise each time."""
    calls = []
    for nth in range(1, 60):
        folder = tmp_path / str(nth)
        folder.mkdir()
        world = World(kind, folder, case)
        countdown = _cut_at(nth, DiedError, after=after, world=world)
        world.check()
        world.ledger.close()
        if not countdown.happened:
            break
        calls.append(countdown.happened)
    else:
        pytest.fail("a life has fewer than 60 edge calls")
    last = ["queue.dead_letter", "ledger.settle", "checkpoints.drop", "queue.delete"]
    if case.ends != {next(iter(case.ends)): ResultStatus.FAILED}:
        last = ["store.put", "ledger.settle", "checkpoints.drop", "queue.delete"]
    assert calls[0] == "ledger.claim"
    assert calls[-4:] == last, "the order is the promise"


@pytest.mark.parametrize("case", CASES)
def test_an_edge_that_fails_at_any_call(tmp_path: Path, case: str) -> None:
    """The world fails any one call: the message comes back, the attempt is not counted, the document ends."""
    for nth in range(1, 60):
        world = World("memory", tmp_path, CASES[case])
        countdown = _cut_at(nth, lambda: WorldError(Cause.STORE_UNAVAILABLE, "not now"), after=False, world=world)
        world.check(forgotten=countdown.happened == "checkpoints.drop")
        if not countdown.happened:
            return
    pytest.fail("a life has fewer than 60 edge calls")


@pytest.mark.parametrize(
    "fault",
    [
        lambda: ResourceError("the bucket is gone"),
        lambda: EngineError("no child can be started"),
        lambda: OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=["resource", "engine", "disk"],
)
def test_an_outage_in_the_middle_costs_no_attempt(tmp_path: Path, fault: Callable[[], BaseException]) -> None:
    """What was there at the start is gone, or the disk is full: the message comes back, and nothing is counted.

    After three counted attempts a document would be given up as what killed its parents.
    """
    for nth in range(2, 60):
        world = World("memory", tmp_path, CASES["five_pages_one_trap"])
        countdown = _cut_at(nth, fault, after=False, world=world)
        if not countdown.happened or countdown.happened == "ledger.settle":
            return
        if countdown.happened.partition(".")[0] in {"source", "converter", "store"}:
            (first, *_) = world.ledger.attempts("long")
            assert first.ended_at is not None, countdown.happened
            assert counted([first], now=Holder(host="here", boot_id="boot", invocation="x", pid=1)) == 0
            world.check()
    pytest.fail("a life has fewer than 60 edge calls")
