"""A host whose children die: it stops, gives everything back, proves itself, goes on; its documents pay nothing.

Real threads, and the ladder as it is; the canary is a script, since what it converts is tested with real children in
`tests/process/test_poison_host.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from daemon.children import ChildJob, KillSwitch
from daemon.clock import SystemClock
from daemon.errors import EngineError, WorldError
from daemon.model import Cause, KillReason, Message, PageMode, ResultStatus
from daemon.queue_local import LocalQueue
from daemon.trust import Court, Proof, Trust
from tests.fakes.edges import ScriptedConverter
from tests.shell.test_parent import NET_S, Bench, Gate, running


@dataclass
class Bad:
    """A host that is broken until it is cured; then its scripted canaries and documents go well."""

    #: Failed canaries until somebody has cured it; None: never by itself.
    cured_after: int | None = 2
    #: What the converter does to documents while it is broken.
    broken: threading.Event = field(default_factory=threading.Event)
    canaries: int = 0
    renewals: int = 0
    #: Whether each canary had its picture.
    painted: list[bool] = field(default_factory=list)
    notes: list[str | None] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    on_canary: Callable[[KillSwitch], None] = lambda _switch: None

    def __post_init__(self) -> None:
        self.broken.set()

    def court(self) -> Court:
        """With pauses that no test has to wait for."""
        return Court(
            prove=self.prove,
            renew=self.renew,
            abandon=lambda: None,
            note=self.notes.append,
            on_poisoned=self.told.append,
            first_pause_s=0.01,
            longest_pause_s=0.02,
        )

    def prove(self, number: int, switch: KillSwitch, painted: bool) -> Proof:  # noqa: FBT001 - the court's
        """One canary."""
        self.canaries = number
        self.painted.append(painted)
        self.on_canary(switch)
        if switch.reason is not None:
            raise WorldError(Cause.DRAINED, "told to stop")
        passed = not self.broken.is_set()
        if self.cured_after is not None and number >= self.cured_after:
            self.broken.clear()
        return Proof(passed=passed, detail="in 1 s" if passed else "the canary died")

    def renew(self) -> None:
        """A fresh zygote."""
        self.renewals += 1

    def converter(self, gate: Gate | None = None) -> ScriptedConverter:
        """Every child dies as it opens its document, while the host is broken."""
        script = _While(self.broken)
        return ScriptedConverter(causes=script, on_run=gate.hold if gate else lambda _job, _switch: None)


class _While(dict[str, Sequence[Cause]]):
    """CRASHED for every document while the event is set."""

    def __init__(self, broken: threading.Event) -> None:
        super().__init__()
        self._broken = broken

    def get(self, key: str, default: object = None) -> Sequence[Cause]:
        del key, default
        return (Cause.CRASHED,) if self._broken.is_set() else (Cause.CONVERTED,)


def names(logs: Sequence[object]) -> list[str]:
    """The host's own events, in order."""
    events = [str(line["event"]) for line in logs if isinstance(line, dict)]
    return [event for event in events if event.startswith("host.")]


def test_a_host_that_breaks_and_is_cured() -> None:
    """Ten documents, all of whose children die: none is given up, none is counted, all convert when it is cured."""
    bad = Bad(cured_after=3)
    bench = Bench(workers=1, converter=bad.converter(), trust=Trust(window=3, court=bad.court()))
    documents = [f"doc-{number}" for number in range(10)]
    bench.send(*documents)
    with capture_logs() as logs, running(bench):
        bench.wait_for_news(1 + 10)
    assert sorted(ended.document.id for ended in bench.ended) == sorted(documents)
    assert {ended.settled.status for ended in bench.ended} == {ResultStatus.CONVERTED}
    assert bench.queue.dead == []
    assert bench.released == [Cause.POISON_HOST], "what was received after the first one was left in the queue"
    assert names(logs) == ["host.suspended", "host.poisoned", "host.canary_failed", "host.trusted"]
    assert bad.told == ["the canary died"]
    assert bad.renewals == 3, "each canary of a suspended host has a fresh zygote"
    assert bad.notes == ["the canary died"] * 3 + [None]
    (first,) = [attempts for name in documents if len(attempts := bench.ledger.attempts(name)) > 1]
    assert [attempt.last_cause for attempt in first] == [Cause.POISON_HOST, Cause.CONVERTED]
    assert bench.converter.jobs[-1].plan.default is PageMode.FULL, "its crashes are not held against it"


