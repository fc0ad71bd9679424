"""The instance lock, against real processes that hold it and die."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.errors import AlreadyRunningError, ExitStatus, ResourceError, WorldError
from daemon.lock import instance_lock
from daemon.model import Cause
from tests.fakes.clock import FakeClock

HOLDER = """
import sys
from pathlib import Path
from daemon.lock import instance_lock
with instance_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its stdin closes."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_second_instance(tmp_path: Path) -> None:
    """Two daemons on one state folder would break each other's leases: the second is told who, where and how long."""
    path, clock = tmp_path / "instance.lock", FakeClock()
    with instance_lock(path, clock=clock):
        clock.advance(timedelta(hours=2, seconds=5).total_seconds())
        pattern = rf"pid {os.getpid()} on host \S+ has held it for 2:00:05.*Stop it first"
        with pytest.raises(AlreadyRunningError, match=pattern) as caught, instance_lock(path, clock=clock):
            pass
    assert caught.value.status is ExitStatus.ALREADY_RUNNING


def test_other_process_holds(tmp_path: Path) -> None:
    """The pid that is named is the other process's."""
    path = tmp_path / "instance.lock"
    with start_holder(path) as holder:
        with pytest.raises(AlreadyRunningError, match=rf"pid {holder.pid} "), instance_lock(path):
            pass
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait() == 0
    with instance_lock(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_killed_holder_blocks_nobody(tmp_path: Path) -> None:
    """After a SIGKILL the next start succeeds at once, without a clean-up by a person."""
    path = tmp_path / "instance.lock"
    with start_holder(path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with instance_lock(path):
        pass


def test_child_of_a_killed_holder(tmp_path: Path) -> None:
    """A child that outlives its parent does not keep the lock: the descriptor is not inherited."""
    path = tmp_path / "instance.lock"
    with subprocess.Popen(["true"]), instance_lock(path):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    with instance_lock(path):
        child.communicate()


@pytest.mark.parametrize("content", ["", "garbage", "{}", '{"pid": 1, "host": "x", "since": 7}', "[]"])
def test_line_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    """Whatever is in the file, the kernel's lock decides, and the message is still a sentence."""
    path = tmp_path / "instance.lock"
    with instance_lock(path):
        path.write_text(content)
        with pytest.raises(AlreadyRunningError, match="another process has just taken it"), instance_lock(path):
            pass


def test_shorter_line_replaces_a_longer_one(tmp_path: Path) -> None:
    """What an earlier holder wrote is gone."""
    path = tmp_path / "instance.lock"
    path.write_text("x" * 1_000)
    with instance_lock(path):
        assert set(json.loads(path.read_text())) == {"pid", "host", "since"}


def test_missing_folder(tmp_path: Path) -> None:
    """A wrong state_dir is the operator's to mend, and is named."""
    with pytest.raises(ResourceError, match=r"cannot lock .*absent"), instance_lock(tmp_path / "absent" / "lock"):
        pass


@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A disk that is full while systemd starts us passes: the status is one that is started again, not 12."""

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, no_room)
    with pytest.raises(WorldError, match=r"the disk is full") as caught, instance_lock(tmp_path / "instance.lock"):
        pass
    assert caught.value.cause is Cause.DISK_FULL
