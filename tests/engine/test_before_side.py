"""One side of `bench.before` with the real engine: that its far end speaks to the engine of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench._before_side import Converted, Failed, Side
from bench._measure import Doc
from daemon import samples
from daemon.model import MediaType
from tests.engine.conftest import ROOT

pytestmark = pytest.mark.engine


def test_this_checkout_converts(tmp_path: Path) -> None:
    """A document that cannot be opened costs itself; the process goes on with the next one."""
    samples.write(tmp_path)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    with Side(ROOT, pages=20, longest_s=200.0) as side:
        broken, letter = (
            side.convert(Doc(path=tmp_path / name, media_type=MediaType.PDF)) for name in ("broken.pdf", "letter.pdf")
        )
    assert isinstance(broken, Failed)
    assert "DocumentError" in broken.reason
    assert isinstance(letter, Converted)
    assert letter.pages == 1
    assert len(letter.markdown) > 100
    assert letter.cost.cpu_s > 0.0
