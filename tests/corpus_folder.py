"""The folder of real documents beside the clone, as a fixture: read-only, never copied; where it is not, tests skip."""

from __future__ import annotations

from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Its folders `a` (born digital), `b` (scans), `c` (large), `d` (hostile), `e` (images), `gt` (references)."""
    if not (CORPUS / "manifest.tsv").exists():
        pytest.skip("no corpus of real documents at ../shared/corpus: only the samples that we make were tried")
    return CORPUS
