"""The usual way to have several processes: an executor on forkserver, the engine built once per worker.

What it has not: a worker lives on after a document, so what one leaves behind meets the next, and one that dies
breaks the whole pool and every document in it. It is measured for its price only.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench._loop import convert, load_engine
from daemon.model import MediaType


@dataclass(slots=True)
class _Worker:
    """What one worker of the pool keeps between documents."""

    engine: Any = None


_worker = _Worker()


def _begin() -> None:
    _worker.engine = load_engine()


def task(path: str, media_type: str) -> dict[str, bytes]:
    """Convert in a worker; the artefacts travel back to the parent."""
    return convert(_worker.engine, Path(path), MediaType(media_type))


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """An executor whose workers start with their first tasks; all are ended on leaving."""
    with ProcessPoolExecutor(
        max_workers=workers, mp_context=multiprocessing.get_context("forkserver"), initializer=_begin
    ) as executor:
        yield executor
