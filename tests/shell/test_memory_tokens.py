"""Memory is handed out: bombs one after the other, small ones beside them, and no page lost to a neighbour's need.

The parent of `test_parent.py`, on fakes, with real threads; the scripted children die of less than they need.
"""

from __future__ import annotations

import threading

import pytest
import structlog

from daemon.admission import MOST_OVERTAKEN, Pool
from daemon.children import ChildJob, KillSwitch
from daemon.model import Cause, Outcome, PageMode, ResultStatus
from daemon.peaks import Traits
from daemon.sizing import GIB
from tests.fakes.edges import ScriptedConverter
from tests.shell.test_parent import NET_S, Bench, running

#: Two workers with 4 GiB each; a raised limit is 7.
POOL = Pool(workers=2, share_bytes=4 * GIB, total_bytes=8 * GIB, most_bytes=8 * GIB)
SHARE_BYTES = POOL.share_bytes


class Hall:
    """Lets children in and out by name, and sees who is in there together."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._may_leave: list[str] = []
        self.inside: dict[str, int] = {}
        #: Most bytes that were granted at the same time.
        self.most_bytes = 0
        self.came: list[tuple[str, int]] = []

    def hold(self, job: ChildJob, switch: KillSwitch) -> None:
        """Keep a child until it may leave, or its switch is pulled."""
        assert job.memory_bytes is not None
        with self._changed:
            self.inside[job.document_id] = job.memory_bytes
            self.came.append((job.document_id, job.memory_bytes))
            self.most_bytes = max(self.most_bytes, sum(self.inside.values()))
            self._changed.notify_all()
            while job.document_id not in self._may_leave and switch.reason is None:
                self._changed.wait(0.01)
            if job.document_id in self._may_leave:
                self._may_leave.remove(job.document_id)
            del self.inside[job.document_id]
            self._changed.notify_all()

    def wait_for(self, **inside: int) -> None:
        """Return when exactly these children are inside, with these limits in GiB."""
        wanted = {name: gib * GIB for name, gib in inside.items()}
        with self._changed:
            assert self._changed.wait_for(lambda: self.inside == wanted, NET_S), f"inside: {self.inside}"

    def let_go(self, name: str) -> None:
        """The child of this document may go on, now or when it comes."""
        with self._changed:
            self._may_leave.append(name)
            self._changed.notify_all()


def limits(bench: Bench, name: str) -> list[tuple[int, PageMode]]:
    """In GiB what each child of a document had, and how much of the engine its first page."""
    return [
        ((job.memory_bytes or 0) // GIB, job.plan.mode_of(1)) for job in bench.converter.jobs if job.document_id == name
    ]


def test_a_page_that_died_of_its_share_gets_more_on_its_next_rung() -> None:
    """What no share can hold is converted where the host has the memory, and is not a gap."""
    bench = Bench(memory=POOL, converter=ScriptedConverter(hunger={"big": 6 * GIB}))
    bench.send("big")
    with running(bench):
        bench.wait_for_news()
    (ended,) = bench.ended
    assert ended.settled.status is ResultStatus.CONVERTED
    assert limits(bench, "big") == [(4, PageMode.FULL), (7, PageMode.REDUCED)]


def test_only_the_page_that_died_gets_more() -> None:
    """The pages that it took along go on with a share, and wait for nobody."""
    bench = Bench(memory=POOL, converter=ScriptedConverter(hunger={"big": 6 * GIB}, pages={"big": 3}))
    bench.send("big")
    with running(bench):
        bench.wait_for_news()
    assert limits(bench, "big") == [(4, PageMode.FULL), (4, PageMode.REDUCED), (7, PageMode.REDUCED)]
    assert bench.converter.converted == [("big", 2), ("big", 3), ("big", 1)]


def test_more_is_given_once_when_it_does_not_help() -> None:
    """A bomb goes down the ladder as ever, and takes the other workers' memory for one child only."""
    bench = Bench(memory=POOL, converter=ScriptedConverter(hunger={"bomb": 100 * GIB}))
    bench.send("bomb")
    with running(bench):
        bench.wait_for_news()
    given = [gib for gib, _ in limits(bench, "bomb")]
    assert given.count(7) == 1
    assert set(given) == {4, 7}
    assert bench.ended[0].settled.status is not ResultStatus.CONVERTED


