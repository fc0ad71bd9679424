"""Ctrl+C and SIGTERM as one call, for as long as something listens.

Edge. Rules: only for the main thread; handlers only tell; what the signals did before is put back, whatever happens.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def on_stop_signal(tell: Callable[[signal.Signals], object]) -> Iterator[None]:
    """Each SIGINT and SIGTERM is told, and does nothing else."""

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        tell(signal.Signals(number))

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
