"""What `bench.throughput` gives to each way: copies of real documents, their order, and the killers among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import _batches, _ways, throughput
from bench._batches import Batch, Set
from bench._measure import Doc, kills_at
from daemon.convert_inputs import describe
from daemon.failpoints import Action, Point, parse
from daemon.model import MediaType, Options


def documents(count: int) -> list[Doc]:
    """Names only."""
    return [Doc(path=Path(f"{number}.pdf"), media_type=MediaType.PDF) for number in range(count)]


def killers(*names: str) -> list[Doc]:
    """Names only."""
    return [Doc(path=Path(name), media_type=MediaType.PDF) for name in names]


def test_killers_are_spread_among_the_good_ones() -> None:
    """A killer at the end would meet an idle second worker, one at the start a cold one."""
    two = killers("killer-1-a.pdf", "killer-1-b.pdf")
    mixed = Batch(name=Set.ONE_PAGERS, good=documents(9), killers=two, distinct=[]).mixed
    assert len(mixed) == 11
    assert [number for number, doc in enumerate(mixed) if doc in two] == [3, 6]


def test_a_killer_kills_in_every_way_at_the_same_page(tmp_path: Path) -> None:
    """Our child dies at its failpoint, a loop where its file's name says: both at that page, and only there."""
    at_50 = killers("killer-50-long-0.pdf")
    (point,) = parse(_batches.failpoints(at_50))
    assert kills_at("killer-50-long-0.pdf") == 50
    assert kills_at("letter.pdf") is None
    (tmp_path / "killer-50-long-0.pdf").write_bytes(b"%PDF-1.7")
    ours = describe(tmp_path / "killer-50-long-0.pdf", Options()).id
    assert point.action is Action.SEGV
    assert point.matches(Point.CHILD_PAGE, page=50, doc=ours)
    assert not point.matches(Point.CHILD_PAGE, page=49, doc=ours)
    assert not point.matches(Point.CHILD_PAGE, page=50, doc="long-100.pdf-0123")


def test_long_documents_of_a_corpus_are_left_out(tmp_path: Path) -> None:
    """A round of all sets must end; the corpus's own manifest says how many pages there are."""
    (tmp_path / "a").mkdir()
    for name in ("short.pdf", "long.pdf", "unlisted.pdf"):
        (tmp_path / "a" / name).write_bytes(b"%PDF-1.7")
    (tmp_path / "manifest.tsv").write_text("file\tpages\na/short.pdf\t5\na/long.pdf\t6\n", encoding="utf-8")
    (tmp_path / "made").mkdir()
    batch = _batches.from_corpus(Set.BORN_DIGITAL, tmp_path, tmp_path / "made", repeat=1)
    assert batch.distinct == ["short.pdf", "unlisted.pdf"]
    assert [doc.path.parent for doc in batch.killers] == [tmp_path / "made"]


def test_a_set_without_its_corpus_is_refused(tmp_path: Path) -> None:
    """Rather than measured on something else."""
    with pytest.raises(SystemExit, match="scanned"):
        throughput.batches([Set.SCANNED], tmp_path, count=1, pages=1, corpus=None, repeat=1)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Four short documents, whose names, pages and bytes are in three different orders; nothing is left out."""
    (tmp_path / "a").mkdir()
    for name, padding in {"a.pdf": 3, "b.pdf": 1, "c.pdf": 2, "d.pdf": 4}.items():
        (tmp_path / "a" / name).write_bytes(b"%PDF-1.7" + b" " * padding)
    pages = "a/a.pdf\t1\na/b.pdf\t5\na/c.pdf\t1\na/d.pdf\t1\n"
    (tmp_path / "manifest.tsv").write_text(f"file\tpages\n{pages}", encoding="utf-8")
    (tmp_path / "made").mkdir()
    return tmp_path


def test_every_pass_begins_with_the_largest(corpus: Path) -> None:
    """A large document at the very end would be converted beside an idle worker, in every way that has two."""
    batch = _batches.from_corpus(Set.BORN_DIGITAL, corpus, corpus / "made", repeat=3)
    assert batch.distinct == ["b.pdf", "d.pdf", "a.pdf", "c.pdf"]
    assert [doc.name.partition("-")[2] for doc in batch.good] == [*batch.distinct] * 3


def test_each_copy_is_a_document_of_its_own(corpus: Path) -> None:
    """A second message about the same document would find its result, and nothing would be converted."""
    batch = _batches.from_corpus(Set.BORN_DIGITAL, corpus, corpus / "made", repeat=3)
    assert len({describe(doc.path, Options()).id for doc in batch.good}) == 12
    assert len({doc.path.read_bytes() for doc in batch.good}) == 4


@pytest.mark.parametrize(("repeat", "killers"), [(1, 1), (25, 1), (75, 3)])
def test_one_of_a_hundred_copies_kills(corpus: Path, repeat: int, killers: int) -> None:
    """And one at least: the share of killers is that of the documents that are converted, not of the distinct ones."""
    assert len(_batches.from_corpus(Set.BORN_DIGITAL, corpus, corpus / "made", repeat=repeat).killers) == killers


@pytest.mark.parametrize(
    ("distinct", "repeat", "expected"),
    [(3, 1, [0, 1, 2]), (6, 2, [0, 1, 2, 3, 4, 5, 0, 1]), (8, 4, range(8)), (16, 2, range(0, 16, 2))],
)
def test_no_copy_is_spawned_while_there_are_other_documents(
    distinct: int, repeat: int, expected: Sequence[int]
) -> None:
    """Eight copies of two documents would be the rate of these two."""
    names = documents(distinct)
    batch = Batch(name=Set.SCANNED, good=names * repeat, killers=[], distinct=[doc.name for doc in names])
    assert [int(doc.path.stem) for doc in _ways.spawned(batch)] == list(expected)


def test_every_way_is_given_the_copies_that_were_asked_for(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line to the batch."""
    given: list[Batch] = []

    def measure(batches: Sequence[Batch], *_: object, **__: object) -> list[throughput.Runs]:
        given.extend(batches)
        return []

    monkeypatch.setattr(throughput, "measure", measure)
    throughput.main(["--corpus", str(corpus), "--set", "born-digital", "--repeat", "5"])
    assert [(len(batch.good), len(batch.distinct)) for batch in given] == [(20, 4)]


def test_a_set_of_nothing_is_refused(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before an engine is loaded for it."""
    with pytest.raises(SystemExit, match="2"):
        throughput.main(["--corpus", str(corpus), "--repeat", "0"])
    assert "--repeat 1" in capsys.readouterr().err
