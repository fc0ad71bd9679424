"""What the doctor makes of units, limits and disks, laid out by hand."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon import doctor_host
from daemon.config import Settings
from daemon.doctor_host import Verdict

#: As `systemctl show` tells of the unit as it is shipped.
SOUND = {
    "Type": "notify",
    "Restart": "always",
    "StartLimitIntervalUSec": "0",
    "KillMode": "mixed",
    "OOMPolicy": "continue",
    "LimitCORE": "0",
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "NeedDaemonReload": "no",
    "WatchdogUSec": "1min",
    "NRestarts": "0",
}


def test_the_unit_as_it_is_shipped_is_silent() -> None:
    """No warning that everybody learns to ignore."""
    assert list(doctor_host.judged(SOUND)) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Type", "exec", "before the engine works"),
        ("Restart", "no", "stays dead"),
        ("StartLimitIntervalUSec", "10s", "silence"),
        ("KillMode", "control-group", "before the daemon can drain"),
        ("OOMPolicy", "stop", "one greedy child"),
        ("LimitCORE", "infinity", "text of documents"),
        ("WatchdogUSec", "0", "set WatchdogSec"),
        ("NeedDaemonReload", "yes", "daemon-reload"),
        ("UnitFileState", "disabled", "systemctl enable"),
    ],
)
def test_what_a_drop_in_took_away_is_said(name: str, value: str, words: str) -> None:
    """Each with what is lost, and what to do."""
    ((verdict, detail),) = doctor_host.judged(SOUND | {name: value})
    assert verdict is Verdict.WARNING
    assert words in detail


def test_a_host_without_systemd_is_no_fault(tmp_path: Path) -> None:
    """The doctor is asked in images and on laptops too."""
    ((verdict, _),) = doctor_host.unit(tmp_path)
    assert verdict is Verdict.SKIPPED


Shrink = Callable[..., None]


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Shrink:
    """Let every file system look as small as a test says."""

    def shrunk(*, free_bytes: int = 2**40, inodes: int = 10**6) -> None:
        real = os.statvfs("/")
        values = list(real)
        values[0] = values[1] = 4096
        values[4], values[5], values[7] = free_bytes // 4096, 10**7, inodes
        monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))

    return shrunk


@pytest.mark.parametrize(
    ("free_bytes", "inodes", "verdicts"),
    [
        (2**40, 10**6, [Verdict.GOOD]),
        (4 * 2**30, 10**6, [Verdict.WARNING]),
        (2**29, 10**6, [Verdict.BAD]),
        (2**40, 100, [Verdict.GOOD, Verdict.WARNING]),
    ],
)
def test_a_disk_is_judged_by_what_may_be_needed(
    tmp_path: Path, shrink: Shrink, free_bytes: int, inodes: int, verdicts: list[Verdict]
) -> None:
    """By the largest documents, all slots at once; a disk that takes one is a warning and no refusal."""
    shrink(free_bytes=free_bytes, inodes=inodes)
    found = doctor_host.disk(Settings(state_dir=tmp_path), workers=2)
    assert [verdict for verdict, _ in found] == verdicts


@pytest.mark.parametrize(("files", "verdict"), [(256, Verdict.WARNING), (16384, Verdict.GOOD)])
def test_descriptors_are_counted_by_worker(monkeypatch: pytest.MonkeyPatch, files: int, verdict: Verdict) -> None:
    """The default of many systems, 1024, is enough for a small host and not for a large one."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files if kind == resource.RLIMIT_NOFILE else 0,) * 2)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ((found, _),) = doctor_host.limits(workers=32)
    assert found is verdict


def test_core_dumps_and_root_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both leave things where they do not belong."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    details = [detail for verdict, detail in doctor_host.limits(workers=1) if verdict is Verdict.WARNING]
    assert len(details) == 2


def test_another_encoding_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host in the C locale of old cannot name every file."""
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "ascii")
    ((verdict, detail),) = doctor_host.text()
    assert verdict is Verdict.WARNING
    assert "ascii" in detail
