"""How little of the engine a page may use, what is tried when a library raises, and what the reader is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon.samples import GARDEN, LIGHTHOUSE

if TYPE_CHECKING:
    from tests.engine.conftest import Result, Worker

pytestmark = pytest.mark.engine


def text_items(result: Result, page: int) -> list[dict[str, Any]]:
    """The texts that the JSON has on a page."""
    document = json.loads(result.artefacts["document.json"])
    return [item for item in document["texts"] if item["prov"] and item["prov"][0]["page_no"] == page]


def test_each_page_is_read_in_its_own_mode_and_says_so(worker: Worker, samples: Path) -> None:
    """Five modes in one document: four texts, one visible gap, and an account that tells them apart."""
    modes = {1: "reduced", 2: "without_ocr", 3: "text_only", 4: "second_parser", 5: "gap"}
    result = worker.convert(samples / "five-pages.pdf", plan={"modes": modes})
    accounts = {page: (state, engine, reason) for page, state, engine, reason in result.pages}
    assert {page: state for page, (state, _, _) in accounts.items()} == dict.fromkeys(range(1, 5), "degraded") | {
        5: "failed"
    }
    assert accounts[1][2] == "rendered at a quarter of the pixel budget"
    assert accounts[2][2] == "read without OCR"
    assert accounts[3][1:] == ("text=mupdf", "text layer only, in its own order")
    assert accounts[4][1:] == ("text=pypdfium2", "text layer only, by the second parser")
    assert accounts[5][1:] == ("", "lost: it ended every child that opened it")
    places = [result.markdown.index(f"This is page {word} of five") for word in ("one", "two", "three", "four")]
    assert [*places, result.markdown.index("[page 5 could not be converted: lost")] == sorted(
        [*places, result.markdown.index("[page 5 could not be converted: lost")]
    )
    assert text_items(result, 5)[0]["text"].startswith("[page 5 could not be converted")
    sizes = {page["size"]["width"] for page in json.loads(result.artefacts["document.json"])["pages"].values()}
    assert sizes == {612.0}


def test_a_lost_first_page_has_no_preview(worker: Worker, samples: Path) -> None:
    """Whoever may not read a page may not render it either."""
    result = worker.convert(samples / "five-pages.pdf", plan={"modes": {1: "gap"}})
    assert "preview.webp" not in result.artefacts
    assert ("preview", 1) not in result.stages
    assert result.warnings == ["no preview: the first page may not be rendered"]


def test_the_plan_can_leave_the_preview_out(worker: Worker, samples: Path) -> None:
    """A picture that ended its child is not made again."""
    result = worker.convert(samples / "letter.pdf", plan={"preview": False})
    assert set(result.artefacts) == {"document.md", "document.json"}
    assert len(result.warnings) == 1


@pytest.mark.parametrize(
    ("name", "text"), [("letter.pdf", LIGHTHOUSE), ("text-rotate.pdf", GARDEN), ("owner-password.pdf", "harbour clock")]
)
def test_a_document_that_mupdf_cannot_open_is_read_by_the_second_parser(
    worker: Worker, samples: Path, name: str, text: str
) -> None:
    """With the second parser as the default the first one is not even imported into the story: it would raise."""
    result = worker.convert(samples / name, plan={"default": "second_parser"}, broken=["mupdf"])
    assert result.cause is None, result.detail
    assert text in result.markdown
    page = json.loads(result.artefacts["document.json"])["pages"]["1"]["size"]
    for item in text_items(result, 1):
        box = item["prov"][0]["bbox"]
        assert 0 <= box["l"] < box["r"] <= page["width"]
        assert 0 <= box["b"] < box["t"] <= page["height"]


@pytest.mark.parametrize("name", ["encrypted.pdf", "no-pages.pdf", "truncated.pdf"])
def test_the_second_parser_refuses_for_the_same_cause(worker: Worker, samples: Path, name: str) -> None:
    """A rung lower, a locked document is still locked."""
    expected = worker.convert(samples / name).cause
    assert worker.convert(samples / name, plan={"default": "second_parser"}).cause == expected


@pytest.mark.parametrize(
    ("broken", "state", "engine"),
    [
        (["layout:2"], "degraded", "text=mupdf"),
        (["layout:2", "text:2"], "degraded", "text=pypdfium2"),
        (["layout:2", "text:2", "pdfium:2"], "failed", ""),
    ],
    ids=["text layer", "second parser", "nothing"],
)
def test_a_page_that_raises_is_tried_with_less_in_the_same_child(
    worker: Worker, samples: Path, broken: list[str], state: str, engine: str
) -> None:
    """An exception costs no child: the text layer, the other parser, and then a mark between page 1 and page 3."""
    result = worker.convert(samples / "five-pages.pdf", broken=broken)
    assert [account[1] for account in result.pages] == ["text", state, "text", "text", "text"]
    assert result.pages[1][2] == engine
    assert "the layout is � down" in result.pages[1][3] or state == "failed"
    second = "page 2 could not be converted" if state == "failed" else "This is page two of five"
    first, middle, third = (result.markdown.index(t) for t in ("page one of", second, "page three of"))
    assert first < middle < third
    assert result.stages.count(("parse", 2)) == len(broken) + (state != "failed")
    result.artefacts["document.json"].decode()


def test_a_document_of_which_no_page_converts_is_malformed(worker: Worker, samples: Path) -> None:
    """Five marks and no text are no success."""
    result = worker.convert(samples / "five-pages.pdf", broken=["layout:all", "text:all", "pdfium:all"])
    assert result.cause == "malformed"
    assert "none of 5 pages" in result.detail


def test_a_document_of_gaps_only_is_no_success(worker: Worker, samples: Path) -> None:
    """The ladder's end is not a page of marks."""
    result = worker.convert(samples / "letter.pdf", plan={"modes": {1: "gap"}})
    assert result.cause == "engine_error"


@pytest.mark.parametrize("mode", ["text_only", "second_parser"])
def test_a_picture_has_no_text_layer(worker: Worker, samples: Path, mode: str) -> None:
    """A frame that may not be read in full fails by itself; its neighbours are read."""
    result = worker.convert(samples / "fax.tiff", plan={"modes": {2: mode}})
    assert [account[1] for account in result.pages] == ["ocr", "failed", "ocr"]
    assert "no text layer" in result.pages[1][3]


def test_text_without_a_text_layer_is_empty_and_not_blank(worker: Worker, samples: Path) -> None:
    """Nobody looked for ink, so nobody may say that there is none."""
    assert worker.convert(samples / "scan.pdf", plan={"default": "second_parser"}).cause == "empty"
