"""One embedded SQS and S3 for this folder; each test has queues of its own by purging what the last one left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.emulator import Emulated, emulated


@pytest.fixture
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulated]:
    """A new server: a second to start, and nothing in it."""
    with emulated(tmp_path_factory.mktemp("emulator") / "log") as aws:
        yield aws
