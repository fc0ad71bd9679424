"""What `bench.throughput` gives to each way: sets of documents, and the killers that are mixed in.

Rules: a set is the same documents in the same order for every way. One of a hundred documents is a killer: its process
dies by SIGSEGV when it comes to the page that the file's name says, each time, whoever runs it. Of a corpus only short
documents are taken, so that a round of all sets stays below a quarter of an hour; what was taken is in the report.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench._measure import Doc, docs, kills_at
from bench.memory import long_document
from daemon import samples

#: Copied to fill the set with documents of one page.
ONE_PAGERS = ("letter.pdf", "accents.pdf", "table.pdf", "two-columns.pdf", "text-rotate.pdf", "owner-password.pdf")
#: One of a hundred kills its process; one at least.
KILLER_SHARE = 0.01
#: The long document's page that kills.
_LONG_KILLS_AT = 50
#: The most pages of a document of a corpus: longer ones take minutes in each of a dozen ways.
_BORN_DIGITAL_PAGES, _SCANNED_PAGES = 5, 1
#: Seconds of OCR each; newspaper.pdf alone takes a minute.
_SCANS, _TOO_SLOW = 8, frozenset({"newspaper.pdf"})


class Set(StrEnum):
    """A kind of work."""

    #: Born digital, one page each: what isolation weighs most on.
    ONE_PAGERS = "one-pagers"
    #: Folder `a` of a corpus.
    BORN_DIGITAL = "born-digital"
    #: Folder `b` of a corpus: most of the time is OCR.
    SCANNED = "scanned"
    #: One document of many pages: its slices follow each other, so a second worker has nothing to do.
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What each method converts."""

    name: Set
    good: Sequence[Doc]
    killers: Sequence[Doc]

    @property
    def mixed(self) -> list[Doc]:
        """The good ones with the killers spread evenly among them; of a single document, its killing copy alone."""
        if len(self.good) == 1:
            return list(self.killers)
        mixed = list(self.good)
        step = len(mixed) // (len(self.killers) + 1)
        for number, killer in enumerate(self.killers, start=1):
            mixed.insert(number * step, killer)
        return mixed

    @property
    def busy(self) -> int:
        """How many of two workers have anything to do: what a ratio is taken over."""
        return min(2, len(self.good))


def failpoints(killers: Sequence[Doc]) -> str:
    """The same for a daemon: the name is the first part of a document's id."""
    pages = sorted({page for killer in killers if (page := kills_at(killer.name)) is not None})
    return ";".join(f"child.page@doc=killer-{page}-*,page={page}=segv" for page in pages)


def one_pagers(folder: Path, count: int) -> Batch:
    """`count` copies of our own samples of one page, made in `folder`."""
    made = folder / "samples"
    samples.write(made)
    names = [ONE_PAGERS[number % len(ONE_PAGERS)] for number in range(count)]
    good = [Path(shutil.copy(made / name, folder / f"{number:03}-{name}")) for number, name in enumerate(names)]
    return _batch(Set.ONE_PAGERS, docs(good), folder, of=made / "letter.pdf")


def from_corpus(name: Set, corpus: Path, folder: Path) -> Batch:
    """The short documents of the corpus's own folder for this set; the killers are made in `folder`."""
    part, most_pages = {Set.BORN_DIGITAL: ("a", _BORN_DIGITAL_PAGES), Set.SCANNED: ("b", _SCANNED_PAGES)}[name]
    pages = _pages(corpus)
    known = [path for path in sorted((corpus / part).iterdir()) if path.is_file() and path.name not in _TOO_SLOW]
    short = docs([path for path in known if pages.get(f"{part}/{path.name}", 1) <= most_pages])
    chosen = short if name is Set.BORN_DIGITAL else short[:_SCANS]
    return _batch(name, chosen, folder, of=chosen[0].path)


def long(folder: Path, pages: int) -> Batch:
    """One document of so many pages, made in `folder`."""
    path = folder / f"long-{pages}.pdf"
    path.write_bytes(long_document(pages))
    return _batch(Set.LONG, docs([path]), folder, of=path, page=min(_LONG_KILLS_AT, pages))


def _batch(name: Set, good: Sequence[Doc], folder: Path, *, of: Path, page: int = 1) -> Batch:
    """`good`, and copies of `of` that kill at `page`."""
    killers = [
        Path(shutil.copy(of, folder / f"killer-{page}-{name}-{number}{of.suffix}"))
        for number in range(max(1, round(len(good) * KILLER_SHARE)))
    ]
    return Batch(name=name, good=good, killers=docs(killers))


def _pages(corpus: Path) -> dict[str, int]:
    """Pages by file, as the corpus's manifest says; a corpus without one is taken as it is."""
    manifest = corpus / "manifest.tsv"
    if not manifest.exists():
        return {}
    with manifest.open(encoding="utf-8", newline="") as file:
        return {
            row["file"]: int(row["pages"]) for row in csv.DictReader(file, delimiter="\t") if row["pages"].isdigit()
        }
