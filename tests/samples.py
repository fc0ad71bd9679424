"""The sample documents as a fixture: made once per run, in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.samples import write


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file of `daemon.samples.SAMPLES`; tests must not change it."""
    directory = tmp_path_factory.mktemp("samples")
    write(directory)
    return directory
