"""The engine's pure parts: frames of a TIFF, turned boxes, tables from gaps, text that is worth keeping."""

from __future__ import annotations

import ast
import importlib
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from daemon.engine import runtime
from daemon.errors import DocumentError
from daemon.model import Cause

pytestmark = pytest.mark.engine

#: Calls that make pixels, in MuPDF, pdfium, docling-parse, Pillow and OpenCV.
RENDERS = {
    "get_pixmap",
    "get_displaylist",
    "show_pdf_page",
    "get_svg_image",
    "extract_image",
    "render_page",
    "to_pil",
    "get_bitmap",
    "resize",
    "thumbnail",
    "draft",
    "pyrUp",
    "warpAffine",
}
#: Limits that a rendering function of the budget may be given instead of asking for a scale.
BOUNDS = {"limit_px", "edge_px", "PREVIEW_SIZE_PX"}


@pytest.fixture(scope="session")
def engine() -> dict[str, Any]:
    """The engine's modules by name; native code, so imported here and after `prepare`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime.prepare(1)
        names = ("budget", "pages", "regions", "tables", "images", "ocr", "reader", "export", "layout")
        return {name: importlib.import_module(f"daemon.engine.{name}") for name in names}


def box(engine: dict[str, Any], left: float, top: float, right: float, bottom: float) -> Any:
    """A top-left box."""
    return engine["regions"].union([engine["pages"].BoundingBox(l=left, t=top, r=right, b=bottom)])


def tiff(links: Sequence[int]) -> bytes:
    """Little-endian directories without entries, 6 bytes each from offset 8; `links` names each one's successor."""
    offsets = [8 + 6 * number for number in range(len(links))]
    body = b"".join(struct.pack("<HI", 0, offsets[link] if link >= 0 else 0) for link in links)
    return b"II*\x00" + struct.pack("<I", 8) + body


@pytest.mark.parametrize(
    ("links", "limit", "expected"),
    [
        ([1, 2, -1], 10, (3, False)),
        ([1, 2, 0], 10, (3, True)),
        ([0], 10, (1, True)),
        ([1, 2, 3, 4, -1], 2, (2, False)),
    ],
    ids=["three frames", "a loop", "a frame that follows itself", "no further than the limit"],
)
def test_tiff_frames_are_counted_within_bounds(
    engine: dict[str, Any], links: list[int], limit: int, expected: tuple[int, bool]
) -> None:
    """A directory that bites its tail is counted once, and said; a long one is left at the limit."""
    assert engine["images"].count_tiff_frames(tiff(links), limit=limit) == expected


@pytest.mark.parametrize("data", [b"", b"II*\x00", b"II*\x00\xff\xff\xff\x7f", b"GIF89a--"])
def test_a_tiff_whose_directory_is_not_there_has_no_frames(engine: dict[str, Any], data: bytes) -> None:
    """Offsets out of the file end the count and raise nothing."""
    assert engine["images"].count_tiff_frames(data, limit=10) == (0, False)


def test_a_bigtiff_is_counted_too(engine: dict[str, Any]) -> None:
    """Its directories have wider fields."""
    data = b"II" + struct.pack("<HHHQ", 43, 8, 0, 16) + struct.pack("<QQ", 0, 32) + struct.pack("<QQ", 0, 0)
    assert engine["images"].count_tiff_frames(data, limit=10) == (2, False)


@pytest.mark.parametrize("size", [(612.0, 792.0), (14_400.0, 14_400.0), (1e7, 1e7), (1.0, 14_400.0)])
def test_no_page_is_rendered_beyond_the_budget(engine: dict[str, Any], size: tuple[float, float]) -> None:
    """Whatever the paper's size, the area in pixels stays within the setting."""
    budget = engine["budget"].Budget(page_px=4_000_000, image_px=64_000_000, preview_px=800)
    scale = budget.scale(*size, wanted=200 / 72)
    assert 0 < scale <= 200 / 72
    assert size[0] * size[1] * scale**2 <= 4_000_000 * 1.000001