def test_what_is_in_flight_is_given_back() -> None:
    """One document's canary fails while another one converts: that one is stopped, and no attempt of it counts."""
    bad, gate = Bad(cured_after=2), Gate()

    def hold(job: ChildJob, switch: KillSwitch) -> None:
        if job.document_id == "slow" and job.attempt == 1:
            gate.hold(job, switch)

    converter = bad.converter()
    converter.on_run = hold
    bench = Bench(workers=2, converter=converter, trust=Trust(court=bad.court()))
    bench.send("slow")
    with running(bench):
        gate.wait_for(1)
        bench.send("first")
        bench.wait_for_news(4)
    assert sorted(bench.released) == [Cause.DRAINED, Cause.POISON_HOST]
    assert sorted(ended.document.id for ended in bench.ended) == ["first", "slow"]
    assert {ended.settled.status for ended in bench.ended} == {ResultStatus.CONVERTED}


def test_a_hundred_poison_documents_stop_nothing() -> None:
    """The canary converts each time, so they are guilty: all are given up, and the host goes on."""
    bad = Bad()
    bad.broken.clear()
    poison = [f"poison-{number}" for number in range(100)]
    converter = ScriptedConverter(causes=dict.fromkeys(poison, (Cause.CRASHED, Cause.CRASHED)))
    bench = Bench(workers=2, converter=converter, trust=Trust(court=bad.court()))
    bench.send(*poison, "good")
    with capture_logs() as logs, running(bench):
        bench.wait_for_news(101)
    assert len(bench.queue.dead) == 100
    assert set(names(logs)) == {"host.proved"}
    assert bad.renewals == 0
    assert bench.released == []
    assert 50 <= bad.canaries <= 200


def test_a_crash_without_an_end_is_no_canary() -> None:
    """A document that crashes once and converts otherwise costs one canary, before its result is published."""
    bad = Bad()
    bad.broken.clear()
    converter = ScriptedConverter(causes={"shaky": (Cause.CRASHED, Cause.CONVERTED)})
    bench = Bench(workers=1, converter=converter, trust=Trust(court=bad.court()))
    bench.send("shaky", "good", "fine")
    with running(bench):
        bench.wait_for_news(3)
    assert bad.canaries == 1


def test_a_degraded_result_of_a_broken_host_is_not_published() -> None:
    """OCR dies for everyone: what would convert without it waits for a host that can read."""
    bad = Bad(cured_after=2)
    converter = ScriptedConverter(causes={"scan": (Cause.CRASHED, Cause.CONVERTED)})
    bench = Bench(workers=1, converter=converter, trust=Trust(court=bad.court()))
    bench.send("scan")
    with running(bench):
        bench.wait_for_news(1)
        converter.causes = {}
        bench.wait_for_news(1)
    assert bench.released == [Cause.POISON_HOST]
    modes = [(job.attempt, job.plan.default) for job in converter.jobs]
    assert modes == [(1, PageMode.FULL), (1, PageMode.WITHOUT_OCR), (2, PageMode.FULL)]


def test_pages_of_a_broken_host_are_not_resumed() -> None:
    """Pages finished after a crash were made with less of the engine, so none of them is kept."""
    bad = Bad(cured_after=2)
    converter = ScriptedConverter(pages={"long": 3}, traps={("long", 2): {PageMode.FULL}})
    bench = Bench(workers=1, converter=converter, trust=Trust(court=bad.court()))
    bench.send("long")
    with running(bench):
        bench.wait_for_news(1)
        converter.traps = {}
        bench.wait_for_news(1)
    assert converter.converted.count(("long", 2)) == 2
    assert converter.converted.count(("long", 1)) == 2


