"""A parent that was only slow, and one that was dead: what taking a document over costs the document."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.children import ChildJob, KillSwitch
from daemon.decide import carried_over, counted
from daemon.errors import LeaseLostError
from daemon.ledger import Claimed
from daemon.model import Cause, Holder
from tests.fakes.edges import Countdown, DiedError
from tests.shell.test_order import CASES, VISIBILITY_S, Kind, World

ELSEWHERE = Holder(host="elsewhere", boot_id="boot", invocation="second", pid=2)
NEVER = Countdown(0, DiedError, after=False)


def taken_over(world: World) -> Claimed:
    """Another host claims the document, a lease after it was last heard of."""
    world.clock.advance(VISIBILITY_S + 1)
    (document,) = world.ledger.find("good")
    claim = world.ledger.claim(document, holder=ELSEWHERE, now=world.clock.now(), lease_s=VISIBILITY_S)
    assert isinstance(claim, Claimed)
    return claim


@pytest.mark.parametrize("kind", ["memory", "real"])
def test_a_parent_that_was_only_slow(tmp_path: Path, kind: Kind) -> None:
    """It finds itself overtaken, publishes nothing, and says that it lives: its attempt costs the document nothing."""
    world = World(kind, tmp_path, CASES["converts"])
    claims: list[Claimed] = []

    def sleep(job: ChildJob, switch: KillSwitch) -> None:
        del job, switch
        claims.append(taken_over(world))

    world.converter.on_run = sleep
    with contextlib.suppress(LeaseLostError):  # its receipt is gone as well
        world.live("first", NEVER)
    (claim,) = claims
    assert counted(claim.history, now=ELSEWHERE) == 1, "for all that could be known then"
    first, second = world.ledger.attempts("good")
    assert first.last_cause is Cause.LEASE_LOST
    assert counted([first], now=ELSEWHERE) == 0
    assert (second.number, second.ended_at) == (claim.attempt.number, None)
    assert world.puts == 0
    world.ledger.close()


@pytest.mark.parametrize("step_s", [-10 * VISIBILITY_S, 10 * VISIBILITY_S])
def test_a_clock_that_is_set_while_a_document_converts(tmp_path: Path, step_s: float) -> None:
    """The same message, delivered again after that, begins no second attempt beside the first one."""
    world = World("real", tmp_path, CASES["converts"])

    def deliver_again(job: ChildJob, switch: KillSwitch) -> None:
        del job, switch
        world.converter.on_run = lambda _job, _switch: None
        world.clock.jump(step_s)
        world.queue.send(world.case.body)
        world.live("first", NEVER)

    world.converter.on_run = deliver_again
    for _ in range(2):
        world.live("first", NEVER)
    assert ["is being worked on" in why for why in world.released] == [True]
    assert len(world.ledger.attempts("good")) == 1
    world.check()
    world.ledger.close()


@pytest.mark.parametrize("kind", ["memory", "real"])
def test_a_result_that_arrives_after_its_parent_died(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was on its way to the store when its parent was killed: its successor, still converting, leaves it there."""
    world = World(kind, tmp_path, CASES["converts"])
    on_the_way: list[Callable[[], object]] = []
    arrive = world.store.put

    def die(document_id: str, **publication: Any) -> str:
        on_the_way.append(lambda: arrive(document_id, **publication))
        raise DiedError

    def deliver(job: ChildJob, switch: KillSwitch) -> None:
        del job, switch
        for late in on_the_way:
            late()
            world.puts += 1

    with monkeypatch.context() as first_life:
        first_life.setattr(world.store, "put", die)
        with pytest.raises(DiedError):
            world.live("first", NEVER)
    world.next_parent("second")
    world.converter.on_run = deliver
    world.live("second", NEVER)
    manifest = world.store.manifest("good")
    assert manifest is not None
    assert manifest["fencing_token"] == 1
    world.check()
    world.ledger.close()


@pytest.mark.parametrize("kind", ["memory", "real"])
def test_a_parent_that_died(tmp_path: Path, kind: Kind) -> None:
    """Its attempt has an end and counts, but for a reboot of its host; it is no failure of any page."""
    world = World(kind, tmp_path, CASES["converts"])
    with pytest.raises(DiedError):
        world.live("first", Countdown(3, DiedError, after=True))
    (left,) = taken_over(world).history
    assert (left.ended_at, left.last_cause) == (world.clock.now(), Cause.PARENT_DIED)
    assert counted([left], now=ELSEWHERE) == 1
    assert counted([left], now=Holder(host="here", boot_id="another", invocation="x", pid=3)) == 0
    assert carried_over([left]) == ()
    world.ledger.close()
