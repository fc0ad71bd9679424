"""Text of right-to-left writing, out of the pieces in which a page shows it.

Engine, but imports nothing native. A parser breaks a line where its direction changes, where a font lacks a letter,
and where a letter was placed by itself. The pieces of one line are put in the order in which they are read, which
undoes rules L2, W7 and N1 of the Unicode bidirectional algorithm (UAX #9): the line's own direction first, a run of the
other direction inside it in that one's order. Characters of one piece are in the order of reading already.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

#: A gap of this share of a line's height is a blank; what is nearer belongs to the same word.
_BLANK = 0.1
_RIGHT_TO_LEFT = frozenset({"R", "AL"})
_NUMBER = frozenset({"EN", "AN"})
#: UAX #9, section 2: embeddings, overrides, isolates and marks. They leave no ink.
_CONTROLS = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_OPENING, _CLOSING = "([{", ")]}"
_MIRROR = str.maketrans(_OPENING + _CLOSING, _CLOSING + _OPENING)


class Direction(StrEnum):
    """How the letters of a piece run."""

    #: Latin, Greek, Cyrillic, and all else that is no other.
    LEFT_TO_RIGHT = "left_to_right"
    #: Hebrew, Arabic and their like.
    RIGHT_TO_LEFT = "right_to_left"
    #: Digits, and no letter.
    NUMBER = "number"
    #: Neither letter nor digit.
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of one line, its characters in the order of reading; lengths in points."""

    text: str
    left: float
    right: float
    height: float


def is_right_to_left(text: str) -> bool:
    """Whether more of a text's letters run from right to left than from left to right."""
    classes = [unicodedata.bidirectional(c) for c in text]
    return sum(c in _RIGHT_TO_LEFT for c in classes) > sum(c == "L" for c in classes)


def holds_right_to_left(text: str) -> bool:
    """Whether any character of a text runs from right to left."""
    return any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in text)


def direction(text: str) -> Direction:
    """The direction of a piece, by most of its letters."""
    if is_right_to_left(text):
        return Direction.RIGHT_TO_LEFT
    classes = {unicodedata.bidirectional(c) for c in text}
    if "L" in classes:
        return Direction.LEFT_TO_RIGHT
    return Direction.NUMBER if classes & _NUMBER else Direction.NEUTRAL


def line_text(pieces: Sequence[Piece], *, right_to_left: bool) -> str:
    """The text of a line whose own direction is given, from its pieces in any order."""
    seen = sorted(pieces, key=lambda piece: (piece.left + piece.right, piece.left))
    if right_to_left:
        seen.reverse()
    inside = Direction.LEFT_TO_RIGHT if right_to_left else Direction.RIGHT_TO_LEFT
    return _joined([_joined(run[::-1]) if len(run) > 1 else run[0] for run in _runs(seen, inside)]).text


def letters(text: str) -> str:
    """The text with letters for presentation forms, and without the controls of the algorithm."""
    return "".join(map(_letters, text.translate(_CONTROLS)))


def with_pairs(lines: Sequence[str]) -> list[str]:
    """Right-to-left lines of one region with brackets that face each other.

    Some producers store the bracket that is drawn, some the one that is meant: where only the mirrored ones would
    pair, they are mirrored.
    """
    mirrored = [line.translate(_MIRROR) for line in lines]
    return mirrored if _unpaired("".join(mirrored)) < _unpaired("".join(lines)) else list(lines)


def _runs(seen: Sequence[Piece], inside: Direction) -> list[list[Piece]]:
    """Pieces in the line's own direction, those of a run of the other direction together.

    A run of left-to-right text begins where it is seen last, and takes in the numbers that follow it (W7); what lies
    between a run's pieces belongs to it (N1). A number by itself, or behind right-to-left text, is in the line's order.
    """
    directions = [direction(piece.text) for piece in seen]
    ends = {inside, Direction.NUMBER} if inside is Direction.LEFT_TO_RIGHT else {inside}
    own = Direction.RIGHT_TO_LEFT if inside is Direction.LEFT_TO_RIGHT else Direction.LEFT_TO_RIGHT
    runs: list[list[Piece]] = []
    at = 0
    while at < len(seen):
        last = at
        if directions[at] in ends:
            end = next((n for n in range(at, len(seen)) if directions[n] is own), len(seen))
            last = max((n for n in range(at, end) if directions[n] is inside), default=at)
        runs.append(list(seen[at : last + 1]))
        at = last + 1
    return runs


def _joined(pieces: Sequence[Piece]) -> Piece:
    """Pieces in the order of reading as one, with blanks where there are gaps."""
    text = pieces[0].text
    for before, piece in itertools.pairwise(pieces):
        text += f" {piece.text}" if _apart(before, piece) else piece.text
    return Piece(
        text=text,
        left=min(piece.left for piece in pieces),
        right=max(piece.right for piece in pieces),
        height=max(piece.height for piece in pieces),
    )


def _apart(before: Piece, after: Piece) -> bool:
    """Whether a blank lies between two pieces; letters of two directions never make one word.

    A blank at a change of direction may lie inside a piece's box although its text has lost it.
    """
    gap = max(before.left, after.left) - min(before.right, after.right)
    if gap > _BLANK * min(before.height, after.height):
        return True
    ends = {direction(before.text[-1:]), direction(after.text[:1])}
    return ends == {Direction.LEFT_TO_RIGHT, Direction.RIGHT_TO_LEFT}


def _letters(char: str) -> str:
    """What a presentation form of Hebrew or Arabic stands for; words written as one sign, and all else, as they are."""
    if not ("\ufb1d" <= char <= "\ufdef" or "\ufe70" <= char <= "\ufefc"):
        return char
    # A mark's isolated form is decomposed into a blank and the mark.
    return unicodedata.normalize("NFKC", char).lstrip(" ") if unicodedata.category(char)[0] != "P" else char


def _unpaired(text: str) -> int:
    """Brackets without their counterpart."""
    open_: list[int] = []
    lost = 0
    for char in text:
        if char in _OPENING:
            open_.append(_OPENING.index(char))
        elif char in _CLOSING:
            if open_ and open_[-1] == _CLOSING.index(char):
                open_.pop()
            else:
                lost += 1
    return lost + len(open_)


def share_of_right_to_left(texts: Iterable[str]) -> float:
    """Share, 0 to 1, of the letters of all texts that run from right to left; 0 without letters."""
    classes = [unicodedata.bidirectional(c) for text in texts for c in text]
    right = sum(c in _RIGHT_TO_LEFT for c in classes)
    letters = right + sum(c == "L" for c in classes)
    return right / letters if letters else 0.0