def test_an_engine_that_cannot_start() -> None:
    """A model file is damaged: nothing more is received, no document pays, and it goes on when the file is back."""
    bad = Bad(cured_after=3)

    def refuse(job: ChildJob, switch: KillSwitch) -> None:
        del job, switch
        if bad.broken.is_set():
            raise EngineError("cannot load layout.onnx: its digest differs")

    converter = ScriptedConverter(on_run=refuse)
    bench = Bench(workers=1, converter=converter, trust=Trust(court=bad.court()))
    bench.send("one", "two", "three")
    with capture_logs() as logs, running(bench):
        bench.wait_for_news(1 + 3)
    assert bench.released == [Cause.ZYGOTE_DIED]
    assert len(bench.ended) == 3
    assert names(logs).count("host.poisoned") == 1


def test_several_different_documents_ask_at_once() -> None:
    """Three slots, three crashes: the canary is asked for by the third one, not first when one of them is given up."""
    bad, gate = Bad(cured_after=2), Gate()

    def hold(job: ChildJob, switch: KillSwitch) -> None:
        if job.child == 1:
            gate.hold(job, switch)
            return
        for _ in range(int(NET_S / 0.01)):
            if bad.canaries or switch.reason is not None:
                return
            threading.Event().wait(0.01)
        pytest.fail("nobody asked for a canary")

    converter = bad.converter()
    converter.on_run = hold
    bench = Bench(workers=3, converter=converter, trust=Trust(window=3, court=bad.court()))
    bench.send("a", "b", "c")
    with running(bench):
        gate.wait_for(3)
        assert bad.canaries == 0
        gate.open.set()
        bench.wait_for_news(6)
    assert {ended.settled.status for ended in bench.ended} == {ResultStatus.CONVERTED}
    assert bench.queue.dead == []


def test_an_engine_that_is_being_stopped_is_no_evidence() -> None:
    """Told to stop: that no child can be started any more is our own doing."""
    entered, trust = threading.Event(), Trust(court=Bad().court())

    def refuse(job: ChildJob, switch: KillSwitch) -> None:
        del job
        entered.set()
        while switch.reason is None:
            threading.Event().wait(0.01)
        raise EngineError("cannot start a child: we were told to stop")

    bench = Bench(workers=1, drain_s=0.0, converter=ScriptedConverter(on_run=refuse), trust=trust)
    bench.send("one")
    with running(bench):
        assert entered.wait(NET_S)
        bench.parent.request_stop()
        bench.join()
    assert not trust.suspended


def test_told_to_stop_while_suspended() -> None:
    """The canary on its way is not waited for, and says nothing about the host."""
    bad = Bad(cured_after=None)
    begun = threading.Event()

    def hang(switch: KillSwitch) -> None:
        if bad.renewals:
            begun.set()
            while switch.reason is None:
                threading.Event().wait(0.01)

    bad.on_canary = hang
    bench = Bench(workers=1, converter=bad.converter(), trust=Trust(court=bad.court()))
    bench.send("one", "two")
    with running(bench):
        assert begun.wait(NET_S)
        bench.parent.request_stop()
        bench.join()
    assert bad.told == []
    assert bench.queue.depth() == {"visible": 2, "in_flight": 0, "dead": 0}


def test_a_drain_is_no_evidence() -> None:
    """Told to stop while the first canary runs: the document is drained, and the host is not suspected."""
    bad, begun = Bad(cured_after=None), threading.Event()

    def hang(switch: KillSwitch) -> None:
        begun.set()
        while switch.reason is None:
            threading.Event().wait(0.01)

    bad.on_canary = hang
    trust = Trust(court=bad.court())
    bench = Bench(workers=1, drain_s=0.0, converter=bad.converter(), trust=trust)
    bench.send("one")
    with running(bench):
        assert begun.wait(NET_S)
        bench.parent.request_stop()
        bench.join()
    assert bench.released == [Cause.DRAINED]
    assert not trust.suspended


