"""Makes the files of `samples.py`. Run as a process of its own: `python -m daemon.sample_files DIR`.

Engine. The only module outside `engine/` and `child.py` that imports native code, so nothing imports it.
It reads nothing and opens no foreign document. Same libraries, same bytes: no dates, no random ids.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from daemon.sample_raw import deep_outline, image_bomb, locked, one_page, raw_pdf
from daemon.samples import ACCENTS, GARDEN, HARBOUR, LIGHTHOUSE, SAMPLES

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import pymupdf
from PIL import Image

#: A letter page, in points.
WIDTH_PT, HEIGHT_PT = 612, 792
SCAN_DPI = 150

#: Two paragraphs, wrapped as they are printed.
LETTER = (
    f"{LIGHTHOUSE}, and wrote the number",
    "in a book that nobody had ever asked to see. The eighth ship came after noon.",
    "",
    "On some days there was fog, and then he counted the horns instead. It gave",
    "the same number, he said, as long as one did not count the echoes.",
)
#: One line each of a sheet that is read from its picture.
SHEET = (LIGHTHOUSE, "and wrote the number in a book that nobody", "had ever asked to see.", GARDEN)
TABLE = (
    ("City", "Ships", "Horns"),
    ("Copenhagen", "17", "3"),
    ("Lisbon", "42", "8"),
    ("Valletta", "9", "1"),
)
COLUMNS = (
    (
        "First column",
        GARDEN.split(" that ")[0],
        "that " + GARDEN.split(" that ")[1],
        "and of the stones",
        "that were left over.",
    ),
    ("Second column", "A gate is only a wall", "that has learned to move,", "said the smith,", "and hung it crooked."),
)


def pages_of(*texts: Sequence[str], heading: str = "") -> Any:
    """A PDF with one page per text: an optional heading, then lines in 11 pt."""
    document = pymupdf.open()
    for lines in texts:
        page = document.new_page(width=WIDTH_PT, height=HEIGHT_PT)
        if heading:
            page.insert_text((72, 96), heading, fontname="hebo", fontsize=20)
        page.insert_text((72, 140), list(lines), fontname="helv", fontsize=11, lineheight=1.4)
    return document


def saved(document: Any, **options: Any) -> bytes:
    """The bytes of a PDF, without an id that changes on every run."""
    return bytes(document.tobytes(no_new_id=True, deflate=True, **options))


def picture(lines: Sequence[str], *, width_pt: int = WIDTH_PT, height_pt: int = HEIGHT_PT) -> Image.Image:
    """A page of 16 pt text as grey pixels at `SCAN_DPI`."""
    document = pymupdf.open()
    page = document.new_page(width=width_pt, height=height_pt)
    page.insert_text((54, 80), list(lines), fontname="helv", fontsize=16, lineheight=1.6)
    pixels = page.get_pixmap(dpi=SCAN_DPI, colorspace=pymupdf.csGRAY)
    return Image.frombytes("L", (pixels.width, pixels.height), pixels.samples)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """An image as a file of `kind`."""
    out = BytesIO()
    image.save(out, kind, dpi=(SCAN_DPI, SCAN_DPI), **options)
    return out.getvalue()


def scan(image: Image.Image, *, rotate: int = 0) -> bytes:
    """A PDF whose only page is a picture; `rotate` is the page's own entry, clockwise."""
    document = pymupdf.open()
    page = document.new_page(width=image.width * 72 / SCAN_DPI, height=image.height * 72 / SCAN_DPI)
    page.insert_image(page.rect, stream=encoded(image, "PNG"))
    page.set_rotation(rotate)
    return saved(document)


def table() -> bytes:
    """Text above a table with a line around each cell."""
    document = pages_of(("Counted between the first frost and the last.",), heading="Ships by city")
    page = document[0]
    for row, cells in enumerate(TABLE):
        for column, cell in enumerate(cells):
            left, top = 72 + 150 * column, 180 + 28 * row
            page.draw_rect(pymupdf.Rect(left, top, left + 150, top + 28), width=0.8)
            page.insert_text((left + 8, top + 19), cell, fontname="helv" if row else "hebo", fontsize=11)
    return saved(document)