def test_an_operators_limit_is_never_raised() -> None:
    """`child.memory_bytes` is the limit of a child, whatever the host has besides."""
    pool = Pool(workers=2, share_bytes=2 * GIB, total_bytes=8 * GIB, most_bytes=2 * GIB)
    bench = Bench(memory=pool, converter=ScriptedConverter(hunger={"big": 6 * GIB}))
    bench.send("big")
    with running(bench):
        bench.wait_for_news()
    assert {gib for gib, _ in limits(bench, "big")} == {2}


def test_two_bombs_are_never_side_by_side_while_small_ones_fill_the_rest() -> None:
    """Each gets its raised limit when the other is done with it; small ones run beside both, and all fit the pool."""
    hall = Hall()
    converter = ScriptedConverter(hunger={"b1": 6 * GIB, "b2": 6 * GIB}, on_run=hall.hold)
    bench = Bench(memory=POOL, ahead=3, converter=converter)
    bench.send("b1", "b2")
    with running(bench):
        hall.wait_for(b1=4, b2=4)
        hall.let_go("b1")  # it dies of its share, and waits for more than is free
        hall.wait_for(b2=4)
        hall.let_go("b2")
        (first,) = [name for name in ("b1", "b2") if name in _alone(hall, gib=7)]
        bench.send("s1", "s2")
        hall.wait_for(**{first: 7, _small(hall): 1})
        small = _small(hall)
        hall.let_go(small)
        other_small = "s1" if small == "s2" else "s2"
        hall.wait_for(**{first: 7, other_small: 1})
        hall.let_go(first)
        second = "b1" if first == "b2" else "b2"
        hall.wait_for(**{second: 7, other_small: 1})
        hall.let_go(second)
        hall.let_go(other_small)
        bench.wait_for_news(4)
    assert {ended.settled.status for ended in bench.ended} == {ResultStatus.CONVERTED}
    assert hall.most_bytes <= POOL.total_bytes


def _alone(hall: Hall, *, gib: int) -> dict[str, int]:
    """Who is inside with this limit, as soon as somebody is."""
    with hall._changed:
        assert hall._changed.wait_for(lambda: gib * GIB in hall.inside.values(), NET_S)
        return {name: limit for name, limit in hall.inside.items() if limit == gib * GIB}


def _small(hall: Hall) -> str:
    """The small one that is inside, as soon as one is."""
    with hall._changed:
        assert hall._changed.wait_for(lambda: {"s1", "s2"} & hall.inside.keys(), NET_S)
        return min({"s1", "s2"} & hall.inside.keys())


def test_a_bomb_gets_its_turn_among_small_ones() -> None:
    """However many small ones come, the bomb waits for a bounded number of them and not for all."""
    hall = Hall()
    bench = Bench(memory=POOL, ahead=1, converter=ScriptedConverter(hunger={"bomb": 6 * GIB}, on_run=hall.hold))
    small = [f"small-{number}" for number in range(4 * MOST_OVERTAKEN)]
    bench.send("bomb", *small)
    with running(bench):
        hall.wait_for(bomb=4, **{small[0]: 4})
        hall.let_go("bomb")
        wait_for_held_back(bench, "bomb")
        came_before = len(hall.came)
        for name in small:
            hall.let_go(name)
        hall.let_go("bomb")
        bench.wait_for_news(1 + len(small))
    came = [name for name, _ in hall.came]
    assert came.index("bomb", 1) - came_before <= MOST_OVERTAKEN
    assert hall.most_bytes <= POOL.total_bytes


def wait_for_held_back(bench: Bench, *names: str) -> None:
    """Return when exactly these wait for memory."""
    for _ in range(round(NET_S / 0.01)):
        if tuple(name for name, _ in bench.edges.turns.held_back) == names:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"held back: {bench.edges.turns.held_back}")


