"""The loop: as many messages as slots, a stop that loses nothing, a bug that costs one document.

Real threads and a real kill switch; the order comes from events that the scripted converter sets and waits for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import structlog

from daemon.admission import Pool
from daemon.attempt import DocumentEnded
from daemon.children import ChildJob, KillSwitch
from daemon.clock import SystemClock
from daemon.decide import Rules
from daemon.delivery import Delivery
from daemon.edges import Edges, Limits, Source
from daemon.errors import LeaseLostError, ResourceError, WorldError
from daemon.heartbeat import Heartbeat
from daemon.inbox import SlotFreed
from daemon.memory import Memory
from daemon.model import Attempt, Cause, Holder, Message, Outcome, ResultStatus
from daemon.parent import Parent
from daemon.queue_local import LocalQueue
from daemon.quota import Quota
from daemon.trust import Trust
from daemon.turns import Turns
from tests.fakes.checkpoints import MemoryCheckpoints
from tests.fakes.edges import ScriptedConverter, ScriptedSource
from tests.fakes.ledger import MemoryLedger
from tests.fakes.store import MemoryStore

#: A net for a hang; no test waits for it.
NET_S = 20.0


@dataclass
class Bench:
    """A parent on fakes, and everything that it can see."""

    workers: int = 2
    ahead: int = 0
    #: What is handed out; None: every worker's share, and no more.
    memory: Pool | None = None
    drain_s: float = NET_S
    queue: LocalQueue = field(default_factory=lambda: LocalQueue(clock=SystemClock(), wait_s=0.2))
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    store: MemoryStore = field(default_factory=MemoryStore)
    source: Source = field(default_factory=ScriptedSource)
    converter: ScriptedConverter = field(default_factory=ScriptedConverter)
    #: What may be fetched before its turn.
    quota: Quota = field(default_factory=Quota)
    trust: Trust = field(default_factory=Trust)
    ended: list[DocumentEnded] = field(default_factory=list)
    released: list[Cause] = field(default_factory=list)
    #: Set whenever a document ended or a message was given back.
    news: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        clock = SystemClock()
        self.pool = self.memory or Pool.of_shares(self.workers)
        self.heartbeat = Heartbeat(queue=self.queue, ledger=self.ledger, clock=clock, visibility_s=60, interval_s=NET_S)
        self.edges = edges = Edges(
            queue=self.queue,
            ledger=self.ledger,
            source=self.source,
            converter=self.converter,
            store=self.store,
            checkpoints=MemoryCheckpoints(),
            engine={},
            heartbeat=self.heartbeat,
            clock=clock,
            failpoint=lambda _name, _document, _attempt: None,
            trust=self.trust,
            turns=Turns(self.pool),
            memory=Memory(self.pool),
            quota=self.quota,
        )
        holder = Holder(host="here", boot_id="boot", invocation="now", pid=1)
        limits = Limits(
            document_timeout_s=900,
            per_page_s=10,
            longest_timeout_s=3600,
            rules=Rules(max_page_crashes=5, pages_per_child=40),
            deliver_partial=True,
            lease_s=60,
            max_attempts=3,
        )
        self.parent = Parent(
            edges,
            delivery=Delivery(edges, limits=limits, holder=holder, on_ended=self._on_ended),
            workers=self.workers,
            ahead=self.ahead,
            drain_s=self.drain_s,
            release_delay_s=0.0,
            new_switch=KillSwitch,
            on_released=self._on_released,
        )
        self.thread = threading.Thread(target=self.parent.run, daemon=True)

    def _on_ended(self, ended: DocumentEnded) -> None:
        self.ended.append(ended)
        self.news.release()

    def _on_released(self, message: Message, error: WorldError) -> None:
        del message
        self.released.append(error.cause)
        self.news.release()

    def send(self, *names: str) -> None:
        """Enqueue one message for each name."""
        for name in names:
            self.queue.send(json.dumps({"uri": f"s3://bucket/{name}.pdf", "id": name, "etag": "1"}))

    def wait_for_news(self, number: int = 1) -> None:
        """Return when `number` more documents have ended or were given back."""
        for _ in range(number):
            assert self.news.acquire(timeout=NET_S), "nothing happened"

    def join(self) -> None:
        """Return when the parent has left."""
        self.thread.join(timeout=NET_S)
        assert not self.thread.is_alive(), "the parent did not leave"


@contextmanager
def running(bench: Bench) -> Iterator[Bench]:
    """Let it run, and make sure that it has left afterwards."""
    bench.thread.start()
    try:
        yield bench
    finally:
        bench.parent.request_stop(at_once=True)
        bench.join()


class Gate:
    """Holds children at their start until it is opened, or until their switch is pulled."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def hold(self, job: ChildJob, switch: KillSwitch) -> None:
        """Say that a child is here, and keep it."""
        del job
        self.entered.release()
        while not self.open.wait(0.01) and switch.reason is None:
            pass

    def wait_for(self, number: int) -> None:
        """Return when `number` more children are here."""
        for _ in range(number):
            assert self.entered.acquire(timeout=NET_S), "no child came"


