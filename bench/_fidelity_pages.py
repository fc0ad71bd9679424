"""Side by side, for a person: a page's picture, the reference text, our text, differences marked. Pure.

One self-contained HTML file per document, its worst pages first. The reference knows no pages: a piece of it belongs
to the page on which the words around it stand in ours.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rapidfuzz.distance import Indel

#: What of a page's text is compared: words with their marks; line ends only show where they are.
_TOKEN = re.compile(r"\S+|\n")
#: Rules of tables are as wide as their widest cell, which is no difference.
_RULE = re.compile(r"^[\s|:+-]{3,}$", re.MULTILINE)
_HEAD = """<!doctype html><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.45 sans-serif; margin: 1em }}
section {{ display: grid; grid-template-columns: 1fr 1fr 1fr; gap: 1em; border-top: 2px solid #888; padding: 1em 0 }}
section h2 {{ grid-column: 1 / 4; margin: 0 }}
img {{ width: 100%; border: 1px solid #ccc }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 }}
del {{ background: #fbb; text-decoration: none }}
ins {{ background: #bfb; text-decoration: none }}</style>
<h1>{title}</h1><p>{scores}</p><p>Left: the page. Middle: the reference, <del>what we have not</del>. Right: ours,
<ins>what the reference has not</ins>. The worst pages come first.</p>
"""

#: (word or line end, whether the other side has it too)
Marked = tuple[str, bool]


@dataclass(slots=True)
class PageDifference:
    """What both sides say on one page."""

    #: Counted from 1.
    page: int
    reference: list[Marked] = field(default_factory=list)
    ours: list[Marked] = field(default_factory=list)

    def share(self) -> float:
        """Share of the words that the other side lacks."""
        words = [same for word, same in (*self.reference, *self.ours) if word.strip()]
        return words.count(False) / max(1, len(words))


def compare(reference: str, pages: Sequence[str]) -> list[PageDifference]:
    """The reference against our pages, in the order of pages."""
    expected = _tokens(reference)
    found = [(token, number) for number, text in enumerate(pages) for token in _tokens(text)]
    result = [PageDifference(page=number + 1) for number in range(len(pages))]
    at = 0
    for step in Indel.opcodes(expected, [token for token, _ in found]):
        same = step.tag == "equal"
        for index in range(step.dest_start, step.dest_end):
            token, at = found[index]
            result[at].ours.append((token, same))
            if same:
                result[at].reference.append((token, True))
        if not same:
            result[at].reference += [(token, False) for token in expected[step.src_start : step.src_end]]
    return result


def _tokens(markdown: str) -> list[str]:
    return _TOKEN.findall(_RULE.sub("", markdown))


def page_html(difference: PageDifference, png: bytes) -> str:
    """One page as a section; `png` is its picture."""
    image = base64.b64encode(png).decode()
    sides = (_side(difference.reference, "del"), _side(difference.ours, "ins"))
    head = f"<h2>Page {difference.page}: {difference.share():.0%} of the words differ</h2>"
    texts = "".join(f"<pre>{side}</pre>" for side in sides)
    return f'<section>{head}<img alt="" src="data:image/png;base64,{image}">{texts}</section>'


def _side(marked: Iterable[Marked], tag: str) -> str:
    said = (
        html.escape(word) if same or not word.strip() else f"<{tag}>{html.escape(word)}</{tag}>"
        for word, same in marked
    )
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", " ".join(said)).strip()


def document_html(
    title: str, scores: str, reference: str, pages: Sequence[str], picture: Callable[[int], bytes], *, most: int
) -> str:
    """The file of one document; `picture` makes the PNG of a page, counted from 1. At most `most` pages."""
    differences = sorted(compare(reference, pages), key=lambda page: -page.share())
    sections = (page_html(page, picture(page.page)) for page in differences[:most] if page.share() > 0)
    return _HEAD.format(title=html.escape(title), scores=html.escape(scores)) + "\n".join(sections)
