"""When the parent or the zygote goes first; and engines that do not load."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import structlog

from daemon import sandbox
from daemon.children import ChildResult
from daemon.errors import EngineError, ExitStatus
from daemon.launch import Abandoned, Handle
from daemon.model import Cause, PageRecord
from tests.process.conftest import HERE, Ward, is_gone, standby

pytestmark = pytest.mark.process

BOTH = pytest.mark.parametrize("start", ["zygote", "spawn"])


@pytest.fixture
def zygote_ward(tmp_path: Path) -> Iterator[Ward]:
    """A parent whose zygote may be killed."""
    made = Ward("zygote", tmp_path)
    made.children.start()
    yield made
    made.children.stop()
    assert not list(tmp_path.iterdir())


@pytest.fixture
def unlocked_ward(tmp_path: Path) -> Iterator[Ward]:
    """The same on a kernel without a sandbox: its children can fork."""
    made = Ward("zygote", tmp_path, sandbox="off")
    made.children.start()
    yield made
    made.children.stop()
    assert not list(tmp_path.iterdir())


def test_zygote_killed(unlocked_ward: Ward, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A zygote's death releases its document, ends its children and theirs, and costs the next document nothing."""
    children = unlocked_ward.children
    pid_file = tmp_path_factory.mktemp("out") / "pid"
    first = children.zygote_pid
    assert first is not None

    def shoot(record: PageRecord, _pages: int) -> None:
        if record.page == 1:
            os.kill(first, signal.SIGKILL)

    result = unlocked_ward.run(f"grandchild-setsid {pid_file}\nwait 9999", on_page=shoot)
    assert result.outcome.cause is Cause.ZYGOTE_DIED
    assert is_gone(int(pid_file.read_text()))
    assert is_gone(first)
    assert unlocked_ward.run("a").outcome.cause is Cause.CONVERTED
    assert children.zygote_pid not in {None, first}


def test_zygote_killed_between(zygote_ward: Ward) -> None:
    """A zygote that died while nobody looked is replaced for the next document."""
    pid = zygote_ward.children.zygote_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    causes = [zygote_ward.run("a").outcome.cause for _ in range(3)]
    assert Cause.CONVERTED in causes
    assert set(causes[1:]) == {Cause.CONVERTED}


def test_standby_killed(zygote_ward: Ward) -> None:
    """A child that dies before it has a job costs nothing, and none is forked in its place until one is asked for."""
    zygote = zygote_ward.children.zygote_pid
    assert zygote is not None
    first = standby(zygote_ward.children)
    os.kill(first, signal.SIGKILL)
    assert is_gone(first)
    threading.Event().wait(0.3)
    assert not descendants(zygote)
    assert zygote_ward.run("a").outcome.cause is Cause.CONVERTED
    assert standby(zygote_ward.children) != first
    assert zygote_ward.children.zygote_pid == zygote


def test_each_document_has_a_child_of_its_own(zygote_ward: Ward) -> None:
    """The one that stood by takes the next document, and no second one."""
    used = []
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            used.append(standby(zygote_ward.children))
            assert zygote_ward.run("a").outcome.cause is Cause.CONVERTED
    assert [line["pid"] for line in logs if line["event"] == "child.exited"] == used
    assert len(set(used)) == 3


def test_zygote_stops_with_its_parent(zygote_ward: Ward) -> None:
    """`stop` leaves no zygote."""
    pid = zygote_ward.children.zygote_pid
    zygote_ward.children.stop()
    assert pid is not None
    assert is_gone(pid)
    assert zygote_ward.children.zygote_pid is None


HELPER = """
import os, sys, threading
from pathlib import Path
from tests.process.conftest import Ward

if __name__ == "__main__":
    ward = Ward(sys.argv[1], Path(sys.argv[2]))
    ward.children.start()
    ward.run("a\\nwait 9999", on_page=lambda page, pages: print("running", flush=True))
"""


