"""What systemd is told, on a real datagram socket, with a clock that is turned by hand."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemon.errors import ConfigurationError
from daemon.notify import Bounds, NotifySocket, Service
from daemon.pulse import Beating, Pulse
from daemon.standing import Phase, Standing
from tests.fakes.clock import FakeClock
from tests.fakes.manager import NET_S, Manager

BOUNDS = Bounds(start_s=100, stop_s=20, heartbeat_s=60, receive_s=80)
WATCHDOG_S = 60.0


@dataclass
class Stage:
    """A service that speaks to a manager, and what it is asked."""

    manager: Manager
    clock: FakeClock = field(default_factory=FakeClock)
    standing: Standing = field(default_factory=lambda: Standing(phase=Phase.RECEIVING))

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.clock)
        notify = NotifySocket(self.manager.address)
        self.service = Service(notify, watchdog_s=WATCHDOG_S, pulse=self.pulse, clock=self.clock)
        self.service._bounds = BOUNDS

    def names(self) -> set[str]:
        """What one turn says."""
        self.service.turn()
        return {name for message in self.manager.heard() for name in message}


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A manager at both kinds of address."""
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@bulkhead-test-{os.getpid()}")
    yield made
    made.close()


@pytest.fixture
def stage(manager: Manager) -> Stage:
    """A service before its first word."""
    return Stage(manager=manager)


def test_a_start_asks_for_time_until_it_is_ready(stage: Stage) -> None:
    """A warm-up longer than systemd's patience is not shot, and READY is said once, with no watchdog before it."""
    assert stage.names() == {"STATUS", "EXTEND_TIMEOUT_USEC"}
    stage.clock.advance(BOUNDS.start_s - 1)
    assert stage.names() == {"EXTEND_TIMEOUT_USEC"}
    stage.service.ready(lambda: stage.standing)
    assert {name for message in stage.manager.heard() for name in message} == {"READY", "STATUS", "WATCHDOG"}
    assert stage.names() == {"WATCHDOG"}


def test_a_start_that_does_not_end_is_left_to_systemd(stage: Stage) -> None:
    """No more time is asked for than all steps of a start can take."""
    stage.clock.advance(BOUNDS.start_s + 1)
    assert "EXTEND_TIMEOUT_USEC" not in stage.names()


@pytest.mark.parametrize(("who", "bound_s"), [(Beating.LOOP, 30), (Beating.HEARTBEAT, 90), (Beating.RECEIVER, 110)])
def test_a_thread_that_stands_still_is_not_covered_up(stage: Stage, who: Beating, bound_s: float) -> None:
    """One of the threads that matter is enough; when it goes on, so does the watchdog."""
    stage.service.ready(lambda: stage.standing)
    for each in Beating:
        stage.pulse.beat(each)
    stage.clock.advance(bound_s + 1)
    for each in set(Beating) - {who}:
        stage.pulse.beat(each)
    stage.manager.heard()
    assert "WATCHDOG" not in stage.names()
    stage.pulse.beat(who)
    assert "WATCHDOG" in stage.names()


def test_a_thread_that_waits_for_us_is_not_late(stage: Stage) -> None:
    """The receiver of a daemon whose slots are all taken has nothing to ask for, for hours."""
    stage.service.ready(lambda: stage.standing)
    stage.pulse.beat(Beating.RECEIVER)
    stage.pulse.rest(Beating.RECEIVER)
    stage.clock.advance(10_000)
    assert "WATCHDOG" in stage.names()


def test_a_drain_asks_for_time_up_to_its_bound(stage: Stage) -> None:
    """STOPPING once; time as long as documents may go on; then systemd's own limit ends a drain that hangs."""
    stage.service.ready(lambda: stage.standing)
    stage.standing = Standing(phase=Phase.DRAINING)
    assert stage.names() >= {"STOPPING", "EXTEND_TIMEOUT_USEC"}
    stage.clock.advance(BOUNDS.stop_s - 1)
    again = stage.names()
    assert "STOPPING" not in again
    assert "EXTEND_TIMEOUT_USEC" in again
    stage.clock.advance(2)
    assert "EXTEND_TIMEOUT_USEC" not in stage.names()


def test_the_status_says_what_is_in_hand_and_since_when(stage: Stage) -> None:
    """One sentence, sent when it changes and not with every turn."""
    stage.service.ready(lambda: stage.standing)
    assert stage.manager.heard()[-2]["STATUS"] == "receiving; nothing in hand"
    stage.standing = Standing(phase=Phase.RECEIVING, in_hand=2, oldest_received_s=stage.clock.monotonic())
    stage.clock.advance(30)
    stage.service.turn()
    said = [message["STATUS"] for message in stage.manager.heard() if "STATUS" in message]
    assert said == ["receiving; in hand: 2 documents, the oldest since 2026-01-01 00:00 UTC"]
    stage.clock.advance(300)
    assert "STATUS" not in stage.names()


def test_a_refusal_is_the_last_word(stage: Stage) -> None:
    """`systemctl status` shows what to change, on one line and without the credential in it."""
    message = "cannot start: queue.url\nmust be set; see https://user:secret@example.org/x"
    with pytest.raises(ConfigurationError), stage.service.hearing_the_end():
        raise ConfigurationError(message)
    said = stage.manager.heard()[-1]["STATUS"]
    assert said.startswith("ended: cannot start: queue.url must be set")
    assert "secret" not in said


def test_a_manager_that_was_gone_hears_it_later(manager: Manager) -> None:
    """A restart of systemd costs no READY, and never the daemon."""
    stage = Stage(manager=manager)
    stage.service._notify = NotifySocket("/nowhere/notify")
    stage.service.ready(lambda: stage.standing)
    stage.service._notify = NotifySocket(manager.address)
    assert {"READY", "STATUS", "WATCHDOG"} <= stage.names()


def test_the_variables_are_taken_and_nothing_below_can_speak_for_us(manager: Manager) -> None:
    """A child that inherited the socket could feed the watchdog of a parent that is stuck."""
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    service = Service.from_environment(environ)
    assert environ == {"A": "b"}
    assert service.watchdog_s == 4.0


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({}, None),
    ],
)
def test_a_watchdog_meant_for_another_is_not_fed(environ: dict[str, str], watchdog_s: float | None) -> None:
    """The variables may be inherited from something else that systemd started, or be garbage."""
    assert Service.from_environment(environ | {"NOTIFY_SOCKET": "/run/x"}).watchdog_s == watchdog_s


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_without_systemd_nothing_is_said(address: str) -> None:
    """Started by hand there is no socket, and no thread that would speak."""
    before = threading.active_count()
    service = Service.from_environment({"NOTIFY_SOCKET": address})
    service.start(BOUNDS)
    service.ready(lambda: Standing(phase=Phase.RECEIVING))
    assert threading.active_count() == before


def test_the_notifier_speaks_by_itself(tmp_path: Path) -> None:
    """Its thread feeds the watchdog, four times within its time, until it is closed."""
    manager = Manager(str(tmp_path / "notify"))
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
    service = Service.from_environment(environ)
    service.start(BOUNDS)
    try:
        manager.hear("EXTEND_TIMEOUT_USEC")
        service.ready(lambda: Standing(phase=Phase.RECEIVING))
        manager.hear("READY")
        for _ in range(3):
            manager.hear("WATCHDOG")
    finally:
        service.close()
        for thread in threading.enumerate():
            if thread.name == "notifier":
                thread.join(NET_S)
        manager.close()
