"""Lines, regions and the engine's modules, for tests of what becomes of them."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

from daemon.engine import runtime

_MODULES = ("blocks", "figures", "frames", "gutters", "listings", "ocr", "pages", "regions", "rules", "tables")
#: Left, top, right, bottom.
Place = tuple[float, float, float, float]


def modules() -> dict[str, Any]:
    """The engine's modules by name; native code, so imported here and after `prepare`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime.prepare(1)
        return {name: importlib.import_module(f"daemon.engine.{name}") for name in _MODULES}


def box(engine: dict[str, Any], place: Place) -> Any:
    """A top-left box."""
    left, top, right, bottom = place
    return engine["regions"].union([engine["pages"].BoundingBox(l=left, t=top, r=right, b=bottom)])


def line(engine: dict[str, Any], text: str, place: Place, *, font: str = "Times", index: int = 0) -> Any:
    """A line of a text layer."""
    blocks, pages = engine["blocks"], engine["pages"]
    return blocks.PdfTextCell(
        index=index,
        text=text,
        orig=text,
        rect=pages.BoundingRectangle.from_bounding_box(box(engine, place)),
        rendering_mode=pages.PdfCellRenderingMode.FILL_TEXT,
        widget=False,
        font_key=font,
        font_name=font,
        from_ocr=False,
    )


def cluster(engine: dict[str, Any], label: str, cells: Sequence[Any], number: int = 0) -> Any:
    """A region with these lines."""
    blocks = engine["blocks"]
    around = engine["regions"].union([cell.to_bounding_box() for cell in cells])
    return blocks.Cluster(id=number, label=blocks.DocItemLabel(label), bbox=around, confidence=1.0, cells=list(cells))


def stacked(
    engine: dict[str, Any], texts: Sequence[str], *, font: str = "Times", pitch: float | None = 5.0
) -> list[Any]:
    """Lines below each other, 12 pt apart; `pitch` None: each letter as wide as a proportional font's might be."""
    widths = [sum(pitch or (2.5 if s in "il., '" else 7 if s.isupper() else 5) for s in text) for text in texts]
    return [
        line(engine, text, (50, 100 + 12 * n, 50 + width, 110 + 12 * n), font=font, index=n)
        for n, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
