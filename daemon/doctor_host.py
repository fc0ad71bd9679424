"""What the doctor looks at on the host itself: units, limits, disk, locale.

Shell. Each check yields what it found and changes nothing. Nothing here is BAD that a daemon could live with, and a
host without systemd is no fault: the doctor is asked on machines that are still being made.
"""

from __future__ import annotations

import locale
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from daemon.config import Settings


class Verdict(StrEnum):
    """What a check came to."""

    GOOD = "good"
    #: It would work, and something about it will hurt one day.
    WARNING = "warning"
    #: It would not work.
    BAD = "bad"
    #: Not checked: a setting is missing, or it cannot be tried without harm.
    SKIPPED = "skipped"


Found = Iterator[tuple[Verdict, str]]

UNIT, TIMER = "bulkhead.service", "bulkhead-sweep.timer"
#: The oldest systemd that the units were seen to work with.
OLDEST_SYSTEMD = 252
#: What the units say and a drop-in can take away, and what is lost then.
_WANTED: Mapping[str, tuple[str, str]] = {
    "Type": ("notify", "a start is called done before the engine works"),
    "Restart": ("always", "a daemon that dies stays dead"),
    "StartLimitIntervalUSec": ("0", "some deaths in a row end in silence"),
    "KillMode": ("mixed", "a stop kills the children before the daemon can drain"),
    "OOMPolicy": ("continue", "one greedy child stops the whole service"),
    "LimitCORE": ("0", "core dumps keep text of documents on disk"),
}
_ASK_TIMEOUT_S = 10.0
#: Descriptors of the parent for each worker, and beside them: pipes and sockets of a child, connections of the SDK.
_FILES_PER_WORKER, _FILES_BESIDE = 32, 256
#: The ledger's growth, logs of SQLite, finished pages.
_FREE_AT_LEAST_BYTES, _INODES_AT_LEAST = 2**30, 10_000


def unit(root: Path = Path("/")) -> Found:
    """The daemon's unit and the sweep's timer, as the running systemd knows them."""
    if not (root / "run/systemd/system").is_dir():
        yield Verdict.SKIPPED, "no systemd runs this host: nobody starts the daemon again"
        return
    version = _shown("", "Version").get("Version", "")
    number = int("".join(character for character in version[:3] if character.isdecimal()) or 0)
    if number < OLDEST_SYSTEMD:
        yield Verdict.WARNING, f"systemd {version or 'does not answer'}; the units are for {OLDEST_SYSTEMD} or later"
    names = (*_WANTED, "LoadState", "UnitFileState", "NeedDaemonReload", "WatchdogUSec", "NRestarts")
    found = _shown(UNIT, *names)
    if found.get("LoadState") != "loaded":
        yield Verdict.WARNING, f"{UNIT} is not installed: see deploy/systemd/README.md"
        return
    yield Verdict.GOOD, f"{UNIT} is installed below systemd {version}; {found['NRestarts']} restarts so far"
    yield from judged(found)
    timer = _shown(TIMER, "ActiveState")
    if timer.get("ActiveState") != "active":
        yield (
            Verdict.WARNING,
            f"{TIMER} is not active: dead letters wait until somebody sweeps; systemctl enable --now it",
        )


def judged(found: Mapping[str, str]) -> Found:
    """What is dangerous about the unit's properties, as `systemctl show` names them."""
    for name, (wanted, otherwise) in _WANTED.items():
        if name in found and found[name] != wanted:
            yield Verdict.WARNING, f"{name} is {found[name]} instead of {wanted}: {otherwise}; look for a drop-in"
    if found.get("WatchdogUSec") in {"0", "infinity"}:
        yield Verdict.WARNING, "the unit has no watchdog: a daemon that stands still is not restarted; set WatchdogSec"
    if found.get("NeedDaemonReload") == "yes":
        yield Verdict.WARNING, "the unit's file was changed and not read: systemctl daemon-reload"
    if found.get("UnitFileState") not in {"enabled", "enabled-runtime", "static", "linked"}:
        yield Verdict.WARNING, f"{UNIT} is not enabled: it does not start with the host; systemctl enable {UNIT}"


def _shown(name: str, *properties: str) -> dict[str, str]:
    """Properties of a unit, or of the manager when `name` is empty; nothing when it does not answer."""
    program = shutil.which("systemctl")
    if program is None:
        return {}
    command = [program, "show", *(f"--property={each}" for each in properties), *([name] if name else [])]
    try:
        result = subprocess.run(  # noqa: S603 - a fixed program and names of our own
            command, check=False, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.partition("=") for line in result.stdout.splitlines())
    return {key: value for key, _, value in pairs}


def limits(*, workers: int) -> Found:
    """What this process is held to; under systemd the unit's own limits may be others."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES_BESIDE + _FILES_PER_WORKER * workers
    if files != resource.RLIM_INFINITY and files < needed:
        yield Verdict.WARNING, f"{files} open files for {workers} workers, and {needed} are wanted; raise LimitNOFILE"
    else:
        yield Verdict.GOOD, f"{files} open files, {needed} wanted"
    cores, _ = resource.getrlimit(resource.RLIMIT_CORE)
    if cores != 0:
        yield Verdict.WARNING, "core dumps of the parent are allowed, and hold credentials; set LimitCORE=0"
    if os.geteuid() == 0:
        yield Verdict.WARNING, "this is root: what is made in state_dir belongs to root; run it as the daemon's user"


def disk(settings: Settings, *, workers: int) -> Found:
    """Room for the ledger, for what is fetched and for what children write."""
    there = os.statvfs(settings.state_dir)
    free_bytes = there.f_bavail * there.f_frsize
    needed_bytes = _FREE_AT_LEAST_BYTES + workers * (settings.fetch.max_bytes + settings.child.max_scratch_bytes)
    said = f"{free_bytes / 2**30:.1f} GiB free in {settings.state_dir}"
    if free_bytes < _FREE_AT_LEAST_BYTES:
        yield Verdict.BAD, f"{said}: too little for the ledger and one document; free space"
    elif free_bytes < needed_bytes:
        detail = (
            f"{said}, and {workers} of the largest documents at once need {needed_bytes / 2**30:.1f} "
            "(fetch.max_bytes and child.max_scratch_bytes): they would be released until there is room"
        )
        yield Verdict.WARNING, detail
    else:
        yield Verdict.GOOD, said
    if there.f_files and there.f_favail < _INODES_AT_LEAST:
        yield Verdict.WARNING, f"{there.f_favail} inodes free in {settings.state_dir}: each finished page takes one"


def text() -> Found:
    """Names of files and words of documents are UTF-8 everywhere."""
    names = {"file names": sys.getfilesystemencoding(), "files": locale.getpreferredencoding(do_setlocale=False)}
    wrong = [f"{encoding} for {what}" for what, encoding in names.items() if encoding.lower() != "utf-8"]
    if wrong:
        yield Verdict.WARNING, f"the locale says {' and '.join(wrong)}; set LANG=C.UTF-8 or PYTHONUTF8=1"
    else:
        yield Verdict.GOOD, "UTF-8"