@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), RuntimeError("a bug"), EngineError("no model")]
)
def test_a_renewal_that_fails_is_tried_again(failure: Exception) -> None:
    """A full disk, a bug, a missing model: none of them ends the thread that alone can end a suspension."""
    bad = Bad(cured_after=1)
    failures = [failure]
    court = bad.court()

    def renew() -> None:
        if failures:
            raise failures.pop()

    trust = Trust(court=Court(
        prove=court.prove, renew=renew, abandon=court.abandon, note=court.note, on_poisoned=court.on_poisoned,
        first_pause_s=0.0, longest_pause_s=0.0,
    ))  # fmt: skip
    trust.engine_failed("no child starts")
    assert trust.suspended
    for _ in range(2):
        trust.prove_anew(KillSwitch())
    bad.broken.clear()
    trust.prove_anew(KillSwitch())
    assert not trust.suspended


def test_a_canary_without_room() -> None:
    """The disk is full: that is said and waited for like any full disk, and is no proof against the host."""
    bad, full = Bad(cured_after=None), [OSError(28, "No space left on device")]
    bad.broken.clear()

    def no_room(_switch: KillSwitch) -> None:
        if full:
            raise full.pop()

    bad.on_canary = no_room
    trust = Trust(court=bad.court())
    converter = ScriptedConverter(causes={"poison": (Cause.CRASHED, Cause.CRASHED)})
    bench = Bench(workers=1, converter=converter, trust=trust)
    bench.send("poison")
    with running(bench):
        bench.wait_for_news(2)
    assert bench.released == [Cause.DISK_FULL]
    assert len(bench.queue.dead) == 1
    assert not trust.suspended


def test_letters_answer_for_a_document_that_dies_of_being_opened() -> None:
    """A fifth of the work. One that dies of its layout, or of memory as well, needs the whole canary."""
    bad = Bad()
    bad.broken.clear()
    converter = ScriptedConverter(
        causes={"opened": (Cause.CRASHED,), "starved": (Cause.MEMORY, Cause.CRASHED)},
        traps={("laid-out", 1): {PageMode.FULL}},
    )
    bench = Bench(workers=1, converter=converter, trust=Trust(window=9, court=bad.court()))
    bench.send("opened", "laid-out", "starved")
    with running(bench):
        bench.wait_for_news(3)
    assert bad.painted == [False, True, True]
    assert len(bench.queue.dead) == 2


def test_a_canary_of_letters_answers_for_letters_only() -> None:
    """It is no answer to a document that died of a picture; a whole one is an answer to both."""
    bad = Bad()
    bad.broken.clear()
    trust, switch = Trust(court=bad.court()), KillSwitch()
    number = trust.saw_trouble("a")
    trust.answer(number, switch, letters=True)
    trust.answer(number, switch, letters=True)
    assert bad.painted == [False]
    trust.answer(number, switch)
    trust.answer(number, switch)
    trust.answer(number, switch, letters=True)
    assert bad.painted == [False, True]


def test_many_documents_in_trouble_ask_for_the_whole_canary() -> None:
    """Letters clear nobody's count: the third document in a row brings the picture, whatever it died of."""
    bad = Bad()
    bad.broken.clear()
    trust = Trust(window=3, court=bad.court())
    for name in ("a", "b", "c", "d"):
        trust.answer(trust.saw_trouble(name), KillSwitch(), letters=True)
    assert bad.painted == [False, False, True, False]


def test_a_canary_of_letters_that_dies_suspends_the_host() -> None:
    """What ends the suspension is a whole one."""
    bad = Bad(cured_after=1)
    trust = Trust(court=bad.court())
    with pytest.raises(WorldError, match="at fault"):
        trust.answer(trust.saw_trouble("a"), KillSwitch(), letters=True)
    trust.prove_anew(KillSwitch())
    assert bad.notes == ["the canary died", None]
    assert bad.painted == [False, True]


