"""What is read out of a Markdown text before it is compared: words, headings, list items, tables. Pure."""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import groupby

#: Rows of cells; every row as long as it is in the text.
Table = list[list[str]]

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_RULE = re.compile(r"^[\s|:+-]+$")
_FENCE = re.compile(r"^\s*```")
_HEADING = re.compile(r"^\s*#{1,6}\s+")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_QUOTE = re.compile(r"^\s*>\s+")
#: Between a contents entry and its page: a rule, not words. Shorter runs may be an ellipsis.
_LEADER = re.compile(r"(?:\s*\.){5,}")
_WORD = re.compile(r"\w+|[^\w\s]")


def plain(markdown: str) -> str:
    """The text without Markdown's marks and dot leaders, blanks as they come."""
    text = _IMAGE.sub(" ", _COMMENT.sub(" ", markdown))
    lines = (line for line in text.splitlines() if not _RULE.match(line) and not _FENCE.match(line))
    text = " ".join(_QUOTE.sub("", _ITEM.sub("", _HEADING.sub("", line), count=1), count=1) for line in lines)
    for mark in ("|", "**", "~~", "`"):
        text = text.replace(mark, " ")
    text = html.unescape(text.replace("\\", ""))
    return _LEADER.sub(" ", unicodedata.normalize("NFKC", text))


def words(markdown: str) -> list[str]:
    """Runs of letters and digits, and every other character by itself, so that `word :` is `word:`."""
    return _WORD.findall(plain(markdown))


def said(markdown: str) -> str:
    """The text with single blanks, for comparing whole headings, items and cells."""
    return " ".join(words(markdown))


def headings(markdown: str) -> list[str]:
    """Texts of the headings, levels left out."""
    return [said(line) for line in markdown.splitlines() if _HEADING.match(line)]


def items(markdown: str) -> list[str]:
    """Texts of the list items, markers and depth left out; an item ends with its line."""
    return [text for line in markdown.splitlines() if _ITEM.match(line) and (text := said(line))]


def tables(markdown: str) -> list[Table]:
    """All tables, in order, their rules left out."""
    runs = groupby(markdown.splitlines(), key=lambda line: line.lstrip().startswith("|"))
    found = [[_cells(line) for line in lines if not _RULE.match(line)] for is_table, lines in runs if is_table]
    return [table for table in found if table]


def _cells(row: str) -> list[str]:
    return [said(cell) for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]
