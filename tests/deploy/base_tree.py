"""The file system that every lab starts from: a small Debian, made once by debootstrap and kept in the user's cache.

Rules: the cached tree is only ever read; a half-made one is never found; the mirror is the machine's own, read from its
apt sources each time and written nowhere; two test runs that need the tree at once wait for one of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: systemd 252 and Python 3.11: the oldest that the deployment promises to work on.
SUITE = "bookworm"
#: openssh-server is what a deployment comes in through; ca-certificates because the AWS SDK expects the file.
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "iproute2", "procps", "ca-certificates", "openssh-server"),
    *("python3", "python3-venv"),
)
#: Raised when what is done to the tree after debootstrap changes, so that old caches are not used.
_REVISION = 1
_DEBOOTSTRAP_S = 900
#: Units that would only cost time or, as sshd does, take a port of the host.
_MASKED = ("ssh.service", "console-getty.service", "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_reap.service")
#: Names a Debian mirror for machines whose apt sources name none, such as Ubuntu's.
MIRROR_VARIABLE = "LAB_MIRROR"


def base_tree() -> Path:
    """The tree, made in about a minute if it is not there yet. Raises CalledProcessError with debootstrap's words."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bulkhead-lab"
    folder.mkdir(parents=True, exist_ok=True)
    named = ",".join(PACKAGES + _MASKED)
    key = hashlib.sha256(f"{_REVISION} {named}".encode()).hexdigest()[:12]
    tree = folder / f"{SUITE}-{platform.machine()}-{key}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.is_dir():
            with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as making:
                made = Path(making) / "root"
                _debootstrap(made)
                _settle(made)
                made.rename(tree)
    return tree


def mirror(apt: Path = Path("/etc/apt")) -> str | None:
    """The URL of a Debian archive that this machine installs from; None when it installs from none."""
    named = os.environ.get(MIRROR_VARIABLE)
    if named:
        return named
    archives = (url for url in _sources(apt) if url.rstrip("/").endswith("/debian"))
    return next(archives, None)


def _sources(apt: Path) -> Iterator[str]:
    """Every URL of the apt sources, of both formats (sources.list(5)), in the order of the files."""
    for file in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]:
        if not file.is_file() or file.suffix not in {".list", ".sources"}:
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            words = line.partition("#")[0].split()
            if words and words[0] in {"deb", "URIs:"}:
                yield from (word for word in words if "://" in word)


def _debootstrap(root: Path) -> None:
    url = mirror()
    assert url, "whoever asks for the tree has asked for a mirror before"
    program = shutil.which("debootstrap")
    assert program, "whoever asks for the tree has asked for debootstrap before"
    command = [program, "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), url]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DEBOOTSTRAP_S)


def _settle(root: Path) -> None:
    """Make of a bare tree a host that boots quietly."""
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="utf-8")
    (root / "etc/machine-id").write_text("", encoding="utf-8")
    for unit in _MASKED:
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    shutil.rmtree(root / "var/cache/apt/archives")
