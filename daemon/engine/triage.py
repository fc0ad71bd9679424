"""Whether a page's own text can be believed, or its picture must be read instead.

Engine, but imports nothing native. A text layer that was made from a broken font, or by bad OCR, passes for text
everywhere and says nothing. What is plain is judged from the characters alone; what is only suspicious (no language
that is known here) is compared with what the picture says, in a few lines. A layer that is not believed is put aside
for the whole page, and the account says why.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from statistics import median

#: Fewer characters are a label, and say nothing about the layer.
_LEAST_CHARACTERS = 40
#: Share of characters that no font maps, above which a page is not text: formulas stay below.
_MOST_UNMAPPED = 0.3
#: Share of characters in sequences that only a wrong code page makes.
_MOST_MISREAD = 0.05
#: Share of frequent words: below, a text is in no language that is known here; above, a shifted text has been found.
_FOREIGN, _LANGUAGE = 0.03, 0.15
_LEAST_WORDS = 20
#: Characters a word, at the most, in a text that has blanks.
_LONGEST_WORDS = 30
#: How far subset fonts were seen to shift their codes, 29 above all.
_SHIFTS = tuple(shift for shift in range(-40, 41) if shift)
#: Different frequent words of more than one letter: columns of digits give the same few whatever the shift.
_LEAST_DIFFERENT = 4
#: Characters that are enough to see a shift by.
_SHIFT_SAMPLE = 800
#: Lines compared with the picture, and how alike they must be at the median.
_SAMPLE, _ALIKE = 5, 0.4
#: Shorter lines may be anything; longer ones only take time.
_LEAST_LINE, _MOST_LINE = 8, 120

#: How docling-parse writes a glyph without a character.
_GLYPH = re.compile(r"GLYPH<[^>]*>|\(cid:\d+\)|/g\d{1,4}\b")
_LEADERS = re.compile(r"(.)\1{20,}")
#: UTF-8 that was read as Windows-1252 or Latin-1: a lead byte's character, then continuation bytes' ones.
_MISREAD = re.compile("[ÂÃÅÐÑâã][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]{1,2}")  # noqa: RUF001 - the very ones
#: Unassigned, private, lone halves, and controls: no writing uses them.
_NO_CHARACTER = frozenset({"Cn", "Co", "Cs", "Cc"})
#: Frequent short words of the languages that Latin letters write; a handful of each is enough to know prose by.
_FREQUENT_WORDS = """
    the of and to in is for that on with as by are be from this at it or an not was have
    der die das und ist von mit den dem ein eine nicht auf für zu im des sich werden
    le la les de des du et est un une dans pour que qui sur par pas au aux en ne
    el los las del y por con una para se lo su al como más
    il di che per non sono con della dei nel gli
    o os da do em para com não uma dos na no
    het een van en dat niet te zijn voor op met
    och att det som av är på för till den
    og på til av er ikke i w z na że się nie jest do
"""
_FREQUENT = frozenset(_FREQUENT_WORDS.split())

#: Reads the picture of one line of the layer; the text it sees.
ReadLine = Callable[[int], str]


def plainly_garbage(text: str) -> str:
    """Why a text layer is no text, judged by its characters; empty when it may be one."""
    text = "\n".join(map(_without_leaders, text.split("\n")))
    glyphs = len(_GLYPH.findall(text))
    characters = [c for c in _GLYPH.sub("", text) if not c.isspace()]
    size = len(characters) + glyphs
    if size < _LEAST_CHARACTERS:
        return ""
    shift = shifted_by(text)
    if shift:
        return f"its codes are shifted by {shift}"
    lost = glyphs + sum(c == "\ufffd" or unicodedata.category(c) in _NO_CHARACTER for c in characters)
    if lost > _MOST_UNMAPPED * size:
        return f"{lost / size:.0%} of it has no character"
    misread = sum(len(found) for found in _MISREAD.findall(text))
    if misread > _MOST_MISREAD * size:
        return f"{misread / size:.0%} of it was decoded with the wrong code page"
    return ""


def shifted_by(text: str) -> int:
    """By how much all codes must be raised to give prose; 0 for prose as it is, and for what no shift makes prose."""
    sample = text[:_SHIFT_SAMPLE].encode("latin-1", "replace")
    if _prose(text) >= _FOREIGN or sample.count(b"?") > len(sample) // 10:
        return 0
    likely = {shift: _prose(_raised(sample, shift)) for shift in _SHIFTS}
    best = max(likely, key=lambda shift: likely[shift])
    different = {word for word in _words(_raised(sample, best)) if len(word) > 1} & _FREQUENT
    return best if likely[best] >= _LANGUAGE and len(different) >= _LEAST_DIFFERENT else 0


def suspicious(text: str) -> bool:
    """Whether a layer of Latin letters is in no language that is known here: to be compared with the picture."""
    letters = [c for c in text if c.isalpha()]
    latin = sum(c <= "\u024f" for c in letters)
    words = text.split()
    enough = len(words) >= _LEAST_WORDS and len(letters) > 0.6 * sum(len(word) for word in words)
    return enough and latin > 0.9 * len(letters) and _prose(text) < _FOREIGN


def contradicted(lines: Sequence[str], read_line: ReadLine) -> str:
    """Why the picture says something else than `lines`; empty when it does not, or nothing can be compared."""
    fitting = [n for n, line in enumerate(lines) if _LEAST_LINE <= len(line.strip()) <= _MOST_LINE]
    sample = sorted(fitting, key=lambda n: (-len(lines[n]), n))[:_SAMPLE]
    pairs = [(_bare(lines[n]), _bare(read_line(n))) for n in sample]
    alike = [SequenceMatcher(None, layer, seen, autojunk=False).ratio() for layer, seen in pairs if seen]
    if len(alike) < min(_SAMPLE, 3) or median(alike) >= _ALIKE:
        return ""
    return f"its picture says something else ({median(alike):.0%} alike in {len(alike)} lines)"


def _prose(text: str) -> float:
    """Share of words that are frequent ones; of what holds no blanks, and so no words, 0."""
    words = _words(text)
    if not words or len(text) > _LONGEST_WORDS * len(words):
        return 0.0
    return sum(word in _FREQUENT for word in words) / len(words)


def _without_leaders(line: str) -> str:
    """Dots that lead to a page number are often unmapped, and are hundreds: in a line with letters, they are one."""
    return _LEADERS.sub(r"\1", line) if any(c.isalnum() for c in line) else line


def _words(text: str) -> list[str]:
    return [word.strip(".,;:!?()[]\"'").lower() for word in text.split()]


def _raised(sample: bytes, shift: int) -> str:
    """All codes raised but those of line ends, which are the parser's and not the font's."""
    return sample.translate(bytes(c if c == ord("\n") else (c + shift) % 256 for c in range(256))).decode("latin-1")


def _bare(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())
