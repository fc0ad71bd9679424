"""Letters that a font sets as several glyphs."""

# ruff: noqa: RUF001 - the accents themselves

from __future__ import annotations

import pytest

from daemon.engine.glyphs import composed, sets_accents_apart, with_initial


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Milan Baˇsi´c, Nguyˆen Duy Tˆan", "Milan Bašić, Nguyên Duy Tân"),
        ("M¨uller", "Müller"),
        ("ˆux", "ûx"),
        ("ˇ q and ˇq", "ˇ q and ˇq"),
        ("a ~ b ^ c `d`", "a ~ b ^ c `d`"),
        ("''ethics'' and ’’more’’", '"ethics" and "more"'),
        ("it's", "it's"),
    ],
)
def test_accents_and_quotes_are_one_sign(text: str, expected: str) -> None:
    """What no letter has stays as it was printed; ASCII signs have uses of their own."""
    assert composed(text) == expected


@pytest.mark.parametrize("text", ["it´s", "l´amour", "Jusqu´alors"])
def test_an_acute_for_an_apostrophe_is_left_alone(text: str) -> None:
    """Many type it so, and "itś" is no word."""
    assert composed(text) == text


def test_on_a_page_that_sets_accents_apart_an_acute_is_one() -> None:
    """A name may begin like an elision: only the rest of the page tells."""
    assert sets_accents_apart(["plain", "Aleksandar Baˇsi"])
    assert not sets_accents_apart(["it´s 20 ˚C", "l´amour"])
    assert composed("J´an", surely=True) == "Ján"
    assert composed("J´an") == "J´an"


@pytest.mark.parametrize(
    ("text", "expected"), [("O ver the past", "Over the past"), ("A new day", "A new day"), ("B A test", "B A test")]
)
def test_a_large_first_letter_joins_its_word(text: str, expected: str) -> None:
    """But a word of one letter stays one."""
    assert with_initial(text) == expected