def called(path: Path) -> set[str]:
    """Names of all methods and functions that a module calls."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call))
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


def test_nothing_renders_but_the_budget() -> None:
    """Three copies of the rendering code, one of them fixed, kept a worker crashing for weeks.

    `sample_files.py` makes the samples and opens no document.
    """
    package = Path(__file__).parents[2] / "daemon"
    modules = [path for path in package.rglob("*.py") if path.name != "sample_files.py"]
    rendering = {path.name: called(path) & RENDERS for path in modules}
    assert {name for name, calls in rendering.items() if calls} == {"budget.py"}


def test_every_rendering_asks_the_budget_for_its_scale(engine: dict[str, Any]) -> None:
    """A function that renders computes its size from `scale`, or from a limit that it is given, before it does."""
    tree = ast.parse(Path(engine["budget"].__file__).read_bytes())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    unbounded = set()
    for function in functions:
        names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        bounds = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} & BOUNDS
        if names & RENDERS and "scale" not in names and not bounds:
            unbounded.add(function.name)
    assert not unbounded


@pytest.mark.parametrize("size", [(0.0, 792.0), (float("inf"), 792.0), (float("nan"), 1.0), (-5.0, 10.0)])
def test_a_page_without_a_size_is_malformed(engine: dict[str, Any], size: tuple[float, float]) -> None:
    """Nothing is allocated for it."""
    budget = engine["budget"].Budget(page_px=4_000_000, image_px=64_000_000, preview_px=800)
    with pytest.raises(DocumentError) as error:
        budget.scale(*size, wanted=1.0)
    assert error.value.cause is Cause.MALFORMED


def test_a_frame_beyond_the_budget_is_refused_before_it_is_decoded(engine: dict[str, Any]) -> None:
    """32 KB of PNG can be 268 million pixels."""
    budget = engine["budget"].Budget(page_px=4_000_000, image_px=64_000_000, preview_px=800)
    with pytest.raises(DocumentError) as error:
        budget.check_frame(16_384, 16_384)
    assert error.value.cause is Cause.TOO_LARGE


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_turning_on_to_a_full_circle_changes_nothing(engine: dict[str, Any], degrees: int) -> None:
    """A box turned by x and then by 360 - x lies where it lay, on the page of its new size."""
    pages = engine["pages"]
    size = pages.Size(width=600, height=800)
    turned_size = size if degrees == 180 else pages.Size(width=800, height=600)
    before = box(engine, 10, 20, 110, 60)
    after = pages.turn_box(before, degrees, size)
    assert pages.turn_box(after, 360 - degrees, turned_size) == before


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_quad_turns_with_its_picture(engine: dict[str, Any], degrees: int) -> None:
    """The first corner is the text's own top left again, so that the line is cut out the right way up."""
    import numpy as np  # noqa: PLC0415 - native

    reader = engine["reader"]
    picture = np.zeros((40, 60, 3), dtype=np.uint8)
    picture[10:20, 30:50] = 255
    quad = np.array([[30, 10], [50, 10], [50, 20], [30, 20]], dtype=np.float32)
    turned = reader.turn_quad(quad, degrees, picture.shape)
    low, high = turned.min(axis=0).astype(int), turned.max(axis=0).astype(int)
    assert reader.turn_picture(picture, degrees)[low[1] : high[1], low[0] : high[0]].min() == 255
    assert tuple(turned[0].astype(int)) == (low[0], low[1])


def test_rows_and_columns_come_from_gaps(engine: dict[str, Any]) -> None:
    """A scanned table has no rules to go by: what is set apart is apart."""
    texts = [
        (f"{row}{column}", box(engine, 100 * column, 20 * row, 100 * column + 60, 20 * row + 12))
        for row in range(3)
        for column in range(2)
    ]
    grid = engine["tables"].grid_from_gaps(texts, box(engine, 0, 0, 160, 52))
    _, found = engine["tables"].filled(grid, texts)
    cells = {(c.start_row_offset_idx, c.start_col_offset_idx): c.text for c in found}
    assert cells == {(row, column): f"{row}{column}" for row in range(3) for column in range(2)}


