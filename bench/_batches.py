"""What `bench.throughput` gives to each way: sets of documents, and the killers that are mixed in.

Rules: a set is the same documents in the same order for every way. One of a hundred documents is a killer: its process
dies by SIGSEGV when it comes to the page that the file's name says, each time, whoever runs it. Of a corpus only short
documents are taken, several times each: a set that ends after seconds tells how well its last document was placed. What
was taken is in the report.
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
    #: In passes over the distinct documents, the last pass perhaps cut short.
    good: Sequence[Doc]
    killers: Sequence[Doc]
    #: File names of the documents that `good` repeats, in its order.
    distinct: Sequence[str]

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
    good = _copies([made / name for name in names], folder)
    return _batch(Set.ONE_PAGERS, good, folder, of=made / "letter.pdf", distinct=list(dict.fromkeys(names)))


def from_corpus(name: Set, corpus: Path, folder: Path, *, repeat: int) -> Batch:
    """The short documents of the corpus's own folder for this set, `repeat` copies of each and the killers in `folder`.

    Each pass begins with the largest, by pages, then bytes: no way ends with a worker idle beside a large document, and
    copies of one document are as far apart as can be.
    """
    part, most_pages = {Set.BORN_DIGITAL: ("a", _BORN_DIGITAL_PAGES), Set.SCANNED: ("b", _SCANNED_PAGES)}[name]
    pages = _pages(corpus)
    known = [path for path in sorted((corpus / part).iterdir()) if path.is_file() and path.name not in _TOO_SLOW]
    short = docs([path for path in known if pages.get(f"{part}/{path.name}", 1) <= most_pages])
    chosen = short if name is Set.BORN_DIGITAL else short[:_SCANS]

    def size(doc: Doc) -> tuple[int, int]:
        return pages.get(f"{part}/{doc.name}", 1), doc.path.stat().st_size

    each = sorted(chosen, key=size, reverse=True)
    good = _copies([doc.path for doc in each] * repeat, folder)
    return _batch(name, good, folder, of=chosen[0].path, distinct=[doc.name for doc in each])


def long(folder: Path, pages: int) -> Batch:
    """One document of so many pages, made in `folder`."""
    path = folder / f"long-{pages}.pdf"
    path.write_bytes(long_document(pages))
    good, kills_at_page = docs([path]), min(_LONG_KILLS_AT, pages)
    return _batch(Set.LONG, good, folder, of=path, distinct=[path.name], page=kills_at_page)


def _copies(paths: Sequence[Path], folder: Path) -> list[Doc]:
    """One of each path, in `folder`, under a name of its own: a second message about a file would convert nothing."""
    return docs([Path(shutil.copy(path, folder / f"{number:03}-{path.name}")) for number, path in enumerate(paths)])


def _batch(name: Set, good: Sequence[Doc], folder: Path, *, of: Path, distinct: Sequence[str], page: int = 1) -> Batch:
    """`good`, and copies of `of` that kill at `page`."""
    killers = [
        Path(shutil.copy(of, folder / f"killer-{page}-{name}-{number}{of.suffix}"))
        for number in range(max(1, round(len(good) * KILLER_SHARE)))
    ]
    return Batch(name=name, good=good, killers=docs(killers), distinct=distinct)


def _pages(corpus: Path) -> dict[str, int]:
    """Pages by file, as the corpus's manifest says; a corpus without one is taken as it is."""
    manifest = corpus / "manifest.tsv"
    if not manifest.exists():
        return {}
    with manifest.open(encoding="utf-8", newline="") as file:
        return {
            row["file"]: int(row["pages"]) for row in csv.DictReader(file, delimiter="\t") if row["pages"].isdigit()
        }
