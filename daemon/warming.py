"""The first step of a start: the state folder is ours, and the engine loads while the edges are opened and tried.

Shell. Loading the engine takes most of a start, on one core, so it is begun first, and nobody waits for it before there
is nothing else left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from daemon import cgroup, host
from daemon.cgroup_find import find
from daemon.children import DEFAULT_FACTORY, Children
from daemon.clock import Clock, SystemClock
from daemon.config import Settings
from daemon.lock import instance_lock
from daemon.model import Holder
from daemon.scratch import remove_tree
from daemon.sizing import Sizing, size

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What only code may choose and no setting reaches: tests and benches put others in their place."""

    clock: Clock = field(default_factory=SystemClock)
    #: Asked once, when the daemon starts.
    holder: Callable[[], Holder] = host.holder
    #: `module:function`; see `daemon.engine.api.Factory`.
    engine_factory: str = DEFAULT_FACTORY
    #: Folder in which that module is found; empty: installed.
    engine_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming:
    """Children whose engine loads; `children.start` waits for it."""

    children: Children
    sizing: Sizing


@contextmanager
def warming(settings: Settings, parts: Parts | None = None) -> Iterator[Warming]:
    """Hold the state folder and begin to load the engine; on leaving its processes end, loaded or not.

    Raises `OperatorError`: a second instance, a folder that cannot be written, a kernel that cannot keep children.
    """
    parts = parts or Parts()
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    with instance_lock(settings.state_dir / "instance.lock"):
        sizing = sizing_of(settings)
        for note in sizing.notes:
            log.warning("sizing.clamped", detail=note)
        children = Children(
            settings=settings.model_copy(update={"threads": sizing.threads}),
            memory_bytes=sizing.memory_bytes_per_child,
            scratch_root=_empty_scratch(settings),
            clock=parts.clock,
            engine_factory=parts.engine_factory,
            engine_path=parts.engine_path,
            groups=cgroup.claim(find()),
        )
        try:
            children.begin()
            yield Warming(children=children, sizing=sizing)
        finally:
            children.stop()


def sizing_of(settings: Settings) -> Sizing:
    """How many workers fit on this host; what was clamped is said in its notes."""
    return size(
        cpus=host.usable_cpus(),
        memory_bytes=host.usable_memory_bytes(),
        workers=settings.workers,
        threads=settings.threads,
        memory_per_child_bytes=settings.child.memory_bytes,
    )


def _empty_scratch(settings: Settings) -> Path:
    """The scratch folder, without what killed parents left in it; only for the holder of the instance lock."""
    scratch = settings.state_dir / "scratch"
    if scratch.exists():
        remove_tree(scratch)
    scratch.mkdir(exist_ok=True)
    return scratch
