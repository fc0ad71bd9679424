"""How alike two lists of tables are, by tree edit distance. Pure.

TEDS after X. Zhong, E. ShafieiBavani, A. Jimeno Yepes, "Image-based table recognition: data, model, and evaluation",
ECCV 2020 (PubTabNet), section 4: a table is the tree table > head and body > rows > cells; TEDS = 1 - d / max(n, m),
d the edit distance of the trees and n, m their numbers of nodes. Taking out or
putting in a node costs 1; making one cell of another costs the normalised Levenshtein distance of their texts. The
distance itself is `apted`'s (M. Pawlik, N. Augsten, "Tree edit distance: robust and memory-efficient", 2016).
Markdown has no spans: a cell that spans several is repeated, on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from apted import APTED, Config
from rapidfuzz.distance import Levenshtein

from bench._fidelity_text import Table


@dataclass(slots=True)
class Node:
    """One node of a table's tree."""

    tag: str
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def size(self) -> int:
        """Nodes, this one included."""
        return 1 + sum(child.size() for child in self.children)


class _Costs(Config):  # type: ignore[misc]
    """See the module; `apted` asks for them."""

    def rename(self, node1: Node, node2: Node) -> float:
        """Cost of making `node2` of `node1`."""
        if node1.tag != node2.tag:
            return 1.0
        if node1.tag != "td":
            return 0.0
        return float(Levenshtein.normalized_distance(node1.text, node2.text))

    def children(self, node: Node) -> list[Node]:
        """From left to right."""
        return node.children


def tree(table: Table) -> Node:
    """The tree of a table whose first row is its head."""
    rows = [Node("tr", children=[Node("td", text) for text in row]) for row in table]
    return Node("table", children=[Node("thead", children=rows[:1]), Node("tbody", children=rows[1:])])


def teds(expected: Table, found: Table) -> float:
    """Likeness of two tables, 0 to 1."""
    if expected == found:
        return 1.0
    ours, theirs = tree(found), tree(expected)
    distance = float(APTED(theirs, ours, _Costs()).compute_edit_distance())
    return 1.0 - distance / max(theirs.size(), ours.size())


def pair(expected: Sequence[Table], found: Sequence[Table]) -> list[tuple[int, int]]:
    """Which table is which: pairs of indices that keep the order and have the most cells in common.

    Tables without a common cell are nobody's; the longest-common-subsequence recurrence, weighted.
    """
    common = [[_common(a, b) for b in found] for a in expected]
    best = [[0.0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    for i in reversed(range(len(expected))):
        for j in reversed(range(len(found))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], common[i][j] + best[i + 1][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(expected) and j < len(found):
        if common[i][j] > 0 and best[i][j] == common[i][j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _common(a: Table, b: Table) -> float:
    """F1 of the words of two tables, so that a grid cut otherwise is still the same table."""
    x, y = (Counter(word for row in table for cell in row for word in cell.split()) for table in (a, b))
    return 2 * (x & y).total() / max(1, x.total() + y.total())


def likeness(expected: Sequence[Table], found: Sequence[Table]) -> float | None:
    """Mean TEDS over the tables of both sides, one without its like counting 0; None when there is no table."""
    pairs = pair(expected, found)
    count = len(expected) + len(found) - len(pairs)
    return sum(teds(expected[i], found[j]) for i, j in pairs) / count if count else None
