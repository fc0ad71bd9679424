"""A machine with a kernel of its own: what needs cgroup v2 and systemd cannot be shown on every host's own kernel.

QEMU runs Debian's cloud kernel on the lab's tree, always without KVM, which a host in a cloud may have and not be able
to use; it takes about a minute. Nothing is installed on the host: the kernel is taken out of its package. Rules: the
cached tree is only read; what is made for one run lies in a temporary folder; the machine has no network, and ends by
itself or by its deadline.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.base_tree import base_tree, mirror

_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mkfs.ext4": "e2fsprogs",
    "debootstrap": "debootstrap",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}
#: Its NVMe and ext4 are built in, so no initramfs is needed.
_KERNEL = "linux-image-cloud-amd64"
_MEMORY_MB = 1024
#: An old one that compiled packages still run on; cheaper to emulate than a new one.
_CPU = "Nehalem"
#: A net for a hang.
_RUN_S = 280.0
_IMAGE_BYTES = 2 * 2**30


def why_not() -> str:
    """One sentence that says why this host can run no machine; empty when it can."""
    if os.uname().machine != "x86_64":
        return "the machine is an x86-64 one"
    if os.geteuid() != 0:
        return "only root can make the machine's file system"
    missing = sorted({package for name, package in _PROGRAMS.items() if shutil.which(name) is None})
    if missing:
        return f"{' and '.join(missing)} missing: apt-get install {' '.join(missing)}"
    if mirror() is None:
        return "no Debian archive among the apt sources: name one in LAB_MIRROR"
    return ""


def kernel() -> Path:
    """Debian's cloud kernel, downloaded once. Raises CalledProcessError where apt knows none."""
    folder = base_tree().parent
    said = _output(["apt-cache", "depends", "--important", _KERNEL])
    package = next(line.split()[-1] for line in said.splitlines() if "Depends: linux-image-" in line)
    image = folder / f"vmlinuz-{package}"
    if not image.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as making:
            # As root apt cannot give the folder to its own user, and says so; the package is verified all the same.
            _output(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", package], cwd=making)
            (archive,) = Path(making).glob("*.deb")
            _output(["dpkg-deb", "--extract", str(archive), making])
            (found,) = Path(making, "boot").glob("vmlinuz-*")
            found.rename(image)
    return image


@contextmanager
def image_of(files: Mapping[str, Path | str]) -> Iterator[Path]:
    """A file system image of the lab's tree with `files` on top: path below the root → a file, a folder or a text."""
    tree = base_tree()
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="machine-") as made:
        root = Path(made) / "root"
        _output(["cp", "--archive", "--link", str(tree), str(root)])
        for name, source in files.items():
            _put(root / name, source)
        image = Path(made) / "image"
        with image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _output(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", str(root), str(image)])
        yield image


def _put(target: Path, source: Path | str) -> None:
    """Never through a hard link into the cached tree: what is there is unlinked first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, str):
        target.unlink(missing_ok=True)
        target.write_text(source, encoding="utf-8")
    elif source.is_dir():
        shutil.copytree(source, target)  # compiled files too: compiling takes an emulated CPU a minute
    else:
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)


def run(image: Path, *, unit: str) -> str:
    """Boot into `unit`, which must power the machine off; what it wrote to its console. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        console = Path(folder) / "console"
        command = [
            *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot", "-net", "none"),
            *("-machine", "q35,accel=tcg", "-cpu", _CPU, "-m", str(_MEMORY_MB)),
            *("-kernel", str(kernel()), "-serial", f"file:{console}"),
            *(
                "-drive",
                f"if=none,id=root,format=raw,snapshot=on,file={image}",
                "-device",
                "nvme,drive=root,serial=root",
            ),
            "-append",
            f"root=/dev/nvme0n1 rw console=ttyS0 quiet panic=-1 systemd.unit={unit} systemd.show_status=no",
        ]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_RUN_S)
        return console.read_text(encoding="utf-8", errors="replace")


def _output(command: list[str], *, cwd: str | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, timeout=300).stdout
