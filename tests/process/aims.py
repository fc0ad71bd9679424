"""What the attempts of `attempts.py` are aimed at, what the kernel should say to each, and all of them in one child."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.process.attempts import ATTEMPTS
from tests.process.conftest import HERE, Ward

#: What Landlock denies. The rest is EPERM, by seccomp.
BY_LANDLOCK = frozenset(
    {
        "shadow",
        "passwd",
        "secret",
        "secret_listed",
        "secret_by_link",
        "secret_by_dotdot",
        "ledger",
        "ledger_written",
        "scratch_of_others",
        "parent_environment",
        "parent_memory",
        "parent_memory_writable",
        "parent_descriptors",
        "parent_command",
        "sibling_environment",
        "sibling_memory",
        "file_made",
        "file_written",
        "file_linked",
        "file_taken",
        "file_removed",
        "folder_made",
        "beside_scratch",
        "document_reopened",
        "shared_memory_file",
        "temporary_file",
    }
)
#: Said not to exist, so that the C library falls back.
ABSENT = frozenset({"clone3", "openat2"})


def expected(name: str) -> str:
    """What the kernel says to an attempt in the sandbox."""
    if name.startswith("allowed_"):
        return "done"
    if name == "file_linked":
        return "EXDEV"  # Landlock's word for "not from there to here"
    return "EACCES" if name in BY_LANDLOCK else "ENOSYS" if name in ABSENT else "EPERM"


@contextmanager
def outside(folder: Path) -> Iterator[dict[str, object]]:
    """Everything that an attempt is aimed at, alive."""
    paths = {name: folder / name for name in ("credentials", "state", "outside", "socket")}
    for name in ("credentials", "state", "outside"):
        paths[name].mkdir(mode=0o700)
    (paths["state"] / "scratch").mkdir()
    (paths["credentials"] / "sentry__dsn").write_text("secret")
    (paths["state"] / "ledger.db").write_text("ledger")
    (paths["outside"] / "there").write_text("there")
    with ExitStack() as stack:
        kinds = [socket.SOCK_STREAM, socket.SOCK_DGRAM]
        tcp, udp = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for kind in kinds]
        unix, abstract = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        name = f"bulkhead-test-{os.getpid()}-{folder.name}"
        for listening, address in ((tcp, ("127.0.0.1", 0)), (unix, str(paths["socket"])), (abstract, f"\0{name}")):
            listening.bind(address)
            listening.listen(50)
        udp.bind(("127.0.0.1", 0))
        yield {
            "pid": os.getpid(),
            "tcp_port": tcp.getsockname()[1],
            "udp_port": udp.getsockname()[1],
            "socket_path": str(paths["socket"]),
            "abstract": name,
            "secret": str(paths["credentials"] / "sentry__dsn"),
            "ledger": str(paths["state"] / "ledger.db"),
            "outside": str(paths["outside"]),
        }


def attempts_of(start: str, folder: Path, mode: str) -> dict[str, str]:
    """Make every attempt in a child, a page for each; returns what came of them."""
    with outside(folder) as aims:
        ward = Ward(start, folder / "state" / "scratch", sandbox=mode)
        ward.children.start()
        try:
            aims["sibling"] = ward.children.zygote_pid or 0
            said: dict[str, str] = {}
            # What succeeds spoils the aim of the next one, so without a sandbox each has a child of its own.
            for names in ([name] for name in ATTEMPTS) if mode == "off" else [list(ATTEMPTS)]:
                restore(aims)
                lines = [json.dumps({"attempt": name} | aims) for name in names]
                text = ward.said("\n".join(f"try {line}" for line in lines), finished={9999: b"of another child"})
                said |= dict(zip(names, text.splitlines(), strict=True))
        finally:
            ward.children.stop()
    return said


def restore(aims: Mapping[str, object]) -> None:
    """Make what a successful attempt took away, and remove what one has made."""
    folder = Path(str(aims["outside"]))
    (folder / "made").unlink(missing_ok=True)
    (folder / "there").write_text("there")


def run_python(code: str, *arguments: str, before: Sequence[str] = ()) -> dict[str, Any]:
    """Run `code` from the root of the checkout; returns the JSON of its last line."""
    result = subprocess.run(
        [*before, sys.executable, "-c", code, *arguments],
        cwd=Path(HERE).parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    value: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return value
