"""Where a chaos run takes place: its folders, its small disk, and the settings of daemons and commands there.

Rules: what is mounted is unmounted, whatever happens; where nothing may be mounted, the disk is not filled, and the
report says why. With the SQLite ledger all hosts use one file: that is not what production does (one daemon for each
state_dir, and more work at once by `workers`), so each host has a state_dir and an instance lock of its own, and in it
a link to the one ledger.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench._chaos_trouble import Disk
from daemon.emulator import CREDENTIALS, Emulated

LedgerKind = Literal["sqlite", "dynamodb"]
#: Room for ledger, spooled documents and scratch, several times over.
_DISK_MIB: Mapping[str, int] = {"fake": 64, "real": 512}
#: Counted attempts of one document; what the judge holds the ledger against.
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What of a run's plan its settings depend on."""

    engine: Literal["fake", "real"]
    ledger: LedgerKind
    #: How often what failed comes back before it is parked.
    reclaims: int


@contextmanager
def small_disk(path: Path, *, engine: str) -> Iterator[Disk]:
    """A disk of its own at `path`, which can be filled without hurting anybody else."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB[engine]}m,mode=0700", "bulkhead-chaos", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield Disk(path=path, reason=f"cannot mount a small disk: {done.stderr.strip()}")
        return
    try:
        yield Disk(path=path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def state_dir(disk: Disk, name: str, *, ledger: LedgerKind) -> Path:
    """A host's own folder; where the ledger is a file, with a link to the one of all."""
    folder = disk.path / name
    folder.mkdir()
    if ledger == "sqlite":
        shared = _shared(disk)
        shared.mkdir(exist_ok=True)
        (folder / "ledger.db").symlink_to(shared / "ledger.db")
    return folder


def keep_ledger(disk: Disk, work: Path) -> None:
    """Copy the ledger that is a file out of the disk, which goes; nobody may have it open."""
    if _shared(disk).exists():
        shutil.copytree(_shared(disk), work / "ledger")


def _shared(disk: Disk) -> Path:
    return disk.path / "ledger"


def environment(aws: Emulated, url: str, work: Path, *, ask: Asked, state: Path) -> dict[str, str]:
    """The environment of a daemon, or of a command, that reaches the embedded AWS through `url`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BULKHEAD_", "AWS_"))}
    clean.pop("CREDENTIALS_DIRECTORY", None)
    nothing = work / "none.toml"  # an operator's own settings must not reach the run
    nothing.touch()
    own = {
        "CONFIG": str(nothing),
        "STATE_DIR": str(state),
        "WORKERS": "2",
        "DRAIN_S": "4",
        "ALLOW_FAILPOINTS": "true",
        "QUEUE__WAIT_S": "1",
        "QUEUE__VISIBILITY_S": "10",
        "QUEUE__RETRY_FOR_S": "4",
        "STORE__CHECKPOINTS_URL": f"s3://{aws.bucket}/checkpoints",
        "CHILD__START_TIMEOUT_S": "240",
        "CHILD__STALL_S": "3" if ask.engine == "fake" else "60",
        "CHILD__MEMORY_BYTES": str((512 if ask.engine == "fake" else 4096) * 2**20),
        "RETRY__MAX_ATTEMPTS": str(MAX_ATTEMPTS),
        "RETRY__MAX_PAGE_CRASHES": "6",
        "RETRY__MAX_RECLAIMS": str(ask.reclaims),
        "RETRY__RELEASE_DELAY_S": "0.5",
        "RETRY__RECLAIM_DELAY_S": "1",
        "LOG__FORMAT": "json",
    }
    if ask.ledger == "dynamodb":
        own |= {"LEDGER__TABLE": "bulkhead-chaos", "LEDGER__REGION": CREDENTIALS["AWS_DEFAULT_REGION"]}
        own |= {"LEDGER__ENDPOINT_URL": url, "LEDGER__RETRY_FOR_S": "4"}
    settings = {name: value.replace(aws.endpoint_url, url) for name, value in aws.settings().items()}
    return clean | settings | {f"BULKHEAD_{name}": value for name, value in own.items()}
