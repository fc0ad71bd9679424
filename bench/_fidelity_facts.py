"""Statements about single documents that have no reference text, and whether a Markdown text bears them out. Pure.

The kinds are those of olmOCR-bench (J. Poznanski et al., "olmOCR: Unlocking trillions of tokens in PDFs with vision
language models", 2025): a text is there, is not there, stands before another; a table's cell has that neighbour
or that heading; a page is empty. Its formulas in LaTeX are left out: nothing here writes LaTeX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rapidfuzz import fuzz

from bench._fidelity_text import Table, said, tables

Fact = dict[str, object]
#: Row and column steps to the neighbour that a fact names.
_NEIGHBOURS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
#: Cells may differ by a sign or two.
_SAME_CELL = 90.0


def holds(fact: Fact, markdown: str) -> bool:
    """Whether `fact` is true of the text. Raises KeyError for a kind that is not in `KINDS`."""
    return KINDS[str(fact["type"])](fact, markdown)


def share(facts: Iterable[Fact], markdown: str) -> float | None:
    """Share of the facts that hold; None without any."""
    held = [holds(fact, markdown) for fact in facts]
    return sum(held) / len(held) if held else None


def _place(wanted: object, fact: Fact, text: str) -> int | None:
    """Where a text begins in another, with `max_diffs` signs of difference; None where it does not."""
    needle = said(str(wanted))
    least = 100 * (1 - (int(str(fact.get("max_diffs", 0))) + 0.5) / max(1, len(needle)))
    found = fuzz.partial_ratio_alignment(needle, text, score_cutoff=max(least, 60.0))
    # A text shorter than the needle would be looked for in the needle.
    return None if found is None or len(needle) > len(text) else found.dest_start


def _present(fact: Fact, markdown: str) -> bool:
    text = said(markdown)
    return _place(fact["text"], fact, text[-int(str(fact.get("last_n", 0))) :]) is not None


def _ordered(fact: Fact, markdown: str) -> bool:
    text = said(markdown)
    before, after = _place(fact["before"], fact, text), _place(fact["after"], fact, text)
    return before is not None and after is not None and before < after


def _tabled(fact: Fact, markdown: str) -> bool:
    """Whether some cell of the fact's text has everything that the fact says of its surroundings."""
    return any(
        _like(fact["cell"], text) and _surrounded(fact, table, row, column)
        for table in tables(markdown)
        for row, cells in enumerate(table)
        for column, text in enumerate(cells)
    )


def _surrounded(fact: Fact, table: Table, row: int, column: int) -> bool:
    for name, (down, right) in _NEIGHBOURS.items():
        if name in fact and not _like(fact[name], _cell(table, row + down, column + right)):
            return False
    if "top_heading" in fact and not any(_like(fact["top_heading"], _cell(table, r, column)) for r in range(row)):
        return False
    return "left_heading" not in fact or any(_like(fact["left_heading"], text) for text in table[row][:column])


def _cell(table: Table, row: int, column: int) -> str:
    """A cell's text; nothing beyond the edges."""
    inside = 0 <= row < len(table) and 0 <= column < len(table[row])
    return table[row][column] if inside else ""


def _like(wanted: object, text: str) -> bool:
    return bool(fuzz.ratio(said(str(wanted)), text) >= _SAME_CELL)


def _empty(fact: Fact, markdown: str) -> bool:
    return len(said(markdown)) <= int(str(fact["max_length"]))


KINDS: dict[str, Callable[[Fact, str], bool]] = {
    "present": _present,
    "absent": lambda fact, markdown: not _present(fact, markdown),
    "order": _ordered,
    "table": _tabled,
    "baseline": _empty,
}


def checkable(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Those of a kind that is known here."""
    return (fact for fact in facts if fact["type"] in KINDS)
