"""What the tests of this folder share: a lab, or the sentence that says why there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.lab import Lab, why_not


@pytest.fixture(scope="session")
def lab_possible() -> None:
    """Ask for this before making a `Lab`: skips, and says why, where none can be had."""
    reason = why_not()
    if reason:
        pytest.skip(f"not deployed: {reason}")


@pytest.fixture
def lab(lab_possible: None) -> Iterator[Lab]:
    """A bare host."""
    with Lab() as lab:
        yield lab
