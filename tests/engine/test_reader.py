"""Reading lines: each by itself whatever its width, in the order given, and a page turned the right way up."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from daemon.engine import runtime

pytestmark = pytest.mark.engine

#: Long and short ones mixed, as they stand on a page.
LINES = ("The gate was hung crooked by the smith and stayed so", "17", "and never", "Valletta", "when the fog came in")


@pytest.fixture(scope="module")
def module() -> Any:
    """`daemon.engine.reader`; native code, so imported here and after `prepare`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime.prepare(1)
        return importlib.import_module("daemon.engine.reader")


@pytest.fixture(scope="module")
def reader(module: Any) -> Any:
    """The reader, with its models."""
    return module.Reader(("en",))


def line(text: str, *, height: int = 40) -> np.ndarray:
    """One line of printed text, as a detector cuts it out."""
    font = ImageFont.load_default(size=height * 0.7)
    width = round(font.getlength(text)) + height // 2
    picture = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(picture).text((height // 4, height // 2), text, fill="black", font=font, anchor="lm")
    return np.asarray(picture)


def sheet() -> np.ndarray:
    """A picture of six lines."""
    picture = np.full((600, 900, 3), 255, np.uint8)
    for number, text in enumerate((LINES[0], LINES[4] * 2, LINES[0], LINES[4] * 2, LINES[0], LINES[4] * 2)):
        drawn = line(text, height=32)[:, :880]
        picture[40 + 80 * number : 72 + 80 * number, 10 : 10 + drawn.shape[1]] = drawn
    return picture


def test_lines_come_back_in_the_order_given(reader: Any) -> None:
    """The recogniser sorts by width inside; a page's lines must not change places for it."""
    assert [text for text, _ in reader.read([line(text) for text in LINES])] == list(LINES)


def test_a_line_reads_the_same_in_any_company(module: Any, reader: Any) -> None:
    """What a line says may not depend on what else is on its page: a resumed page would come out otherwise."""
    pictures = [line(text) for text in LINES]
    assert [reader.read([picture])[0] for picture in pictures] == reader.read(pictures)
    batched = module.Reader(("en",), lines_at_once=len(LINES)).read(pictures)
    assert [text for text, _ in batched] == list(LINES), "batches keep the order too"
    assert batched != reader.read(pictures), "and are what makes a line depend on its neighbours"


def test_what_is_no_line_does_no_harm(reader: Any) -> None:
    """A detector cuts out slivers; none of them may end a page."""
    slivers = [np.full(shape, 255, np.uint8) for shape in ((1, 1, 3), (1, 60, 3), (60, 1, 3), (0, 5, 3), (5, 0, 3))]
    assert reader.read([]) == []
    read = reader.read([slivers[0], line("Valletta"), *slivers[1:]])
    assert len(read) == 6
    assert read[1][0] == "Valletta"


def test_a_very_long_line_is_read_in_pieces(module: Any, reader: Any) -> None:
    """A strip of a wide sheet may not take the memory of the whole page, and loses no word."""
    words = " ".join(f"gate{number}" for number in range(100, 140))
    picture = line(words)
    parts = module.pieces(picture)
    assert len(parts) > 1
    assert max(part.shape[1] * 48 / part.shape[0] for part in parts) <= module.LONGEST_LINE_PX
    assert np.array_equal(np.concatenate(parts, axis=1), picture), "no column is lost or read twice"
    (text, confidence), (short, _) = reader.read([picture, line("Valletta")])
    assert short == "Valletta"
    assert "".join(text.split()) == "".join(words.split())
    assert confidence > 0.9


@pytest.mark.parametrize("shape", [(1, 5_000), (2, 500), (40, 9_000)])
def test_pieces_of_a_line_without_a_gap_end(module: Any, shape: tuple[int, int]) -> None:
    """Noise has no place between words; it is cut all the same."""
    picture = np.random.default_rng(1).integers(0, 255, (*shape, 3), np.uint8)
    parts = module.pieces(picture)
    assert np.array_equal(np.concatenate(parts, axis=1), picture)
    assert max(part.shape[1] * 48 / part.shape[0] for part in parts) <= module.LONGEST_LINE_PX


def test_an_ordinary_line_is_one_piece(module: Any) -> None:
    """What fits is not touched."""
    picture = line(LINES[0])
    assert [part is picture for part in module.pieces(picture)] == [True]


def test_pieces_that_say_nothing_do_not_weigh(module: Any) -> None:
    """The confidence of a line is that of its characters; blanks between pieces are single."""
    assert module.joined([("ab ", 0.5), (" ", 0.0), ("cdef", 0.9)]) == ("ab cdef", pytest.approx((1.5 + 3.6) / 7))
    assert module.joined([("", 0.3), ("", 0.4)]) == ("", 0.0)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_a_page_is_turned_until_it_reads(module: Any, reader: Any, degrees: int) -> None:
    """However a page was laid on the glass, the turn that is asked for makes it upright."""
    laid = module.turn_picture(sheet(), -degrees % 360)
    assert reader.turn_needed(laid, reader.find(laid)) == degrees


def test_noise_is_not_turned(module: Any, reader: Any) -> None:
    """Strokes that stand upright and read neither way stay as they are."""
    picture = np.full((600, 600, 3), 255, np.uint8)
    rng = np.random.default_rng(2)
    for left in range(40, 560, 80):
        picture[50:550, left : left + 24] = np.where(rng.random((500, 24, 1)) < 0.5, 0, 255)
    quads = [np.array([[x, 50], [x + 24, 50], [x + 24, 550], [x, 550]], np.float32) for x in range(40, 560, 80)]
    assert reader.turn_needed(picture, quads) == 0
    assert module.turn_picture(picture, 0).shape == picture.shape


def page_of(height: int) -> np.ndarray:
    """A page of 20 lines, each so high, cut to the page's width."""
    picture = np.full((1500, 1100, 3), 255, np.uint8)
    for number in range(20):
        drawn = line(f"{number} {LINES[number % 5]}", height=height)[:, :1000]
        picture[40 + 70 * number : 40 + 70 * number + height, 40 : 40 + drawn.shape[1]] = drawn
    return picture


@pytest.mark.parametrize(("height", "edge_px"), [(20, 1280), (48, 960)], ids=["small print", "large print"])
def test_lines_are_searched_as_closely_as_the_print_asks(module: Any, reader: Any, height: int, edge_px: int) -> None:
    """Small print is searched again on a larger picture, for lines were missed; other pages do not pay for it."""
    at = {
        edge: module.Reader(("en",), detection_edge_px=edge, small_print_edge_px=0).find(page_of(height))
        for edge in (960, 1280)
    }
    found = reader.find(page_of(height))
    assert np.array_equal(found, at[edge_px])
    assert not np.array_equal(at[960], at[1280]), "the two searches can be told apart"


def test_a_few_low_lines_are_no_small_print(module: Any) -> None:
    """Specks say nothing, and nor does one footnote below many lines."""

    def quad(height: float) -> np.ndarray:
        return np.array([[0, 0], [400, 0], [400, height], [0, height]], np.float32)

    assert not module.is_small_print([quad(20)] * 9, 0.5)
    assert module.is_small_print([quad(20)] * 10, 0.5)
    assert not module.is_small_print([quad(20), *[quad(60)] * 19], 0.5)
    assert not module.is_small_print([], 0.5)


def test_a_smaller_search_keeps_the_letters_shape(module: Any) -> None:
    """The edge that a bench compares bounds the area as the usual one does."""
    assert module.detection_edge(1700, 2200, edge_px=640) == 640
    assert module.detection_edge(2000, 2000, edge_px=480) == module.detection_edge(2000, 2000) // 2


def test_a_square_sheet_is_searched_within_its_area(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A square has no more pixels than a letter page at the same edge: 1280 * (1280 * 742 / 960), square."""
    seen: list[int] = []

    def look(_: object, picture: np.ndarray) -> list[np.ndarray]:
        seen.append(max(picture.shape))
        return [np.zeros((4, 2), np.float32)]

    monkeypatch.setattr(module.Reader, "_detected", look)
    module.Reader(("en",), detection_edge_px=1280, small_print_edge_px=0).find(np.zeros((2000, 2000, 3), np.uint8))
    assert seen == [1125]