@BOTH
def test_parent_killed(start: str, tmp_path: Path) -> None:
    """When the parent is SIGKILLed nothing of it goes on: no zygote, no child."""
    helper = subprocess.Popen(
        [sys.executable, "-c", HELPER, start, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(HERE).parent.parent,
        text=True,
    )
    assert helper.stdout is not None
    with helper.stdout:
        while "running" not in (line := helper.stdout.readline()):
            assert line, "the helper ended early"
        below = descendants(helper.pid)
        assert len(below) >= 2  # the child, whoever reaps it, and a zygote's next child
        ends = [os.pidfd_open(pid) for pid in below]
        helper.kill()
        helper.wait()
    for end in ends:
        assert select.select([end], [], [], 10)[0], "it goes on without its parent"
        os.close(end)


def descendants(pid: int) -> list[int]:
    """Everything below `pid`."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


@BOTH
@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("fake_engine:load_nothing", "package 'rapidocr' is missing"),
        ("fake_engine:load_missing_module", "package 'no_such_package' is missing"),
        ("fake_engine:no_such_factory", "no_such_factory"),
        ("fake_engine:load_and_die", "Aborted|without a word"),
    ],
)
def test_engine_that_does_not_load(start: str, factory: str, words: str, tmp_path: Path) -> None:
    """A missing part refuses the start and names itself, whichever way children start."""
    ward = Ward(start, tmp_path, factory)
    before = ward.census()
    with pytest.raises(EngineError, match=words):
        ward.children.start()
    assert ward.census() == before


@pytest.mark.parametrize(
    ("factory", "words"),
    [("fake_engine:load_and_be_killed", "killed while loading"), ("fake_engine:load_for_ever", "not ready within")],
)
def test_zygote_that_was_not_let_load(factory: str, words: str, tmp_path: Path) -> None:
    """Killed while loading, or on a host that is too slow: systemd starts the daemon again, nothing is missing."""
    ward = Ward("zygote", tmp_path, factory, start_timeout_s=1.5)
    before = ward.census()
    with pytest.raises(EngineError, match=words) as caught:
        ward.children.start()
    assert caught.value.status is ExitStatus.UNAVAILABLE
    assert ward.census() == before


def test_zygote_with_a_thread(tmp_path: Path) -> None:
    """A warm process with a second thread never forks: its threads are named, and every child is spawned instead."""
    ward = Ward("zygote", tmp_path, "fake_engine:load_with_thread")
    with structlog.testing.capture_logs() as logs:
        assert ward.children.start() == {"engine": "fake"}
    said = [line for line in logs if line["event"] == "zygote.not_single_threaded"]
    assert len(said) == 1
    assert said[0]["log_level"] == "error"
    assert "python" in said[0]["error"]
    assert ward.children.zygote_pid is None
    assert ward.run("a").outcome.cause is Cause.CONVERTED
    ward.children.stop()


def test_threads_that_are_asked_for(tmp_path: Path) -> None:
    """A setting is no accident: no zygote is loaded in vain, nobody is paged, and the engine has the threads."""
    ward = Ward("zygote", tmp_path)
    ward.settings = ward.settings.model_copy(update={"threads": 2})
    children = ward.children = ward.with_clock(ward.clock)
    with structlog.testing.capture_logs() as logs:
        children.start()
        assert ward.run("a").outcome.cause is Cause.CONVERTED
    assert children.zygote_pid is None
    assert [line["start"] for line in logs if line["event"] == "child.exited"] == ["spawn"]
    assert [line["event"] for line in logs if line["log_level"] in {"warning", "error"}] == []
    children.stop()


def test_zygote_that_loads_ahead(tmp_path: Path) -> None:
    """Begun, it loads while its parent does other things; the start waits for that one, and not for a second."""
    children = Ward("zygote", tmp_path).children
    with structlog.testing.capture_logs() as logs:
        children.begin()
        assert told_of_zygotes(logs) == ["zygote.started"]
        assert children.start() == {"engine": "fake"}
    assert told_of_zygotes(logs) == ["zygote.started", "zygote.ready"]
    children.stop()


def test_zygote_that_nobody_waits_for(tmp_path: Path) -> None:
    """The start ended for another reason: the zygote that was begun ends too, and one can be begun again."""
    children = Ward("zygote", tmp_path).children
    before = set(sandbox.own_children())
    children.begin()
    (zygote,) = set(sandbox.own_children()) - before
    children.stop()
    assert is_gone(zygote)
    assert children.start() == {"engine": "fake"}
    children.stop()


def told_of_zygotes(logs: Sequence[Mapping[str, object]]) -> list[object]:
    """The events of zygotes, in order."""
    return [line["event"] for line in logs if str(line["event"]).startswith("zygote.")]


def test_zygote_that_is_stuck(tmp_path: Path) -> None:
    """A zygote that does not answer is ended at the start's deadline, and its document is released."""
    ward = Ward("zygote", tmp_path, start_timeout_s=5)
    ward.children.start()
    pid = ward.children.zygote_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    result: ChildResult = ward.run("a")
    assert result.outcome.cause is Cause.ZYGOTE_DIED
    assert time.monotonic() - began < 20
    assert ward.run("a").outcome.cause is Cause.CONVERTED
    ward.children.stop()


def test_child_that_cannot_be_signalled() -> None:
    """Without a descriptor left for its pidfd a child gets no job, and its document is released."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        its.send(b'{"started": 1}')
        handle = Handle(ours, NoSupervisor())
        assert isinstance(handle.news(), Abandoned)
        assert handle.pid is None
        handle.close()


class NoSupervisor:
    """Nobody."""

    mark = b""

    def kill(self) -> None:
        """See `Supervisor`."""

    def await_end(self, timeout_s: float) -> bool:
        """See `Supervisor`."""
        return timeout_s > 0

    def release(self) -> None:
        """See `Supervisor`."""


def test_short_document_and_stuck_zygote(tmp_path: Path) -> None:
    """A document that may take less time than a start is released all the same, and pays nothing for the outage."""
    ward = Ward("zygote", tmp_path, start_timeout_s=5)
    ward.children.start()
    pid = ward.children.zygote_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert ward.run("a", deadline_s=0.5).outcome.cause is Cause.ZYGOTE_DIED
    ward.children.stop()


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_waiting_for_a_start_is_not_the_documents_time(start: str, tmp_path: Path) -> None:
    """A start that takes longer than the document may: the document converts, and its deadline still holds."""
    ward = Ward(start, tmp_path, factory="fake_engine:load_slowly")
    ward.children.start()
    if start == "zygote":
        pid = ward.children.zygote_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for _ in range(500):
            if ward.children.zygote_pid is None:
                break
            threading.Event().wait(0.01)
    result = ward.run("a", deadline_s=1.5)
    assert result.outcome.cause is Cause.CONVERTED
    assert result.waited_s > 1.5
    assert ward.run("wait 9999", deadline_s=0.5).outcome.cause is Cause.TIMEOUT
    ward.children.stop()


def test_one_line_tells_everything(zygote_ward: Ward) -> None:
    """The canonical line of a crashed child names the signal, the place, the figures and the limits."""
    with structlog.testing.capture_logs() as logs:
        zygote_ward.run("a\nb", failpoints="child.ocr@page=2=segv")
    (line,) = [each for each in logs if each["event"] == "child.exited"]
    assert line["log_level"] == "warning"
    assert (line["signal"], line["stage"], line["page"], line["document_id"]) == ("SIGSEGV", "ocr", 2, "d1")
    assert line["memory_limit_bytes"] > line["peak_rss_bytes"] > 0
    assert "Segmentation fault" in line["traceback"]
