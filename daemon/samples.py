"""The sample documents: what each is, and what must become of it.

Shell. Data, and one call that has another process make the files (`sample_files.py` imports native code,
this module must not: the demo's parent imports it). `python -m daemon.samples DIR` writes them. They are made
from text of our own, the same bytes on every run of the same libraries.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from daemon.model import Cause, ResultStatus

#: Making all of them takes a second or two; this is a net for a hang.
WRITE_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One file and its promise."""

    #: File name.
    name: str
    #: For a table that a person reads.
    what: str
    #: Words, spelt with single spaces, that the Markdown must hold in this order; None: no text is promised.
    text: str | None = None
    status: ResultStatus = ResultStatus.CONVERTED
    cause: Cause = Cause.CONVERTED
    #: Pages of the result; 0 for a document that fails.
    pages: int = 1


def _bad(name: str, what: str, cause: Cause) -> Sample:
    """A document that must end in the dead-letter queue, for this cause."""
    return Sample(name=name, what=what, status=ResultStatus.FAILED, cause=cause, pages=0)


LIGHTHOUSE = "The lighthouse keeper counted seven ships before breakfast"
GARDEN = "Every garden wall remembers the hands that built it"
HARBOUR = "The harbour clock was never wrong and never repaired"
#: Latin-1 beyond ASCII, as the built-in fonts have it.
ACCENTS = "Größe, café, naïve, Ærø, ¿qué?"

GOOD: tuple[Sample, ...] = (
    Sample(name="letter.pdf", what="born digital: headings and two paragraphs", text=LIGHTHOUSE),
    Sample(name="accents.pdf", what="letters beyond ASCII", text="Größe, café, naïve"),
    Sample(name="table.pdf", what="a ruled table", text="Copenhagen"),
    Sample(name="five-pages.pdf", what="five pages", text="This is page five of five", pages=5),
    Sample(name="two-columns.pdf", what="two columns, read one after the other", text=GARDEN),
    Sample(name="mixed.pdf", what="text, and a picture of text", text=HARBOUR),
    Sample(name="scan.pdf", what="a picture of a page, 150 dpi", text=LIGHTHOUSE),
    Sample(name="scan-turned.pdf", what="a scan that lies on its side", text=LIGHTHOUSE),
    Sample(name="scan-rotate.pdf", what="a scan set upright by /Rotate 90", text=LIGHTHOUSE),
    Sample(name="text-rotate.pdf", what="text set upright by /Rotate 90", text=GARDEN),
    Sample(name="photo.png", what="an image document", text=GARDEN),
    Sample(name="photo.jpg", what="an image document, lossy", text=HARBOUR),
    Sample(name="fax.tiff", what="three frames, three pages", text="This is page three of three", pages=3),
    Sample(name="owner-password.pdf", what="may be read, must not be changed", text=HARBOUR),
    Sample(name="blank.pdf", what="a page without ink"),
    Sample(name="pixel-bomb.pdf", what="under 1 KB, 200 in by 200 in", text=GARDEN),
    Sample(name="deep-outline.pdf", what="2,000 bookmarks, each inside the last", text=LIGHTHOUSE),
)

BAD: tuple[Sample, ...] = (
    _bad("encrypted.pdf", "needs a password", Cause.ENCRYPTED),
    _bad("not-a-pdf.pdf", "plain text by another name", Cause.NOT_A_DOCUMENT),
    _bad("empty.pdf", "no bytes", Cause.NOT_A_DOCUMENT),
    _bad("truncated.pdf", "cut off before its first page", Cause.MALFORMED),
    _bad("no-pages.pdf", "a valid PDF of nothing", Cause.NO_PAGES),
    _bad("image-bomb.png", "50 KB, 400 million pixels of one colour", Cause.TOO_LARGE),
)

SAMPLES: tuple[Sample, ...] = GOOD + BAD


def write(directory: Path) -> tuple[Path, ...]:
    """Have a process of its own write all samples into `directory`, made if need be; paths in order of `SAMPLES`.

    Raises CalledProcessError or TimeoutExpired, with what that process said on stderr, when it fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(  # noqa: S603  (our own module, by this interpreter)
        [sys.executable, "-m", "daemon.sample_files", str(directory)],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None,
        timeout=WRITE_TIMEOUT_S,
    )
    return tuple(directory / sample.name for sample in SAMPLES)


def main() -> None:
    """`python -m daemon.samples DIR`."""
    if len(sys.argv) != 2:  # noqa: PLR2004  (the program and one argument)
        sys.exit("usage: python -m daemon.samples DIR")
    for path in write(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
