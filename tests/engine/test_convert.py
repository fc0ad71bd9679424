"""What the engine makes of documents: text, account, causes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.model import Cause
from daemon.samples import BAD, GOOD, Sample

if TYPE_CHECKING:
    from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("sample", GOOD, ids=lambda sample: sample.name)
def test_a_good_document_gives_its_text_and_accounts_for_every_page(
    worker: Worker, samples: Path, sample: Sample
) -> None:
    """Born digital, scanned, on its side, framed or blank: the promised text comes out, and no page is lost."""
    result = worker.convert(samples / sample.name)
    assert result.cause is None, result.detail
    assert (sample.text or "") in result.markdown
    assert [page for page, *_ in result.pages] == list(range(1, sample.pages + 1))
    assert not any(state == "failed" for _, state, _, _ in result.pages)


def test_a_rotated_page_keeps_its_paragraphs(worker: Worker, samples: Path) -> None:
    """The layout network must see the page upright: its boxes fit the text, so three lines are one paragraph."""
    markdown = worker.convert(samples / "text-rotate.pdf").artefacts["document.md"].decode()
    assert len(markdown.strip().split("\n\n")) == 1


@pytest.mark.parametrize(
    "sample", [s for s in BAD if s.cause is not Cause.NOT_A_DOCUMENT], ids=lambda sample: sample.name
)
def test_a_bad_document_is_refused_for_its_own_cause(worker: Worker, samples: Path, sample: Sample) -> None:
    """A permanent cause is told apart from every other, so nobody retries an encrypted file."""
    assert worker.convert(samples / sample.name).cause == sample.cause.value


@pytest.mark.parametrize("name", ["table.pdf", "scan.pdf"])
def test_the_same_bytes_give_the_same_bytes(worker: Worker, samples: Path, name: str) -> None:
    """Two runs in two processes are byte for byte the same, so a resumed one can be compared."""
    assert worker.convert(samples / name).artefacts == worker.convert(samples / name).artefacts


def test_without_ocr_no_ocr_code_is_entered(worker: Worker, samples: Path) -> None:
    """The rung below a crash in OCR must not meet the same crash: the text layer comes out, the picture does not."""
    result = worker.convert(samples / "mixed.pdf", plan={"default": "without_ocr"})
    assert result.cause is None
    assert "ocr" not in {stage for stage, _ in result.stages}
    assert result.pages[0][1] == "text"


def test_a_scan_without_ocr_is_empty_and_not_a_success(worker: Worker, samples: Path) -> None:
    """Ink and no text is a failure, never an empty Markdown."""
    result = worker.convert(samples / "scan.pdf", plan={"default": "without_ocr"})
    assert result.cause == "empty"
    assert "OCR was off" in result.detail


def test_stages_are_announced_with_their_page(worker: Worker, samples: Path) -> None:
    """A crash is blamed on the page and stage announced last, so each is announced, in order."""
    stages = worker.convert(samples / "five-pages.pdf").stages
    assert stages[0] == ("open", None)
    assert [s for s in stages if s[0] in {"parse", "layout"}] == [
        (stage, page) for page in range(1, 6) for stage in ("parse", "layout")
    ]
    assert [stage for stage, _ in stages[-3:]] == ["assemble", "export", "preview"]


def test_every_page_is_handed_over_as_soon_as_it_is_finished(worker: Worker, samples: Path) -> None:
    """The parent keeps each page, so nothing of it may be announced afterwards, and the next page not before."""
    result = worker.convert(samples / "five-pages.pdf")
    assert result.opened == 5
    assert [page for stage, page in result.stages if stage == "done"] == [1, 2, 3, 4, 5]
    paged = [(stage, page) for stage, page in result.stages if page is not None and stage != "preview"]
    assert [page for _, page in paged] == sorted(page or 0 for _, page in paged)
    assert all(paged[index + 1][1] != page for index, (stage, page) in enumerate(paged[:-1]) if stage == "done")


def test_a_page_that_runs_out_of_memory_ends_the_child(worker: Worker, samples: Path) -> None:
    """After a refused allocation nothing in the process can be trusted to go on: the parent decides."""
    result = worker.convert(samples / "five-pages.pdf", broken=["memory:3"])
    assert result.cause == "memory"
    assert "page 3" in result.detail


def test_a_preview_that_fails_costs_only_itself(worker: Worker, samples: Path) -> None:
    """Side information is not worth a document."""
    result = worker.convert(samples / "letter.pdf", broken=["preview"])
    assert set(result.artefacts) == {"document.md", "document.json"}
    assert result.warnings == ["no preview: the preview is � down"]


@pytest.mark.parametrize("name", ["letter.pdf", "photo.jpg", "pixel-bomb.pdf"])
def test_the_preview_is_small(worker: Worker, samples: Path, name: str) -> None:
    """At most 300 by 400 px of WebP, whatever the page's size."""
    from PIL import Image  # noqa: PLC0415 - native, and only needed here

    picture = Image.open(io.BytesIO(worker.convert(samples / name).artefacts["preview.webp"]), formats=["WEBP"])
    assert picture.width <= 300
    assert picture.height <= 400
    assert max(picture.width / 300, picture.height / 400) > 0.95


def test_a_giant_page_needs_no_more_memory_than_a_letter(worker: Worker, samples: Path) -> None:
    """200 by 200 inches took 4 GB where every page was rendered at a fixed resolution."""
    letter, giant = (worker.convert(samples / name).peak_rss_kib for name in ("letter.pdf", "pixel-bomb.pdf"))
    assert giant <= 1.15 * letter


def test_the_json_holds_the_whole_document(worker: Worker, samples: Path) -> None:
    """Docling's own schema, the table's cells in their places."""
    document = json.loads(worker.convert(samples / "table.pdf").artefacts["document.json"])
    assert document["schema_name"] == "DoclingDocument"
    assert document["pages"]["1"]["size"]["width"] > 0
    assert "Copenhagen" in {cell["text"] for cell in document["tables"][0]["data"]["table_cells"]}


def test_a_fork_of_the_warm_process_ends_with_one_thread(worker: Worker, samples: Path) -> None:
    """No stage has a thread, so a child is as easy to lock and to fork from as its parent."""
    assert worker.hello["threads"] == ["python"] or len(worker.hello["threads"]) == 1
    assert worker.convert(samples / "mixed.pdf").threads == 1
