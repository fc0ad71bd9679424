"""Which files the engine needs, and nothing beside them.

Edge: the interpreter's own account of where its code lies, and a list of what the C library and the native libraries
were seen to open (by strace, on a warm start and over a corpus). Nothing here holds a document, a setting or a
credential. Whoever adds a path says who opens it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from daemon.landlock import KEEP, LIST, READ, READ_AND_WRITE, Access, Rule

#: Shared libraries, and fonts for documents that bring none.
_LIBRARIES: Final = ("/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/usr/local/lib")
_OTHER: Final = (
    # The loader and the C library.
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/locale",
    "/dev/urandom",
    # Libraries that count CPUs and look for huge pages.
    "/sys/devices/system",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/bus/pci/devices",
    # pdfium and Pillow.
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    # Python's `platform` and `mimetypes`.
    "/etc/os-release",
    "/etc/mime.types",
)
#: /proc as a whole, because a rule for one of its files is lost when the kernel forgets that file's inode for want of
#: memory. Environment and memory of processes outside the layer are denied all the same (`landlock.py`).
_WHILE_LOADING: Final = ("/proc",)
#: Folders whose whole content is code.
_CODE_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})


def zygote_rules(*, scratch_root: Path, code: Collection[Path] = ()) -> list[Rule]:
    """Return the first lock's rules: the engine, /proc, and the folder in which each child's scratch lies.

    `code` are folders with code beside the package and the installed ones.
    """
    loading = [Rule(path=Path(path), access=READ) for path in _WHILE_LOADING]
    return [*_needed(tuple(code)), *loading, Rule(path=scratch_root, access=KEEP)]


def child_rules(*, scratch: Path, code: Collection[Path] = ()) -> list[Rule]:
    """Return the second lock's rules: the engine, and one child's scratch."""
    return [*_needed(tuple(code)), Rule(path=scratch, access=KEEP)]


@cache  # a child asks for what its zygote asked for: found once, before the fork
def _needed(code: tuple[Path, ...]) -> tuple[Rule, ...]:
    granted: dict[Path, Access] = {Path(os.devnull): READ_AND_WRITE}
    devices = Path("/sys/devices").glob("pci*")  # where the links of /sys/bus/pci/devices lead
    for path in (*code, *_code_folders(), *devices, *map(Path, (*_LIBRARIES, *_OTHER))):
        granted[path] = READ
    for entry in sys.path:
        # The import system lists each of them; one that is a project's root holds more than code.
        granted.setdefault(Path(entry), LIST)
    return tuple(Rule(path=path, access=access) for path, access in granted.items() if path.exists())


def _code_folders() -> Iterator[Path]:
    """The standard library, installed packages, this package, and where libraries are looked for."""
    yield Path(__file__).parent
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(sysconfig.get_path(name))
    yield from (Path(entry) for entry in sys.path if Path(entry).name in _CODE_FOLDERS)
    yield Path(sys.prefix) / "pyvenv.cfg"
    library = sysconfig.get_config_var("LIBDIR")
    if library:
        yield from Path(library).glob("libpython*")
    yield from (Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder)
