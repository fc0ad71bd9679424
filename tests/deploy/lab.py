"""A host with a real systemd, in a container that boots in half a second and forgets everything.

`python -m tests.deploy.lab` says why no lab can be had here, if so, and leaves with status 1. Needs root,
systemd-nspawn, debootstrap, nsenter. The network is the host's: what listens on its loopback serves the lab, and the
other way round. Rules: nothing of the lab outlives its `with` block: processes, mounts, cgroups, files; what is
written lies in an overlay, on disk unless asked otherwise; the lab's own systemd runs commands.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.deploy.base_tree import base_tree, mirror

_PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "tar": "tar",
}
#: Without these nspawn's own filter would keep a sandbox from being built inside.
_SYSTEM_CALLS = "landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp"
_BOOT_S, _STOP_S = 60.0, 30.0
_POLL_S = 0.05
#: $1 is the lower tree, $2 the root to make, $3 the folder for what is written, $4 its size in memory (empty: it is on
#: disk), $5 the number of cgroup folders that follow, the rest the command.
_IN_ITS_OWN_MOUNTS_AND_CGROUPS = """
set -eu
lower=$1 root=$2 room=$3 memory=$4 groups=$5; shift 5
while [ "$groups" -gt 0 ]; do echo $$ > "$1/cgroup.procs"; shift; groups=$((groups - 1)); done
[ -z "$memory" ] || mount -t tmpfs tmpfs -o "size=$memory,mode=0755" "$room"
mkdir -m 0755 "$room/upper" "$room/work"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$room/upper,workdir=$room/work" "$root"
exec "$@"
"""


def why_not() -> str:
    """One sentence that says why this machine can have no lab; empty when it can."""
    if os.geteuid() != 0:
        return "only root can boot a container"
    missing = sorted({package for name, package in _PROGRAMS.items() if shutil.which(name) is None})
    if missing:
        return f"{' and '.join(missing)} missing: apt-get install {' '.join(missing)}"
    if mirror() is None:
        return "no Debian archive among the apt sources: name one in LAB_MIRROR"
    return ""


class Lab:
    """One booted container; `with Lab() as lab` gives it running, and leaves nothing."""

    def __init__(
        self, *, binds: Mapping[Path, str] | None = None, memory_limits: bool = False, in_memory: str = ""
    ) -> None:
        """`binds`: folders of this host → where the lab sees them, read-only; not below /tmp, which units may hide.

        `in_memory`: size (`4g`) of a tmpfs that holds what is written; thousands of files are then gone at once.
        `memory_limits`: let `MemoryMax=` count on a host with cgroup v1, where nspawn mounts the hierarchy read-only.
        """
        self.name = f"lab-{uuid.uuid4().hex[:8]}"
        self.leader = 0
        self._binds = dict(binds or {})
        self._memory_limits = memory_limits
        self._in_memory = in_memory
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: list[Path] = []
        self._folder = Path()
        self._wait = threading.Event()  # never set: its wait() is the pause between two looks

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(
        self,
        command: Sequence[str],
        *,
        check: bool = True,
        timeout_s: float = 60.0,
        properties: Sequence[str] = (),
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` as a transient unit, with `properties` (`User=nobody`), and wait for it.

        Raises CalledProcessError, with its output in the notes, when `check` and it fails.
        """
        unit = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
        unit += [f"--property={item}" for item in properties]
        return self._nsenter([*unit, "--", *command], check=check, timeout_s=timeout_s, stdin=stdin.encode())

    def systemctl(self, *arguments: str, check: bool = True, timeout_s: float = 60.0) -> str:
        """What `systemctl` prints, without the last newline."""
        command = ["systemctl", "--no-pager", *arguments]
        return self._nsenter(command, check=check, timeout_s=timeout_s).stdout.rstrip("\n")

    def show(self, unit: str, name: str) -> str:
        """One property of a unit, such as MainPID; a pid is the lab's, as all pids that the lab tells."""
        return self.systemctl("show", "--value", f"--property={name}", unit)

    def journal(self, unit: str, *, since: datetime | None = None) -> str:
        """What the unit and its processes have written, and what systemd says of it, from `since` on."""
        command = ["journalctl", "--no-pager", "--output=cat", f"--unit={unit}"]
        command += [f"--since=@{since.timestamp():.6f}"] if since else []
        return self._nsenter(command).stdout

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644) -> None:
        """Put a file into the lab, and the folders above it."""
        data = content.encode() if isinstance(content, str) else content
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        self._nsenter(["sh", "-c", script, "sh", path, f"{mode:o}"], stdin=data)

    def read(self, path: str) -> str:
        """The text of a file in the lab. Raises CalledProcessError when there is none."""
        return self._nsenter(["cat", path]).stdout

    def copy(self, source: Path, target: str) -> None:
        """Copy a file or a folder into the lab as `target`, modes kept, owned by root."""
        if source.is_file():
            self.write(target, source.read_bytes(), mode=source.stat().st_mode & 0o7777)
            return
        packed = subprocess.run(["tar", "-c", "-C", str(source), "."], check=True, capture_output=True, timeout=300)
        script = 'mkdir -p "$1" && tar -x --no-same-owner -C "$1"'
        self._nsenter(["sh", "-c", script, "sh", target], stdin=packed.stdout, timeout_s=300)

    def pid_here(self, pid: int) -> int:
        """The pid, as this host sees it, of the process that the lab calls `pid`. Raises LookupError."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):
                row = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:"))
                here, *there = row.split()[1:]
                if there == [str(pid)] and self._is_ours(int(here)):
                    return int(here)
        raise LookupError(f"no process {pid} in {self.name}")

    def _is_ours(self, pid: int) -> bool:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path(f"/proc/{self.leader}/ns/pid").readlink()

    def _nsenter(
        self, command: Sequence[str], *, check: bool = True, timeout_s: float = 60.0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            ["nsenter", "--target", str(self.leader), "--all", "--", *command],
            check=False,
            capture_output=True,
            input=stdin,
            timeout=timeout_s,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )
        text = subprocess.CompletedProcess(
            command,
            result.returncode,
            result.stdout.decode("utf-8", "replace"),
            result.stderr.decode("utf-8", "replace"),
        )
        if check and result.returncode:
            error = subprocess.CalledProcessError(result.returncode, list(command), text.stdout, text.stderr)
            error.add_note(f"{text.stdout}\n{text.stderr}")
            raise error
        return text

    def _boot(self) -> None:
        tree = base_tree()
        # Not in the tests' temporary folder: it may be a tmpfs, on which an overlay would be memory.
        self._folder = Path(tempfile.mkdtemp(dir=tree.parent, prefix=f"{self.name}-"))
        for part in ("room", "root"):
            (self._folder / part).mkdir(mode=0o755)
        self._groups = _own_cgroups(self.name)
        root = str(self._folder / "root")
        script = ["sh", "-c", _IN_ITS_OWN_MOUNTS_AND_CGROUPS, "sh", str(tree), root, str(self._folder / "room")]
        script += [self._in_memory, str(len(self._groups)), *map(str, self._groups)]
        nspawn = ["systemd-nspawn", "--quiet", f"--directory={root}", f"--machine={self.name}", "--register=no"]
        nspawn += ["--keep-unit", "--console=pipe", "--resolv-conf=off", "--link-journal=no", "--timezone=off"]
        nspawn += [f"--system-call-filter={_SYSTEM_CALLS}"]
        nspawn += [f"--bind-ro={source}:{target}" for source, target in self._binds.items()]
        with (self._folder / "console").open("wb") as console:
            self._process = subprocess.Popen(
                # A killed test run must not leave its lab: nspawn ends it on SIGTERM.
                [
                    "setpriv",
                    "--pdeathsig=TERM",
                    "unshare",
                    "--mount",
                    "--propagation=private",
                    *script,
                    *nspawn,
                    "--boot",
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self._await(self._has_booted, f"{self.name} has not booted")
        if self._memory_limits and Path("/sys/fs/cgroup/memory").is_dir():
            self._nsenter(["mount", "-o", "remount,rw,bind", "/sys/fs/cgroup/memory"])
            self.systemctl("daemon-reexec")

    def _has_booted(self) -> bool:
        assert self._process is not None, "started before"
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return False
        self.leader = int(children[0])
        state = self._nsenter(["systemctl", "is-system-running"], check=False).stdout.strip()
        return state in {"running", "degraded"}

    def _await(self, true: object, otherwise: str) -> None:
        assert callable(true), "a question"
        for _ in range(int(_BOOT_S / _POLL_S)):
            assert self._process is not None, "started before"
            if self._process.poll() is not None:
                break
            if true():
                return
            self._wait.wait(_POLL_S)
        console = (self._folder / "console").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"{otherwise}; its console:\n{console[-2000:]}")

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_STOP_S)
        for group in self._groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):  # a last process is on its way out; the kernel drops an empty folder no sooner
                    Path(folder).rmdir()
        if self._folder != Path():
            shutil.rmtree(self._folder)


def _own_cgroups(name: str) -> list[Path]:
    """A new cgroup below this process's own in each hierarchy; two labs in one would share their units."""
    made = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        kind, _, options = source.split(" ", 2)
        if kind in {"cgroup", "cgroup2"} and "cpuset" not in options:  # v1's cpuset begins empty and lets nobody in
            group = Path(mount.split()[4]) / name
            group.mkdir()
            made.append(group)
    return made


if __name__ == "__main__":
    sys.exit(why_not() or None)
