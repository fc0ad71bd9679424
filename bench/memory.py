"""Peak memory of children by the size of a page and by the number of pages: `python -m bench.memory [--json]`.

With `--documents DIR` that of each document of a folder, over a letter page full of text of its kind.

Rules: a peak is the kernel's `ru_maxrss` of one child, in bytes, and of several children the largest; children are
those of the daemon. Documents are made here, byte by byte: a letter page and one of 200 by 200 inches, with a line of
text or with a picture of text, and pages of text in any number. Long documents are converted in slices, as the daemon
does it: each child gets the pages that the ones before it finished, and the last one assembles.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich import box
from rich.console import Console
from rich.table import Table

from bench._isolated import deliver, isolated
from bench._measure import docs, machine, prepared
from bench._pss import SAMPLES, by_workers
from daemon import pack, samples
from daemon.children import ChildJob, Children, Deadlines, KillSwitch
from daemon.clock import SystemClock
from daemon.model import Cause, Conversion, MediaType, PageRecord, Plan
from daemon.sample_raw import HELVETICA, raw_pdf, stream

#: DESIGN's target: a giant page over a letter page.
TARGET_RATIO = 1.15
LETTER_PT, GIANT_PT = (612, 792), (14_400, 14_400)
PAGES = (20, 100, 500)
PAGES_PER_CHILD = 40
#: The parent may grow by 20 MB over so many.
CONVERSIONS = 100
#: A net for a hang; no document of this bench comes near.
_DOCUMENT_S = 3_600.0
_LINES = 40


def pdf(size_pt: tuple[int, int], contents: Sequence[str], *, resources: str, extra: str) -> bytes:
    """Pages of one size, drawn by `contents`; the third object is `extra`, which `resources` names."""
    box_pt = f"/MediaBox[0 0 {size_pt[0]} {size_pt[1]}]"
    page = f"<</Type/Page/Parent 2 0 R{box_pt}/Resources<<{resources}>>/Contents %d 0 R>>"
    pages = [(page % (5 + 2 * number), stream(content)) for number, content in enumerate(contents)]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    catalog = ("<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>", extra)
    return raw_pdf((*catalog, *(part for pair in pages for part in pair)))


def text_page(size_pt: tuple[int, int]) -> bytes:
    """One line of text, as large as its page."""
    size = size_pt[0] // 40
    content = f"BT/F {size} Tf {size_pt[0] // 20} {size_pt[1] // 2} Td({samples.GARDEN})Tj ET"
    return pdf(size_pt, [content], resources="/Font<</F 3 0 R>>", extra=HELVETICA)


def picture_page(size_pt: tuple[int, int], jpeg: bytes) -> bytes:
    """A picture that fills its page."""
    width, height = Image.open(io.BytesIO(jpeg), formats=["JPEG"]).size
    head = f"<</Type/XObject/Subtype/Image/Width {width}/Height {height}/BitsPerComponent 8/ColorSpace/DeviceRGB"
    image = f"{head}/Filter/DCTDecode/Length {len(jpeg)}>>stream\n{jpeg.decode('latin-1')}\nendstream "
    content = f"q {size_pt[0]} 0 0 {size_pt[1]} 0 0 cm/I Do Q"
    return pdf(size_pt, [content], resources="/XObject<</I 3 0 R>>", extra=image)


def small_print() -> bytes:
    """A JPEG of a letter page at 200 dpi, full of text: its lines are so low that they are searched twice."""
    sheet = Image.new("RGB", (1_700, 2_200), "white")
    font = ImageFont.load_default(20)
    for line in range(1, 81):
        text = f"Line {line}: {samples.LIGHTHOUSE}, and once more {samples.LIGHTHOUSE}."
        ImageDraw.Draw(sheet).text((120, 96 + 24 * line), text, fill="black", font=font)
    jpeg = io.BytesIO()
    sheet.save(jpeg, "JPEG", quality=85)
    return jpeg.getvalue()


def long_document(pages: int) -> bytes:
    """So many letter pages of text, each line another one."""
    contents = []
    for page in range(1, pages + 1):
        lines = "".join(
            f"(Line {line} of page {page}: {samples.LIGHTHOUSE}.)Tj 0 -16 Td" for line in range(1, _LINES + 1)
        )
        contents.append(f"BT/F 11 Tf 60 720 Td{lines} ET")
    return pdf(LETTER_PT, contents, resources="/Font<</F 3 0 R>>", extra=HELVETICA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """The children that a document took."""

    #: Bytes at the peak of each, in order; the last one assembled it, unless the document failed.
    peaks_bytes: tuple[int, ...]
    cause: Cause
    conversion: Conversion | None

    @property
    def kind(self) -> str:
        """`image` when a page of it was read by OCR, else `text`: which letter page it is measured by."""
        pages = () if self.conversion is None else self.conversion.pages
        return "image" if any("ocr=" in page.engine for page in pages) else "text"


def lives(children: Children, data: bytes, *, pages_per_child: int) -> Lives:
    """Convert one PDF, slice by slice. A document that fails has no conversion; nothing is tried twice."""
    clock = SystemClock()
    found: list[int] = []
    with tempfile.TemporaryFile() as document, tempfile.TemporaryFile() as kept:
        document.write(data)
        document.flush()

        def keep(record: PageRecord, _: int) -> None:
            kept.write(pack.header(record.page, record.blob) + record.blob)
            kept.flush()

        plan = Plan(most_pages=pages_per_child)
        while True:
            document.seek(0)
            job = ChildJob(document_id="bench", attempt=1, child=len(found) + 1, plan=plan, media_type=MediaType.PDF)
            deadlines = Deadlines(started=clock.monotonic(), base_s=_DOCUMENT_S, per_page_s=0.0, longest_s=_DOCUMENT_S)
            result = children.run(job, document, finished=kept, deadlines=deadlines, switch=KillSwitch(), on_page=keep)
            found.append(result.outcome.peak_rss_bytes)
            if result.outcome.cause is not Cause.SLICED:
                return Lives(peaks_bytes=tuple(found), cause=result.outcome.cause, conversion=result.conversion)


def peaks(children: Children, data: bytes, *, pages_per_child: int) -> list[int]:
    """Bytes at the peak of each child that a document of our own takes, in order."""
    lived = lives(children, data, pages_per_child=pages_per_child)
    assert lived.conversion is not None, f"a document of our own converts: {lived.cause}"
    return list(lived.peaks_bytes)


def by_document(
    children: Children, folder: Path, letter_bytes: Mapping[str, int], console: Console
) -> dict[str, dict[str, object]]:
    """Each PDF of `folder` by name: its largest peak, and that over the letter page of its kind."""
    found: dict[str, dict[str, object]] = {}
    for path in sorted(folder.glob("*.pdf")):
        console.print(path.name, style="dim")
        lived = lives(children, path.read_bytes(), pages_per_child=PAGES_PER_CHILD)
        peak = max(lived.peaks_bytes)
        found[path.name] = {
            "cause": lived.cause,
            "kind": lived.kind,
            "pages": 0 if lived.conversion is None else len(lived.conversion.pages),
            "peak_bytes": peak,
            "over_letter": round(peak / letter_bytes[lived.kind], 3),
        }
    return found


def parent_growth(folder: Path, documents: int) -> int:
    """Bytes by which the parent (this process) is larger after `documents` more conversions by a daemon.

    The first batch is not counted: what is imported and allocated once is not a leak.
    """
    letter = (folder / "letter.pdf").read_bytes()
    batches = []
    for name, size in (("before", 10), ("counted", documents)):
        batch = folder / name
        batch.mkdir()
        for number in range(size):
            (batch / f"{number}.pdf").write_bytes(letter)
        batches.append(docs(sorted(batch.iterdir())))
    deliver(batches[0], start="zygote", workers=2)
    before = resident_bytes()
    deliver(batches[1], start="zygote", workers=2)
    return resident_bytes() - before


def resident_bytes() -> int:
    """Of this process, now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(counts: Sequence[int], documents: Path | None, console: Console) -> dict[str, object]:
    """All figures, as JSON values."""
    with tempfile.TemporaryDirectory(prefix="bench-samples-") as folder, isolated("zygote") as children:
        samples.write(Path(folder))
        jpeg = (Path(folder) / "photo.jpg").read_bytes()
        by_size: dict[str, dict[str, int]] = {"text": {}, "image": {}, "small_print": {}}
        for name, size in (("letter", LETTER_PT), ("giant", GIANT_PT)):
            pictures = (("image", picture_page(size, jpeg)), ("small_print", picture_page(size, small_print())))
            for kind, data in (("text", text_page(size)), *pictures):
                console.print(f"{kind} on a {name} page", style="dim")
                by_size[kind][name] = max(peaks(children, data, pages_per_child=PAGES_PER_CHILD))
        # Documents are full of text: so is the page that they are held against.
        letter_bytes = {
            "text": max(peaks(children, long_document(1), pages_per_child=PAGES_PER_CHILD)),
            "image": by_size["small_print"]["letter"],
        }
        by_name = {} if documents is None else by_document(children, documents, letter_bytes, console)
        by_count: dict[str, list[int]] = {}
        for count in counts:
            console.print(f"{count} pages", style="dim")
            by_count[str(count)] = peaks(children, long_document(count), pages_per_child=PAGES_PER_CHILD)
        console.print(f"{CONVERSIONS} conversions in a row", style="dim")
        growth = parent_growth(Path(folder), CONVERSIONS)
    return {
        "pages_per_child": PAGES_PER_CHILD,
        "peak_by_page_size_bytes": by_size,
        "peak_ratio_by_page_size": {kind: round(peak["giant"] / peak["letter"], 3) for kind, peak in by_size.items()},
        "full_letter_bytes": letter_bytes,
        "peak_by_document": by_name,
        "peak_by_page_count_bytes": {count: max(found) for count, found in by_count.items()},
        "parent_growth_bytes": growth,
        "conversions_in_a_row": CONVERSIONS,
        "peak_of_last_child_bytes": {count: found[-1] for count, found in by_count.items()},
    }


def table(figures: dict[str, object]) -> Table:
    """For a terminal: each figure as it is in the JSON."""
    shown = Table(title=f"Peak memory of a child (target: ratio at most {TARGET_RATIO})", box=box.SIMPLE)
    shown.add_column("figure")
    shown.add_column("value")
    for name, value in figures.items():
        if name == "peak_by_document":
            assert isinstance(value, dict), "documents by name"
            for document, found in value.items():
                shown.add_row(document, json.dumps(found))
        else:
            shown.add_row(name, json.dumps(value))
    return shown


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--pages", type=int, nargs="+", default=list(PAGES), help="numbers of pages")
    parser.add_argument("--documents", type=Path, help="a folder of PDFs, each to be measured beside a letter page")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="numbers of workers; none: skip it")
    options = parser.parse_args(argv)
    with prepared() as load:
        figures = measure(options.pages, options.documents, Console(stderr=True))
        if options.workers:
            figures |= by_workers(long_document(SAMPLES + 3), options.workers)
    if options.json:
        print(json.dumps({"bench": "memory", **machine(load), **figures}))
    else:
        Console().print(table(figures))


if __name__ == "__main__":
    main()