def test_columns_keep_apart_below_a_heading_that_spans_them(engine: dict[str, Any]) -> None:
    """Detected boxes all but touch, and the heading lies across: what is apart in every row is a column."""
    texts = [
        (f"{row}{column}", box(engine, 50 * column, 20 * row, 50 * column + 48, 20 * row + 16))
        for row in range(1, 5)
        for column in range(4)
    ]
    texts.append(("all of it", box(engine, 50, 0, 190, 16)))
    grid = engine["tables"].grid_from_gaps(texts, box(engine, 0, 0, 200, 100))
    _, found = engine["tables"].filled(grid, texts)
    said = [(c.start_row_offset_idx, c.start_col_offset_idx, c.text) for c in found if c.text]
    assert [each for each in said if each[0]] == [(r, c, f"{r}{c}") for r in range(1, 5) for c in range(4)]
    assert [text for row, _, text in said if row == 0] == ["all of it"]


def test_a_table_without_a_usual_row_has_columns_too(engine: dict[str, Any]) -> None:
    """A title over a single row: neither is like most rows, and both count."""
    texts = [("title", box(engine, 0, 0, 30, 12))]
    texts += [(str(n), box(engine, 50 * n, 20, 50 * n + 30, 32)) for n in range(9)]
    assert len(engine["tables"].grid_from_gaps(texts, box(engine, 0, 0, 430, 40)).columns) == 10


def test_a_doubtful_region_around_two_columns_swallows_neither(engine: dict[str, Any]) -> None:
    """A network that sees both columns, and then both as one, is believed about the columns."""
    regions, cluster = engine["regions"], engine["layout"].Cluster
    text = engine["layout"].DocItemLabel.TEXT
    places = [((0, 0, 100, 200), 0.9), ((110, 0, 210, 200), 0.8), ((0, 0, 210, 205), 0.5)]
    found = [cluster(id=n, label=text, bbox=box(engine, *p), confidence=sure) for n, (p, sure) in enumerate(places)]
    kept = [c.bbox.as_tuple() for c in regions.merge_clusters(found)]
    assert kept == [(0, 0, 100, 200), (110, 0, 210, 200)]


def test_a_picture_that_holds_all_text_of_a_page_goes(engine: dict[str, Any]) -> None:
    """Docling leaves the text of pictures out of its Markdown; a scanned page would come out empty."""
    ocr, regions = engine["ocr"], engine["regions"]
    cluster = ocr.Cluster(id=0, label=ocr.DocItemLabel.PICTURE, bbox=box(engine, 0, 0, 500, 700))
    line = engine["pages"].Line(box=box(engine, 50, 50, 90, 70), picture=None, text="1", confidence=0.9)
    assert regions.free_text_from_pictures([cluster], [line], alone=True) == []
    assert regions.free_text_from_pictures([cluster], [line], alone=False) == [cluster]


def test_a_page_is_not_all_furniture(engine: dict[str, Any]) -> None:
    """One line taken for a header is still the page's text."""
    ocr = engine["ocr"]
    cluster = ocr.Cluster(id=0, label=ocr.DocItemLabel.PAGE_HEADER, bbox=box(engine, 0, 0, 500, 20))
    engine["regions"].keep_text_of_bare_page([cluster])
    assert cluster.label is ocr.DocItemLabel.TEXT


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The quick brown fox jumps over the lazy dog. " * 4, True), ("too short", False), ("~'; :_ |. ^- " * 20, False)],
    ids=["language", "a scrap", "noise"],
)
def test_a_hidden_layer_is_believed_when_it_looks_like_language(
    engine: dict[str, Any], text: str, *, expected: bool
) -> None:
    """A searchable scan is not read again; one whose layer is noise is."""
    assert engine["ocr"].fair_text([text]) is expected


def test_text_can_always_be_written(engine: dict[str, Any]) -> None:
    """Lone surrogates and NUL are replaced, everything else is kept."""
    assert engine["pages"].clean("a\ud800b\x00c\U0001f600é") == "a�b�c\U0001f600é"


@pytest.mark.parametrize("size", [(1700, 2200), (2000, 2000), (20_000, 3), (3, 20_000), (1, 1), (900, 1000)])
def test_lines_are_searched_within_an_area(engine: dict[str, Any], size: tuple[int, int]) -> None:
    """Neither an edge nor an area beyond the budget, whatever the shape: a square sheet costs what a letter costs."""
    budget = engine["budget"]
    edge = budget.detection_edge(*size)
    assert 1 <= edge <= budget.DETECTION_EDGE_PX
    assert edge * edge * min(size) / max(size) <= budget.DETECTION_AREA_PX
