"""The fake engine on a host that breaks: files beside this one say how, so that a test can break and cure it.

Copied into a folder of its own by each test, since that folder is what a child may read. `broken`: every conversion
dies. `damaged`: the engine does not load.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fake_engine import FakeEngine  # type: ignore[import-not-found]  # beside this file where it is used

from daemon.config_engine import EngineSettings
from daemon.engine.api import Progress
from daemon.errors import EngineError
from daemon.model import Conversion, MediaType, Plan, Stage

_BROKEN = Path(__file__).with_name("broken")
_DAMAGED = Path(__file__).with_name("damaged")


class BreakableEngine(FakeEngine):  # type: ignore[misc]  # its base is unknown to the checker
    """Dies in OCR while the host is broken, whatever the document is."""

    def convert(
        self,
        data: bytes,
        *,
        media_type: MediaType,
        plan: Plan,
        finished: Mapping[int, bytes],
        scratch: Path,
        progress: Progress,
    ) -> Conversion | None:
        """As the fake does, or not at all."""
        if _BROKEN.exists():
            progress.opened(1)
            progress.stage(Stage.LAYOUT, 1)
            os.abort()
        made: Conversion | None = super().convert(
            data, media_type=media_type, plan=plan, finished=finished, scratch=scratch, progress=progress
        )
        return made


def load(settings: EngineSettings, *, threads: int) -> BreakableEngine:
    """The factory."""
    del settings, threads
    if _DAMAGED.exists():
        raise EngineError("cannot load layout.onnx: its digest differs; install the models again")
    return BreakableEngine()