def test_no_more_messages_than_slots() -> None:
    """What waits for a slot waits on the queue, where another host may take it."""
    gate = Gate()
    bench = Bench(workers=2, converter=ScriptedConverter(on_run=gate.hold))
    bench.send("a", "b", "c", "d", "e")
    with running(bench):
        gate.wait_for(2)
        assert bench.queue.depth()["visible"] == 3
        gate.open.set()
        bench.wait_for_news(5)
    assert {ended.settled.status for ended in bench.ended} == {ResultStatus.CONVERTED}
    assert bench.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 0}


class SlowStore(MemoryStore):
    """Stores nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()

    def put(
        self, document_id: str, *, fence: int, artefacts: Mapping[str, bytes], manifest: Mapping[str, object]
    ) -> str:
        """See `Store.put`."""
        assert self.open.wait(NET_S), "nobody let it store"
        return super().put(document_id, fence=fence, artefacts=artefacts, manifest=manifest)


def test_the_next_converts_while_one_is_stored() -> None:
    """A slow store costs no worker: the message ahead has its child while the first result is on its way."""
    gate, store = Gate(), SlowStore()
    bench = Bench(workers=1, ahead=1, store=store, converter=ScriptedConverter(on_run=gate.hold))
    gate.open.set()
    bench.send("first", "second")
    with running(bench):
        gate.wait_for(2)
        assert not bench.ended
        store.open.set()
        bench.wait_for_news(2)
    assert {ended.document.id for ended in bench.ended} == {"first", "second"}


def test_what_waits_for_its_turn_has_no_attempt() -> None:
    """Only one converts at a time; what waits has nothing on its record, and goes back at once when we must stop."""
    gate = Gate()
    bench = Bench(workers=1, ahead=1, converter=ScriptedConverter(on_run=gate.hold))
    bench.send("first", "second", "third")
    with running(bench):
        gate.wait_for(1)
        while bench.queue.depth()["in_flight"] < 2:
            threading.Event().wait(0.01)
        assert bench.queue.depth()["visible"] == 1
        (busy,) = bench.converter.jobs
        (waiting,) = {"first", "second"} - {busy.document_id}
        assert not bench.ledger.attempts(waiting)
        bench.parent.request_stop()
        bench.wait_for_news(1)
        assert bench.released == [Cause.DRAINED]
        gate.open.set()
        bench.join()
    assert [ended.document.id for ended in bench.ended] == [busy.document_id]
    assert not bench.ledger.attempts(waiting)
    assert bench.queue.depth()["visible"] == 2


def test_a_drain_lets_work_finish() -> None:
    """Told to stop: nothing new is received, and what is in flight is finished and deleted."""
    gate = Gate()
    bench = Bench(workers=1, converter=ScriptedConverter(on_run=gate.hold))
    bench.send("first", "second")
    with running(bench):
        gate.wait_for(1)
        bench.parent.request_stop()
        gate.open.set()
        bench.join()
    assert [ended.document.id for ended in bench.ended] == ["first"]
    assert bench.queue.depth()["visible"] == 1


def test_a_drain_that_takes_too_long_costs_no_attempt() -> None:
    """After `drain_s` the child is killed, its message visible at once, and the attempt is not counted."""
    gate = Gate()
    bench = Bench(workers=1, drain_s=0.0, converter=ScriptedConverter(on_run=gate.hold))
    bench.send("slow")
    with running(bench):
        gate.wait_for(1)
        bench.parent.request_stop()
        bench.join()
    assert bench.released == [Cause.DRAINED]
    assert bench.queue.depth()["visible"] == 1
    (attempt,) = bench.ledger.attempts("slow")
    assert attempt.ended_at is not None
    assert attempt.last_cause is Cause.DRAINED


def test_what_is_in_hand_when_told_to_stop_is_excused() -> None:
    """Somebody's SIGKILL in the middle of a drain costs no attempt: the ledger knows of the stop before that."""
    gate, excused = Gate(), threading.Event()

    class Listening(MemoryLedger):
        def record_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
            super().record_outcome(attempt, outcome)
            excused.set()

    bench = Bench(workers=1, ledger=Listening(), converter=ScriptedConverter(on_run=gate.hold))
    bench.send("slow")
    with running(bench):
        gate.wait_for(1)
        bench.parent.request_stop()
        assert excused.wait(NET_S)
        (attempt,) = bench.ledger.attempts("slow")
        assert (attempt.last_cause, attempt.ended_at) == (Cause.DRAINED, None)
        gate.open.set()
        bench.join()
    assert [ended.settled.status for ended in bench.ended] == [ResultStatus.CONVERTED]


