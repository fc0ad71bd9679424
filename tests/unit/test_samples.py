"""The samples are what they say, and the same every time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from daemon.model import Cause, ResultStatus
from daemon.samples import SAMPLES, Sample, write

MAGIC = {".pdf": b"%PDF-", ".png": b"\x89PNG", ".jpg": b"\xff\xd8\xff", ".tiff": b"II*\x00"}


def test_every_sample_is_there_and_nothing_else(samples: Path) -> None:
    """The table of the demo and the folder must agree."""
    assert {path.name for path in samples.iterdir()} == {sample.name for sample in SAMPLES}


def test_bytes_are_the_same_on_every_run(samples: Path, tmp_path: Path) -> None:
    """A document's id may come from its digest, so a second demo must recognise the first one's documents."""
    write(tmp_path)
    different = [path.name for path in samples.iterdir() if path.read_bytes() != (tmp_path / path.name).read_bytes()]
    assert different == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_only_the_not_a_document_samples_lack_a_magic_number(samples: Path, sample: Sample) -> None:
    """Content decides what a document is; each sample must be refused, or not, for its own reason."""
    path = samples / sample.name
    is_document = path.read_bytes().startswith(MAGIC[path.suffix])
    assert is_document is (sample.cause is not Cause.NOT_A_DOCUMENT)


def test_bombs_are_small_files(samples: Path) -> None:
    """A bomb that is large would be stopped by the size limit, and prove nothing."""
    assert (samples / "pixel-bomb.pdf").stat().st_size < 1_024
    assert (samples / "image-bomb.png").stat().st_size < 64_000


def test_promises_are_consistent() -> None:
    """A failed document has a cause and no pages; a converted one has pages."""
    for sample in SAMPLES:
        failed = sample.status is ResultStatus.FAILED
        assert failed is (sample.cause is not Cause.CONVERTED) is (sample.pages == 0)


def test_the_data_can_be_imported_without_native_code() -> None:
    """The demo's parent imports the list; it must never load a parser."""
    probe = "import sys, daemon.samples; sys.exit(any(m in sys.modules for m in ('pymupdf', 'PIL', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
