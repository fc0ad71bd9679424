"""One host of a chaos run: the real `bulkhead run` with a name of its own, a clock that can be moved, and an engine.

Started as `python -m bench._chaos_host`. Rules: everything but these three is what production runs, settings and exit
statuses included; none of the three can be reached by a setting.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from daemon import host
from daemon.children import DEFAULT_FACTORY
from daemon.cli_shared import settings_of
from daemon.clock import SystemClock
from daemon.errors import BulkheadError, ExitStatus, OperatorError
from daemon.model import Holder
from daemon.run import run
from daemon.warming import Parts

#: The fake engine of the process tests.
_FAKE_ENGINE = ("fake_engine:load", str(Path(__file__).parent.parent / "tests" / "process"))


class MovedClock(SystemClock):
    """The wall clock, off by the seconds that a file holds now; monotonic time cannot be moved."""

    def __init__(self, offset_file: Path) -> None:
        self._offset_file = offset_file

    def now(self) -> datetime:
        """The instant that this host believes in."""
        return super().now() + timedelta(seconds=float(self._offset_file.read_text(encoding="ascii") or 0))


def main(argv: Sequence[str] | None = None) -> ExitStatus:
    """Be the daemon; returns its exit status, as `bulkhead run` would leave with."""
    parser = argparse.ArgumentParser(prog="python -m bench._chaos_host")
    parser.add_argument("--name", required=True)
    parser.add_argument("--clock", type=Path, required=True)
    parser.add_argument("--engine", choices=["fake", "real"], required=True)
    options = parser.parse_args(argv)

    def holder() -> Holder:
        return replace(host.holder(), host=options.name)

    factory, folder = _FAKE_ENGINE if options.engine == "fake" else (DEFAULT_FACTORY, "")
    parts = Parts(clock=MovedClock(options.clock), holder=holder, engine_factory=factory, engine_path=folder)
    try:
        run(settings_of(None), parts=parts)
    except BulkheadError as error:
        structlog.get_logger().error("daemon.refused", message=str(error))
        return error.status if isinstance(error, OperatorError) else ExitStatus.UNAVAILABLE
    except Exception:
        structlog.get_logger().exception("daemon.crashed")
        raise
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(int(main()))
