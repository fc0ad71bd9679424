"""Letters put together again that a font sets as several glyphs: accents beside their letter, large first letters.

Engine, but pure: strings in, strings out.
"""

# ruff: noqa: RUF001, RUF003 - the accents themselves

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

#: Accents that stand by themselves, and what combines instead. ASCII's grave, circumflex and tilde are not here: they
#: have uses of their own.
_COMBINING = {
    "´": "\u0301",
    "¨": "\u0308",
    "ˆ": "\u0302",
    "˜": "\u0303",
    "ˇ": "\u030c",
    "˘": "\u0306",
    "˙": "\u0307",
    "˚": "\u030a",
    "˝": "\u030b",
}
_ACCENTED = re.compile(f"([{''.join(_COMBINING)}])([^\\W\\d_])")
#: An acute accent in the place of an apostrophe: "it´s", "l´été".
_APOSTROPHE = re.compile(r"(?:\b[cdjlmnst]|qu)´[^\W\d_]|´(?:s|t|d|m|ll|re|ve)\b", re.IGNORECASE)
#: Nobody takes these for an apostrophe or a degree.
_TELLING = re.compile(r"[¨ˆ˜ˇ˘˝][^\W\d_]")
#: Two single quotation marks for a double one, as typesetters without the other make it.
_QUOTES = re.compile(r"''|‘‘|’’|``")
#: A large first letter of a paragraph and the rest of its word. "A" and "I" are words by themselves.
_INITIAL = re.compile(r"^([B-HJ-Z]) (?=[a-z]{2})")


def sets_accents_apart(texts: Iterable[str]) -> bool:
    """Whether a page's font has accents and letters as separate glyphs, as TeX's older fonts have."""
    return any(_TELLING.search(text) for text in texts)


def composed(text: str, *, surely: bool = False) -> str:
    """The text with accents on their letters, where Unicode has such a letter; quotation marks as one sign.

    An acute that may be meant for an apostrophe is left alone, unless the page surely sets accents apart.
    """
    if not surely and _APOSTROPHE.search(text):
        return _QUOTES.sub('"', text)
    return _QUOTES.sub('"', _ACCENTED.sub(_with_accent, text))


def _with_accent(found: re.Match[str]) -> str:
    letter = unicodedata.normalize("NFC", found[2] + _COMBINING[found[1]])
    return letter if len(letter) == 1 else found[0]


def with_initial(text: str) -> str:
    """A paragraph's first line, its large first letter back on its word."""
    return _INITIAL.sub(r"\1", text)