def test_a_second_interrupt_does_not_wait() -> None:
    """Whoever presses Ctrl+C twice wants the terminal back, whatever `drain_s` is."""
    gate = Gate()
    bench = Bench(workers=1, drain_s=10_000.0, converter=ScriptedConverter(on_run=gate.hold))
    bench.send("slow")
    with running(bench):
        gate.wait_for(1)
        bench.parent.request_stop()
        bench.parent.request_stop(at_once=True)
        bench.join()
    assert bench.released == [Cause.DRAINED]


def test_a_slot_that_is_left_behind_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that did not come back in time finds its edges closed: one line says that work was left, not two."""
    monkeypatch.setattr("daemon.parent.LAST_WORDS_S", 0.05)
    entered, closed = threading.Semaphore(0), threading.Event()

    def stay(job: ChildJob, switch: KillSwitch) -> None:
        del job, switch
        entered.release()
        assert closed.wait(NET_S)
        raise ZeroDivisionError

    bench = Bench(workers=1, drain_s=0.0, converter=ScriptedConverter(on_run=stay))
    bench.send("slow")
    with structlog.testing.capture_logs() as logs, running(bench):
        assert entered.acquire(timeout=NET_S)
        bench.parent.request_stop()
        bench.join()
        closed.set()
        while not isinstance(bench.parent._inbox.get(timeout=NET_S), SlotFreed):
            pass
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["daemon.left_work"]


def test_a_bug_costs_one_message_and_no_slot() -> None:
    """An exception that nobody expects leaves its message on the queue; the slot takes the next one."""

    def stumble(job: ChildJob, switch: KillSwitch) -> None:
        del switch
        if job.document_id == "bug":
            raise ZeroDivisionError

    bench = Bench(workers=1, converter=ScriptedConverter(on_run=stumble))
    bench.send("bug", "good")
    with running(bench):
        bench.wait_for_news(1)
    assert [ended.document.id for ended in bench.ended] == ["good"]
    assert bench.queue.depth()["in_flight"] == 1, "the message comes back by itself"
    assert bench.ledger.attempts("bug")[0].ended_at is None, "and its attempt counts"


def test_a_lost_lease_stops_the_work() -> None:
    """A refused heartbeat: the child is ended, nothing is published, nothing is released or deleted."""
    gate = Gate()

    class Refusing(LocalQueue):
        def extend(self, message: Message, *, visibility_s: float) -> None:
            del message, visibility_s
            raise LeaseLostError("the receipt is no longer ours")

    bench = Bench(
        workers=1,
        queue=Refusing(clock=SystemClock(), wait_s=0.2),
        converter=ScriptedConverter(on_run=gate.hold),
    )
    bench.send("overtaken", "next")
    with running(bench):
        gate.wait_for(1)
        bench.heartbeat.beat()
        gate.wait_for(1)
        gate.open.set()
        bench.wait_for_news(1)
    assert [ended.document.id for ended in bench.ended] == ["next"]
    assert bench.store.manifest("overtaken") is None
    assert bench.released == []
    (attempt,) = bench.ledger.attempts("overtaken")
    assert attempt.last_cause is Cause.LEASE_LOST
    assert attempt.ended_at is not None, "a lost lease is no attempt that killed its parent"


@pytest.mark.parametrize(
    "fault",
    [WorldError(Cause.QUEUE_UNAVAILABLE, "no answer"), ResourceError("there is no such queue"), RuntimeError("a bug")],
    ids=["world", "operator", "bug"],
)
def test_an_unanswering_queue_is_asked_again(fault: Exception) -> None:
    """Whatever the queue answers is no reason to leave, or to stand still: the parent waits and asks again."""

    class Flaky(LocalQueue):
        failure: Exception | None = fault

        def receive(self, limit: int, *, stop: threading.Event) -> Sequence[Message]:
            failure, self.failure = self.failure, None
            if failure is not None:
                raise failure
            return super().receive(limit, stop=stop)

    bench = Bench(queue=Flaky(clock=SystemClock(), wait_s=0.2))
    bench.send("patient")
    with running(bench):
        bench.wait_for_news(1)
    assert [ended.document.id for ended in bench.ended] == ["patient"]


@pytest.mark.parametrize("body", ["", "not json and no uri", "{}", '{"Records": []}', "[" * 100_000])
def test_garbage_on_the_queue_is_dead_lettered(body: str) -> None:
    """A message that nobody can read goes to the dead-letter queue with its reason, and its neighbour converts."""
    bench = Bench()
    bench.queue.send(body)
    bench.send("neighbour")
    with running(bench):
        bench.wait_for_news(1)
        bench.parent.request_stop()
        bench.join()
    assert [letter.body for letter in bench.queue.dead] == [body]
    assert bench.queue.dead[0].cause is Cause.MALFORMED_MESSAGE
    assert bench.queue.depth()["visible"] == 0


def test_several_records_are_several_documents() -> None:
    """One of three records is bad: it alone is dead-lettered, the message is deleted once all have ended."""
    records: list[dict[str, object]] = [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "bucket"}, "object": {"key": key, "size": 9, "eTag": key}},
        }
        for key in ("one.pdf", "two.pdf")
    ]
    bench = Bench()
    bench.queue.send(json.dumps({"Records": [*records, {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}]}))
    with running(bench):
        bench.wait_for_news(2)
        bench.parent.request_stop()
        bench.join()
    assert sorted(ended.document.uri for ended in bench.ended) == ["s3://bucket/one.pdf", "s3://bucket/two.pdf"]
    assert len(bench.queue.dead) == 1
    assert bench.queue.depth()["visible"] == 0


def test_a_heartbeat_survives_whatever_an_edge_does() -> None:
    """One message whose queue is gone must not cost the others their visibility."""

    class Gone(LocalQueue):
        def extend(self, message: Message, *, visibility_s: float) -> None:
            if "gone" in message.body:
                raise ResourceError("there is no such queue")
            extended.append(message.body)
            super().extend(message, visibility_s=visibility_s)

    extended: list[str] = []
    gate = Gate()
    bench = Bench(queue=Gone(clock=SystemClock(), wait_s=0.2), converter=ScriptedConverter(on_run=gate.hold))
    bench.send("gone", "here")
    with running(bench):
        gate.wait_for(2)
        bench.heartbeat.beat()
        gate.open.set()
        bench.wait_for_news(2)
    assert len(extended) == 1


def test_a_store_that_knows_more_than_the_ledger() -> None:
    """The ledger was lost, the store has attempt 5's result: the document is settled by it, and not tried for ever."""
    bench = Bench()
    made = {"schema": 1, "status": "converted", "pages": [{}], "pages_by_state": {"text": 1}, "fencing_token": 5}
    artefacts = {"document.md": b"kept", "document.json": b"{}"}
    bench.store.put("known", fence=5, artefacts=artefacts, manifest=made)
    bench.send("known")
    with running(bench):
        bench.wait_for_news(1)
    assert bench.ended[0].settled.status is ResultStatus.CONVERTED
    manifest = bench.store.manifest("known")
    assert manifest is not None
    assert manifest["fencing_token"] == 5
    assert bench.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 0}


def test_bad_records_are_told_once() -> None:
    """A bad record beside a document that must wait: its dead letter is sent when the message ends, not each time."""
    bad = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    good = bad | {"s3": {"bucket": {"name": "bucket"}, "object": {"key": "a.pdf", "size": 9, "eTag": "1"}}}
    failures = [WorldError(Cause.SOURCE_UNAVAILABLE, "403")] * 2

    def refuse(job: ChildJob, switch: KillSwitch) -> None:
        del job, switch
        if failures:
            raise failures.pop()

    bench = Bench(workers=1, converter=ScriptedConverter(on_run=refuse))
    bench.queue.send(json.dumps({"Records": [bad, good]}))
    with running(bench):
        bench.wait_for_news(3)
        bench.parent.request_stop()
        bench.join()
    assert len(bench.queue.dead) == 1


def test_a_duplicate_is_only_deleted() -> None:
    """The same version of the same object, delivered twice, is converted once."""
    bench = Bench(workers=1)
    bench.send("twice", "twice")
    with running(bench):
        bench.wait_for_news(2)
    assert len(bench.converter.jobs) == 1
    assert bench.queue.depth() == {"visible": 0, "in_flight": 0, "dead": 0}
