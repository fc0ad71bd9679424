"""Which engine is installed here, in one line, without loading it.

Edge: the metadata of installed packages. The engine refuses to start when it is not made of the packages that our own
requirements pin, so their versions name it.
"""

from __future__ import annotations

import importlib.metadata
import re

from daemon import __version__

_PINNED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==[^;\s]+$")


def build() -> str:
    """`bulkheadd 0.1.0, pymupdf 2.0, …`: our version and every package that we pin."""
    try:
        requirements = importlib.metadata.requires("bulkheadd") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        requirements = []
    names = sorted(match[1] for requirement in requirements if (match := _PINNED.match(requirement)))
    return ", ".join([f"bulkheadd {__version__}", *(f"{name} {_version(name)}" for name in names)])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
