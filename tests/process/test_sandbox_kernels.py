"""Kernels that have less than this one: what a child can reach there, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from daemon import sandbox_parts
from daemon.errors import ConfigurationError
from daemon.sandbox_parts import Mode
from tests.process.aims import BY_LANDLOCK, expected, outside, run_python
from tests.process.attempts import ATTEMPTS
from tests.process.conftest import HERE, Ward

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(sandbox_parts.missing()), reason="this kernel cannot keep a child; the daemon says so"),
]

OLDER = """
import json, os, socket, sys, tempfile
from pathlib import Path
from daemon import landlock, sandbox, seccomp
from daemon.sandbox_parts import Mode
from tests.process.attempts import ATTEMPTS, Aims, tried

abi, aims, here = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
landlock.abi = lambda: abi
if len(sys.argv) > 4:
    seccomp.is_available = lambda: False
document = tempfile.TemporaryFile()
os.open(f"/proc/self/fd/{document.fileno()}", os.O_RDONLY)
document.close()
given = socket.socketpair()
given[1].close()
root = Path(aims["ledger"]).parent / "scratch"
scratch = root / "child"
scratch.mkdir()
confinement = sandbox.Confinement(mode=Mode.AUTO, scratch_root=root, code=(Path(here),))
sandbox.first_lock(parent_pid=os.getppid(), confinement=confinement)
readable, writable = os.pipe()
if os.fork() == 0:
    sandbox.second_lock(
        sandbox.Limits(memory_bytes=2**30, max_file_bytes=2**20), confinement=confinement, scratch=scratch
    )
    aims = Aims(**aims, sibling=os.getppid(), scratch=str(scratch))
    print(json.dumps({name: tried(name, aims) for name in ATTEMPTS}), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5, 6])
def test_older_landlock(abi: int, tmp_path: Path) -> None:
    """On Debian 12 (ABI 2) and Ubuntu 22.04 (ABI 1) a child can reach no more than on the newest kernel."""
    with outside(tmp_path) as aims:
        output = run_python(OLDER, str(abi), json.dumps(aims), HERE)
    wanted = {name: expected(name) for name in ATTEMPTS}
    if abi == 1:  # which has no rule that lets a file move between folders
        wanted |= {"allowed_scratch": "EXDEV"}
    assert output == wanted


def test_without_landlock(tmp_path: Path) -> None:
    """Without Landlock a child has its user's files, as the log says, and still no socket, process or signal."""
    with outside(tmp_path) as aims:
        output = run_python(OLDER, "0", json.dumps(aims), HERE)
    by_seccomp = [name for name in ATTEMPTS if name not in BY_LANDLOCK]
    assert {name: output[name] for name in by_seccomp} == {name: expected(name) for name in by_seccomp}
    assert output["ledger"] == "done"


def test_without_seccomp(tmp_path: Path) -> None:
    """Without seccomp a child can fork and open sockets, as the log says, and still reads and writes nothing."""
    with outside(tmp_path) as aims:
        output = run_python(OLDER, "7", json.dumps(aims), HERE, "without")
    assert {output[name] for name in BY_LANDLOCK - {"file_linked"}} == {"EACCES"}
    assert output["fork"] == "done"
    by_scope = ("tcp", "unix_abstract", "kill", "ptrace", "parent_read", "parent_write")
    assert {name: output[name] for name in by_scope} == dict.fromkeys(by_scope, "EPERM") | {"tcp": "EACCES"}


def test_kernel_that_lacks_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named at the start; who requires it gets no start, and is told what to change."""
    monkeypatch.setattr("daemon.landlock.abi", lambda: 0)
    with structlog.testing.capture_logs() as logs:
        sandbox_parts.demand(Mode.AUTO)
    (line,) = [line for line in logs if line["event"] == "sandbox.limited"]
    assert "a child can read what the daemon's user can" in line["missing"][0]
    with pytest.raises(ConfigurationError, match=r"no Landlock.*set child\.sandbox = \"auto\""):
        Ward("zygote", tmp_path, sandbox="required").children.start()
    monkeypatch.setattr("daemon.seccomp.is_available", lambda: False)
    assert len(sandbox_parts.missing()) == 6


def test_zygote_that_lacks_a_part(tmp_path: Path) -> None:
    """A zygote that cannot be locked as required refuses by itself, whatever its parent saw."""
    code = OLDER.replace("Mode.AUTO", "Mode.REQUIRED")
    with outside(tmp_path) as aims, pytest.raises(AssertionError, match="EngineError: cannot lock the process"):
        run_python(code, "0", json.dumps(aims), HERE)


def test_complete_kernel_is_silent() -> None:
    """Where everything is there, one line says what is in force, and nothing warns."""
    with structlog.testing.capture_logs() as logs:
        sandbox_parts.demand(Mode.REQUIRED)
    assert [(line["event"], line["log_level"]) for line in logs] == [("sandbox.checked", "info")]
    assert {"landlock", "seccomp"} <= set(logs[0]["parts"])
