"""One side of `bench.before` on a checkout made for it: whose code runs, and what ends a process costs one document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench._before_side import Converted, Failed, Side, TooLong
from bench._loop import LoopEnded
from bench._measure import Doc
from daemon.model import MediaType

pytestmark = pytest.mark.process

#: A document is `%PDF`, then what is to happen.
ENGINE = """
import os, signal
import before  # not the one that lies beside the script
from types import SimpleNamespace

class Engine:
    def warm_up(self): print("a library says something", flush=True)

    def convert(self, data, *, media_type, plan, finished, scratch, progress):
        _, what, *rest = data.decode().split()
        if what == "exit": os._exit(7)
        if what == "hang": signal.pause()
        if what == "fail": raise ValueError("it broke")
        progress.opened(int(what))
        text = " ".join([*rest, os.environ["OLD_VARIABLE"], *sorted({"OMP_NUM_THREADS"} & set(os.environ))])
        return SimpleNamespace(pages=[None] * int(what), artefacts={"document.md": text.encode()})

def load(settings, *, threads): return Engine()
"""
SANDBOX = """
def environment(source): return {"PATH": source["PATH"], "OLD_VARIABLE": "old"}
"""
MODEL = """
from enum import StrEnum
MediaType = StrEnum("MediaType", {"PDF": "application/pdf"})
Plan = PageRecord = Stage = object
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An older version, whose children know another environment."""
    root = tmp_path / "old"
    (root / "daemon" / "engine").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "sandbox.py": SANDBOX,
        "model.py": MODEL,
        "config_engine.py": "EngineSettings = object",
        "engine/__init__.py": "",
        "engine/pipeline.py": ENGINE,
    }.items():
        (root / "daemon" / name).write_text(text, encoding="utf-8")
    (root / "before.py").touch()
    return root


@pytest.fixture
def side(checkout: Path) -> Iterator[Side]:
    """Nothing here takes a minute but what never ends."""
    with Side(checkout, pages=3, longest_s=60.0) as made:
        yield made


def doc(folder: Path, text: str) -> Doc:
    """One that says what is to happen."""
    path = folder / "document.pdf"
    path.write_text(f"%PDF {text}", encoding="utf-8")
    return Doc(path=path, media_type=MediaType.PDF)


def test_the_other_checkouts_daemon_converts_in_its_own_environment(side: Side, tmp_path: Path) -> None:
    """Neither the editable install nor this folder is before it; and of our forced variables none is left."""
    found = side.convert(doc(tmp_path, "2 größer"))
    assert isinstance(found, Converted)
    assert (found.pages, found.markdown) == (2, "größer old")
    assert found.cost.wall_s > 0.0


def test_a_document_of_too_many_pages_is_put_down(side: Side, tmp_path: Path) -> None:
    """It is opened, and not converted."""
    assert side.convert(doc(tmp_path, "4 text")) == TooLong(pages=4)
    assert isinstance(side.convert(doc(tmp_path, "3 text")), Converted)


def test_what_an_engine_raises_is_told(side: Side, tmp_path: Path) -> None:
    """And its process goes on."""
    loop = side._loop
    assert side.convert(doc(tmp_path, "fail")) == Failed(reason="ValueError: it broke")
    assert isinstance(side.convert(doc(tmp_path, "1 text")), Converted)
    assert side._loop is loop


def test_a_process_that_ended_is_begun_again(side: Side, tmp_path: Path) -> None:
    """With the next document, whatever this one did."""
    found = side.convert(doc(tmp_path, "exit"))
    assert isinstance(found, Failed)
    assert "status 7" in found.reason
    assert isinstance(side.convert(doc(tmp_path, "1 text")), Converted)


def test_a_document_that_takes_too_long_is_given_up(side: Side, tmp_path: Path) -> None:
    """Its process never ends by itself, so the limit may be nothing at all."""
    side._longest_s = 0.0
    assert side._loop is not None
    process = side._loop._process
    assert side.convert(doc(tmp_path, "hang")) == Failed(reason="took longer than 0 s")
    assert process.returncode == -9, "ended and reaped"
    side._longest_s = 60.0
    assert isinstance(side.convert(doc(tmp_path, "1 text")), Converted)


def test_an_engine_that_does_not_load_ends_the_bench(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every document would fail, and none would be to blame."""
    (checkout / "daemon" / "engine" / "pipeline.py").write_text("raise RuntimeError('no models')", encoding="utf-8")
    side = Side(checkout, pages=3, longest_s=60.0)
    with pytest.raises(LoopEnded, match="status 1"), side:
        pass
    assert side._loop is None
    assert "no models" in capfd.readouterr().err


def test_another_daemon_than_the_checkouts_is_never_measured(checkout: Path) -> None:
    """A folder without one would be given ours, which is installed beside it."""
    side = Side(checkout.parent, pages=3, longest_s=60.0)
    with pytest.raises(AssertionError, match="is measured, not"), side:
        pass
    side._end()