def test_without_a_court_documents_are_to_blame() -> None:
    """`host.canary` off: nothing is asked, nothing is suspended."""
    trust = Trust()
    assert trust.saw_trouble("a") == 0
    trust.engine_failed("no child starts")
    trust.answer(0, KillSwitch())
    assert not trust.suspended
    assert not trust.owes_canary


def test_a_pulled_switch_proves_nothing() -> None:
    """Told to stop before the canary began: no engine is loaded for nobody."""
    bad = Bad()
    trust, switch = Trust(court=bad.court()), KillSwitch()
    switch.pull(KillReason.DRAIN)
    trust.prove_anew(switch)
    assert (bad.renewals, bad.canaries) == (0, 0)


def test_while_suspended_nobody_asks_for_a_canary_of_his_own() -> None:
    """The others in trouble are told at once; the loop alone tries canaries then, in fresh zygotes."""
    bad = Bad()
    trust = Trust(court=bad.court())
    number = trust.saw_trouble("a")
    trust.engine_failed("no child starts")
    with pytest.raises(WorldError, match="not proved itself") as raised:
        trust.answer(number, KillSwitch())
    assert raised.value.cause is Cause.POISON_HOST
    assert bad.canaries == 0


def test_a_renewal_that_is_cut_off_is_no_evidence() -> None:
    """Told to stop while the fresh zygote loads: nobody is told that the host is poisoned."""
    bad, switch = Bad(), KillSwitch()
    court = bad.court()

    def renew() -> None:
        switch.pull(KillReason.DRAIN)
        raise EngineError("it ended while loading")

    trust = Trust(court=replace(court, renew=renew))
    trust.engine_failed("no child starts")
    trust.prove_anew(switch)
    assert bad.told == []


def test_what_arrives_while_suspended_goes_back() -> None:
    """A receive was on its way when the canary failed: its message is visible again at once, and has no attempt."""
    bad = Bad(cured_after=None)
    suspended = threading.Event()

    class Late(LocalQueue):
        calls = 0

        def receive(self, limit: int, *, stop: threading.Event) -> Sequence[Message]:
            self.calls += 1
            if self.calls > 1 and not stop.is_set():
                assert suspended.wait(NET_S)
                self.send('{"uri": "s3://bucket/late.pdf", "id": "late"}')
            return super().receive(limit, stop=stop)

    court = replace(bad.court(), note=lambda _detail: suspended.set())
    queue = Late(clock=SystemClock(), wait_s=0.2)
    bench = Bench(workers=2, queue=queue, converter=bad.converter(), trust=Trust(court=court))
    bench.send("first")
    with running(bench):
        bench.wait_for_news(2)
    assert sorted(bench.released) == [Cause.DRAINED, Cause.POISON_HOST]
    assert {job.document_id for job in bench.converter.jobs} == {"first"}
    assert bench.ledger.attempts("late") == ()


def test_no_engine_is_replaced_under_a_slot() -> None:
    """A slot that is slow to give back keeps its zygote: a fresh one comes when nobody is at work."""
    bad, let_go, renewed = Bad(cured_after=2), threading.Event(), threading.Event()
    entered = threading.Event()

    def hold(job: ChildJob, switch: KillSwitch) -> None:
        del switch
        if job.document_id == "stuck" and job.attempt == 1:
            entered.set()
            assert let_go.wait(NET_S)

    converter = bad.converter()
    converter.on_run = hold
    bench = Bench(workers=2, converter=converter, trust=Trust(court=replace(bad.court(), renew=renewed.set)))
    bench.send("stuck")
    with running(bench):
        assert entered.wait(NET_S)
        bench.send("first")
        bench.wait_for_news(1)
        assert not renewed.wait(0.3), "too short a wait can only hide a fault"
        let_go.set()
        bench.wait_for_news(3)
    assert renewed.is_set()
