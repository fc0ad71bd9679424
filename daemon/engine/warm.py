"""What a child would otherwise do again: lazy imports, parser resources, the first run of each network.

Engine. Runs in the process that children are forked from, so it opens one small page of its own making and
converts nothing.
"""

from __future__ import annotations

import io

import pymupdf
from docling_core.types.doc import DocItemLabel, DoclingDocument
from PIL import Image

from daemon.engine import export
from daemon.engine.budget import Budget
from daemon.engine.images import ImageSource
from daemon.engine.layout import PageLayoutModel
from daemon.engine.pdf import PdfSource
from daemon.engine.plain import SecondParser
from daemon.engine.preview import preview
from daemon.engine.reader import Reader
from daemon.model import MediaType


def warm_up(budget: Budget, layout: PageLayoutModel, reader: Reader) -> None:
    """One page through parser, renderer and layout; blank pictures through the readers; one line exported."""
    source = PdfSource(sample(), budget=budget, max_pages=1)
    page = source.load_page(0)
    page.get_segmented_page()
    page.get_shape_lines()
    page.get_connected_shape_bounding_boxes()
    layout.warm_up(budget, page)
    preview(page, budget)
    page.ink()
    page.unload()
    source.unload()
    reader.warm_up()
    second = SecondParser(sample())
    second.read(1)
    second.close()
    _warm_image_formats(budget)
    document = DoclingDocument(name="warm")
    document.add_text(label=DocItemLabel.TEXT, text="warm")
    export.markdown(document)
    export.lossless(document)


def _warm_image_formats(budget: Budget) -> None:
    """One small frame of each format: Pillow imports its decoders on first use."""
    for kind, media_type in (("PNG", MediaType.PNG), ("JPEG", MediaType.JPEG), ("TIFF", MediaType.TIFF)):
        file = io.BytesIO()
        Image.new("RGB", (64, 64), "white").save(file, kind)
        frames = ImageSource(file.getvalue(), media_type=media_type, budget=budget, max_pages=1)
        frames.load_page(0).unload()
        frames.unload()


def sample() -> bytes:
    """A page with a heading, a paragraph, a ruled table and a picture."""
    with pymupdf.open() as document:
        page = document.new_page(width=300, height=300)
        page.insert_text((30, 40), "Heading", fontsize=20)
        page.insert_text((30, 70), "A paragraph of text, long enough to be one.", fontsize=10)
        for row in range(3):
            page.draw_line((30, 100 + 20 * row), (230, 100 + 20 * row))
            for column in range(3):
                page.insert_text((35 + 70 * column, 115 + 20 * row), f"cell {row}{column}", fontsize=9)
        picture = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 16, 16), False)
        picture.clear_with(128)
        page.insert_image(pymupdf.Rect(30, 200, 90, 260), pixmap=picture)
        return bytes(document.tobytes())
