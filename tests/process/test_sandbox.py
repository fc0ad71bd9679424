"""From inside a child: what a hostile document's code can reach. Tried, one case for each attempt, both ways to start.

Every attempt is also made without the sandbox, where it must come out otherwise: a case that cannot fail proves
nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

import pytest

from daemon import sandbox_parts
from daemon.model import Cause
from tests.process.aims import attempts_of, expected, run_python
from tests.process.attempts import ATTEMPTS, WHILE_LOADING
from tests.process.conftest import Ward

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(sandbox_parts.missing()), reason="this kernel cannot keep a child; the daemon says so"),
]


@pytest.fixture(scope="module", params=["zygote", "spawn"])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of every attempt in a child."""
    return attempts_of(request.param, tmp_path_factory.mktemp("in"), "required")


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What comes of every attempt when nothing keeps the child."""
    return attempts_of("zygote", tmp_path_factory.mktemp("free"), "off")


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(said: dict[str, str], name: str) -> None:
    """A child can open no socket, read no secret, start nothing, signal nobody, write only its scratch."""
    assert said[name] == expected(name)


@pytest.mark.parametrize("name", [name for name in ATTEMPTS if not name.startswith("allowed_")])
def test_attempt_without_sandbox(free: dict[str, str], name: str) -> None:
    """Without the sandbox the same attempt succeeds, or fails for another reason: the sandbox is what denies it."""
    if free[name] == expected(name) == "EPERM" and os.geteuid() != 0:
        pytest.skip("this user may not do that anyway; run as root to see the difference")
    assert free[name] != expected(name)
    assert not free[name].startswith("status"), "the attempt itself is broken"


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_first_lock(start: str, tmp_path: Path) -> None:
    """While it loads the engine, and may still fork, a process can no more reach out than a child can later."""
    ward = Ward(start, tmp_path, "fake_engine:load_trying", sandbox="required")
    manifest = ward.children.start()
    ward.children.stop()
    assert manifest["tried"] == {name: expected(name) for name in WHILE_LOADING}


UNPRIVILEGED = """
import json, os, subprocess, sys, tempfile
from pathlib import Path
from tests.process.aims import attempts_of
said = attempts_of(sys.argv[1], Path(tempfile.mkdtemp(dir=sys.argv[2])), "required")
# A process of this user that is in no sandbox: only `sandbox.hide` keeps the parent from it.
code = f"open('/proc/{os.getpid()}/environ').read()"
seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(json.dumps(said | {"hidden": "PermissionError" in seen.stderr}))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become somebody else")
@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_unprivileged(start: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A user without rights locks its children just the same, and no process of that user sees into the parent."""
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        Path(folder).chmod(0o777)
        # The one capability lets it read this checkout, wherever that lies. It reads past modes, and the sandbox holds.
        became = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        became += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        output = run_python(UNPRIVILEGED, start, folder, before=became)
    assert {name: output[name] for name in ATTEMPTS} == {name: expected(name) for name in ATTEMPTS}
    assert output["hidden"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has a second door for another machine's calls")
@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_foreign_call(start: str, tmp_path: Path) -> None:
    """A system call of another machine, which no list describes, ends the child; it costs the page."""
    ward = Ward(start, tmp_path, sandbox="required")
    ward.children.start()
    outcome = ward.run("foreign-call").outcome
    assert (outcome.cause, outcome.signal) == (Cause.CRASHED, "SIGSYS")
    assert ward.run("a").outcome.cause is Cause.CONVERTED
    ward.children.stop()


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_thread_bomb(start: str, tmp_path: Path) -> None:
    """Threads are all that a child can multiply, and its memory limit counts their stacks."""
    ward = Ward(start, tmp_path, sandbox="required")
    ward.children.start()
    assert 10 < int(ward.said("threads")) < 1000
    ward.children.stop()