def test_what_a_neighbours_need_took_costs_no_page() -> None:
    """A document that died of a lowered limit is done again with a whole share: no rung, no outcome on its record."""
    hall = Hall()
    converter = ScriptedConverter(hunger={"big": 6 * GIB, "middle": 3 * GIB}, on_run=hall.hold)
    bench = Bench(memory=POOL, converter=converter)
    bench.send("big")
    with structlog.testing.capture_logs() as logs, running(bench):
        hall.let_go("big")
        _alone(hall, gib=7)
        bench.send("middle")
        hall.wait_for(big=7, middle=1)
        hall.let_go("middle")  # dies of 1 GiB, and waits for 4
        wait_for_held_back(bench, "middle")
        hall.let_go("big")
        hall.wait_for(middle=4)
        hall.let_go("middle")
        bench.wait_for_news(2)
    assert limits(bench, "middle") == [(1, PageMode.FULL), (4, PageMode.FULL)]
    (attempt,) = bench.ledger.attempts("middle")
    assert [outcome.cause for outcome in attempt.outcomes] == [Cause.CONVERTED]
    assert [line["limit_bytes"] for line in logs if line["event"] == "child.squeezed"] == [GIB]
    held_back = [line for line in logs if line["event"] == "document.held_back"]
    assert [(line["document_id"], line["need_bytes"]) for line in held_back] == [("middle", SHARE_BYTES)]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_drain_ends_the_waiting_for_memory(at_once: bool) -> None:  # noqa: FBT001 - a parameter of the case
    """What waits for memory between two children goes back at once when its time is over, and costs no attempt."""
    hall = Hall()
    converter = ScriptedConverter(hunger={"b1": 6 * GIB, "b2": 6 * GIB}, on_run=hall.hold)
    bench = Bench(memory=POOL, drain_s=0.1, converter=converter)
    bench.send("b1", "b2")
    with running(bench):
        hall.wait_for(b1=4, b2=4)
        hall.let_go("b1")
        wait_for_held_back(bench, "b1")
        bench.parent.request_stop(at_once=at_once)
        bench.join()
    assert bench.released == [Cause.DRAINED, Cause.DRAINED]
    assert len(bench.converter.jobs) == 2, "nobody begins who was told to stop"
    for name in ("b1", "b2"):
        (attempt,) = bench.ledger.attempts(name)
        assert attempt.last_cause is Cause.DRAINED
        assert attempt.ended_at is not None
    assert bench.queue.depth()["visible"] == 2


def test_a_document_that_comes_back_asks_for_more_before_its_mark() -> None:
    """It died of its share before: it waits without an attempt, and begins with the whole engine and more memory."""
    hall = Hall()
    bench = Bench(memory=POOL, converter=ScriptedConverter(hunger={"big": 6 * GIB}, on_run=hall.hold))
    died = Outcome(cause=Cause.MEMORY, detail="")
    bench.edges.memory.learn("big", Traits(), died, limit_bytes=SHARE_BYTES)
    bench.send("small")
    with running(bench):
        hall.wait_for(small=4)
        bench.send("big")
        wait_for_held_back(bench, "big")
        assert bench.edges.turns.held_back == (("big", POOL.raised_bytes),)
        assert not bench.ledger.attempts("big")
        hall.let_go("small")
        hall.wait_for(big=7)
        hall.let_go("big")
        bench.wait_for_news(2)
    assert limits(bench, "big") == [(7, PageMode.FULL)]


def test_what_waits_is_not_fetched() -> None:
    """Where nothing may be fetched ahead, what is ahead takes no room in the scratch folder."""
    hall = Hall()
    bench = Bench(workers=1, ahead=2, converter=ScriptedConverter(on_run=hall.hold))
    bench.send("a", "b", "c")
    with structlog.testing.capture_logs() as logs, running(bench):
        hall.wait_for(a=1)
        while bench.edges.turns.waiting < 2:
            threading.Event().wait(0.01)
        assert sum(line["event"] == "document.fetched" for line in logs) == 1
        for name in ("a", "b", "c"):
            hall.let_go(name)
        bench.wait_for_news(3)
    assert sum(line["event"] == "document.fetched" for line in logs) == 3
