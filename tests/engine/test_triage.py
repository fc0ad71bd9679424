"""Pages whose text layer is broken: their picture is read instead, and the account says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.sample_raw import HELVETICA, page_of, raw_pdf, stream
from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

LINES = (
    "The harbour office keeps a list of all ships",
    "that came in during the night and of the goods",
    "which they brought. In the morning it is sent to",
    "the town, and a copy of it is put on the wall.",
)


def page_with_map(code_to_text: Callable[[int], str]) -> bytes:
    """A page that looks right, and whose font says something else when its text is copied."""
    pairs = [f"<{code:02X}> <{code_to_text(code).encode('utf-16-be').hex().upper()}>" for code in range(32, 127)]
    cmap = (
        "/CIDInit/ProcSet findresource begin 12 dict begin begincmap /CMapName/X def /CMapType 2 def "
        "1 begincodespacerange <00> <FF> endcodespacerange\n"
        f"{len(pairs)} beginbfchar\n{chr(10).join(pairs)}\nendbfchar "
        "endcmap CMapName currentdict /CMap defineresource pop end end"
    )
    shown = "".join(f"({line})' " for line in LINES)
    return raw_pdf(
        (
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Kids[3 0 R]/Count 1>>",
            page_of(420),
            stream(f"BT/F 16 Tf 20 TL 30 300 Td {shown}ET"),
            HELVETICA.replace(">>", "/ToUnicode 6 0 R>>"),
            stream(cmap),
        )
    )


MAPS: dict[str, Callable[[int], str]] = {
    "true": chr,
    "shifted": lambda code: chr(code - 29),
    "private": lambda code: chr(0xE000 + code),
    "another text": lambda code: chr(97 + (code * 7 + 3) % 26) if chr(code).isalpha() else chr(code),
}


def written(folder: Path, name: str) -> Path:
    """The file of one map."""
    path = folder / "page.pdf"
    path.write_bytes(page_with_map(MAPS[name]))
    return path


@pytest.mark.parametrize("name", ["shifted", "private", "another text"])
def test_a_broken_layer_is_read_from_the_picture(worker: Worker, tmp_path: Path, name: str) -> None:
    """What the page shows comes out, and not what its font claims; the reason is in the account."""
    result = worker.convert(written(tmp_path, name))
    assert "The harbour office keeps a list of all ships" in result.markdown
    ((_, state, engine, reason),) = result.pages
    assert state == "ocr"
    assert "ocr=rapidocr" in engine
    assert "its text layer is garbage" in reason


def test_an_honest_layer_is_left_alone(worker: Worker, tmp_path: Path) -> None:
    """The same page with a true map is not read by OCR."""
    result = worker.convert(written(tmp_path, "true"))
    ((_, state, engine, reason),) = result.pages
    assert (state, reason) == ("text", "")
    assert "ocr" not in engine


def test_without_ocr_it_is_degraded(worker: Worker, tmp_path: Path) -> None:
    """When OCR is off, the layer is all there is, and is called what it is."""
    result = worker.convert(written(tmp_path, "shifted"), plan={"default": "without_ocr"})
    ((_, state, _, reason),) = result.pages
    assert state == "degraded"
    assert "OCR was off" in reason
