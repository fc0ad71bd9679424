"""Right-to-left text out of the pieces of a page.

The expected orders follow from rules L2, W7 and N1 of UAX #9: what a renderer does, undone. Hebrew letters stand for
all right-to-left writing; pieces are given as a renderer places them, from the left.
"""

from __future__ import annotations

import pytest

from daemon.engine import bidi
from daemon.engine.bidi import Piece

ALEF, BET, GIMEL = "אב", "בג", "גד"
HIGH_PT = 10.0


def placed(*texts: str, gaps: tuple[float, ...] = ()) -> list[Piece]:
    """Pieces side by side from the left, 10 pt wide, with gaps (default 3 pt) between them."""
    pieces, left = [], 0.0
    for number, text in enumerate(texts):
        pieces.append(Piece(text=text, left=left, right=left + 10, height=HIGH_PT))
        left += 10 + (gaps[number] if number < len(gaps) else 3.0)
    return pieces


@pytest.mark.parametrize(
    ("seen", "read"),
    [
        pytest.param((GIMEL, BET, ALEF), f"{ALEF} {BET} {GIMEL}", id="words"),
        pytest.param((BET, "Python", "and", "R", ALEF), f"{ALEF} Python and R {BET}", id="a foreign phrase"),
        pytest.param((BET, "R", "+", "Python", ALEF), f"{ALEF} R + Python {BET}", id="a sign inside a foreign phrase"),
        pytest.param((BET, "Python", "3", ALEF), f"{ALEF} Python 3 {BET}", id="a number after a foreign word"),
        pytest.param(("2026", "-", "2024", ALEF), f"{ALEF} 2024 - 2026", id="numbers go with the line"),
        pytest.param((".", "Python", ALEF), f"{ALEF} Python .", id="a stop at the end"),
        pytest.param(("R", BET, "Python", ALEF), f"{ALEF} Python {BET} R", id="two foreign words apart"),
        pytest.param((BET, "12", ALEF), f"{ALEF} 12 {BET}", id="a number between words"),
    ],
)
def test_right_to_left_line(seen: tuple[str, ...], read: str) -> None:
    """A line is read from the right, a run of Latin letters inside it from the left."""
    assert bidi.line_text(placed(*seen), right_to_left=True) == read


@pytest.mark.parametrize(
    ("seen", "read"),
    [
        pytest.param(("see", BET, ALEF, "there"), f"see {ALEF} {BET} there", id="a foreign phrase"),
        pytest.param(("in", "2024", "and", "later"), "in 2024 and later", id="nothing foreign"),
        pytest.param(("see", ALEF, ",", "there"), f"see {ALEF} , there", id="a comma after it"),
    ],
)
def test_left_to_right_line(seen: tuple[str, ...], read: str) -> None:
    """A line of Latin letters is read from the left, Hebrew words inside it from the right."""
    assert bidi.line_text(placed(*seen), right_to_left=False) == read


def test_order_of_pieces_says_nothing() -> None:
    """A parser gives pieces in the order of the content stream; only their places count."""
    pieces = placed(GIMEL, BET, ALEF)
    assert bidi.line_text([pieces[1], pieces[2], pieces[0]], right_to_left=True) == f"{ALEF} {BET} {GIMEL}"


@pytest.mark.parametrize(
    ("seen", "gap", "read"),
    [
        pytest.param((BET, ALEF), 0.5, ALEF + BET, id="a letter placed by itself"),
        pytest.param((BET, ALEF), -2.0, ALEF + BET, id="a mark on the next letter"),
        pytest.param((BET, ALEF), 1.5, f"{ALEF} {BET}", id="a blank"),
        pytest.param((".", ALEF), 0.0, f"{ALEF}.", id="a stop"),
        pytest.param((BET, "Python"), 0.0, f"Python {BET}", id="two writings make no word"),
    ],
)
def test_blanks(seen: tuple[str, ...], gap: float, read: str) -> None:
    """A gap of a tenth of the line's height is a blank; nearer pieces are one word, if they can be."""
    assert bidi.line_text(placed(*seen, gaps=(gap,)), right_to_left=True) == read


def test_presentation_forms_become_letters() -> None:
    """Searching for a word must find it, whatever forms of its letters the font has; marks lose no letter."""
    assert bidi.letters("\ufefb\ufee2\u200f \u202bא\u202c\ufb2a\ufe76") == "\u0644\u0627\u0645 אש\u05c1\u064e"


def test_brackets_face_each_other() -> None:
    """A pair that was stored as it is drawn is turned, also when a line ends between its halves."""
    assert bidi.with_pairs([f"{ALEF} )", f"{BET}( {GIMEL}"]) == [f"{ALEF} (", f"{BET}) {GIMEL}"]
    for right in ([f"{ALEF} ({BET}", f"{BET}) {GIMEL}"], [f"1) {ALEF}"]):
        assert bidi.with_pairs(right) == right


def test_share() -> None:
    """Digits and signs are letters of neither direction; a text without letters runs no way."""
    assert bidi.share_of_right_to_left(["ab12", "אב"]) == 0.5
    assert bidi.share_of_right_to_left(["12 + 7"]) == 0.0