def two_columns() -> bytes:
    """Two columns side by side below one heading."""
    document = pages_of((), heading="Walls and gates")
    for index, lines in enumerate(COLUMNS):
        for repeat in range(5):
            text = list(lines) if repeat == 0 else list(lines[1:])
            document[0].insert_text(
                (72 + 250 * index, 140 + 90 * repeat), text, fontname="helv", fontsize=11, lineheight=1.4
            )
    return saved(document)


def mixed() -> bytes:
    """A paragraph in letters, and below it a line that is only a picture."""
    document = pages_of((f"{HARBOUR}.", "What follows was cut from a newspaper."), heading="The clock")
    cutting = picture(("Wanted: a patient person", "to wind a large clock"), width_pt=400, height_pt=160)
    document[0].insert_image(pymupdf.Rect(72, 220, 472, 380), stream=encoded(cutting, "PNG"))
    return saved(document)


def text_rotate() -> bytes:
    """Text drawn sideways on a page that /Rotate turns upright."""
    document = pymupdf.open()
    page = document.new_page(width=HEIGHT_PT, height=WIDTH_PT)
    page.insert_text(
        (100, WIDTH_PT - 72),
        [f"{GARDEN},", "and so does the gate, which was hung", "by somebody else."],
        fontname="helv",
        fontsize=12,
        rotate=90,
    )
    page.set_rotation(90)
    return saved(document)


def fax() -> bytes:
    """Three frames of black and white."""
    frames = [picture((f"This is page {n} of three", GARDEN)).convert("1") for n in ("one", "two", "three")]
    return encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:], compression="group4")


MAKERS: dict[str, Callable[[], bytes]] = {
    "letter.pdf": lambda: saved(pages_of(LETTER, heading="A letter from the coast")),
    "accents.pdf": lambda: saved(pages_of((f"{ACCENTS} were spelt as they should be.",), heading="Überschrift")),
    "table.pdf": table,
    "five-pages.pdf": lambda: saved(
        pages_of(*((f"This is page {n} of five.", f"{GARDEN}.") for n in ("one", "two", "three", "four", "five")))
    ),
    "two-columns.pdf": two_columns,
    "mixed.pdf": mixed,
    "scan.pdf": lambda: scan(picture(SHEET)),
    "scan-turned.pdf": lambda: scan(picture(SHEET).transpose(Image.Transpose.ROTATE_90)),
    "scan-rotate.pdf": lambda: scan(picture(SHEET).transpose(Image.Transpose.ROTATE_90), rotate=90),
    "text-rotate.pdf": text_rotate,
    "photo.png": lambda: encoded(picture((GARDEN, "and so does the gate")), "PNG"),
    "photo.jpg": lambda: encoded(picture((HARBOUR, "said the mayor")).convert("RGB"), "JPEG", quality=85),
    "fax.tiff": fax,
    "owner-password.pdf": lambda: locked(HARBOUR, owner=b"owner"),
    "blank.pdf": lambda: saved(pages_of(())),
    "pixel-bomb.pdf": lambda: one_page(GARDEN, side_pt=14_400, size_pt=400),
    "deep-outline.pdf": deep_outline,
    "encrypted.pdf": lambda: locked(HARBOUR, owner=b"owner", user=b"user"),
    "not-a-pdf.pdf": lambda: b"This is a text file. Somebody gave it the wrong name.\n",
    "empty.pdf": lambda: b"",
    "truncated.pdf": lambda: saved(pages_of(LETTER))[:60],
    "no-pages.pdf": lambda: raw_pdf(("<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[]/Count 0>>")),
    "image-bomb.png": image_bomb,
}


def main() -> None:
    """Write every sample into the folder named by the only argument."""
    directory = Path(sys.argv[1])
    for sample in SAMPLES:
        (directory / sample.name).write_bytes(MAKERS[sample.name]())


if __name__ == "__main__":
    main()
