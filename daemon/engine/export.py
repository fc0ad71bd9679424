"""A converted document as bytes: Markdown for people, JSON without loss.

Engine. UTF-8 always; the same document gives the same bytes. A page that failed is named in both, at its
place in the order of pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from docling_core.types.doc import BoundingBox, ContentLayer, CoordOrigin, DocItemLabel, DoclingDocument, ProvenanceItem

from daemon.engine.wording import clean

#: Docling's place holders, `<!-- image -->` and the like.
_COMMENTS = re.compile(r"<!--.*?-->", re.DOTALL)


def mark_failed_pages(document: DoclingDocument, failures: Mapping[int, str]) -> None:
    """Put a sentence in the place of each failed page (number → reason), before what follows it."""
    for number in sorted(failures):
        text = f"[page {number} could not be converted: {clean(failures[number])}]"
        box = BoundingBox(l=0, t=0, r=0, b=0, coord_origin=CoordOrigin.TOPLEFT)
        provenance = ProvenanceItem(page_no=number, bbox=box, charspan=(0, len(text)))
        later = _first_item_after(document, number)
        if later is None:
            document.add_text(label=DocItemLabel.TEXT, text=text, prov=provenance)
        else:
            document.insert_text(sibling=later, label=DocItemLabel.TEXT, text=text, prov=provenance, after=False)


def _first_item_after(document: DoclingDocument, number: int) -> Any:
    """The first child of the body that lies on a later page; groups by their first item."""
    for reference in document.body.children:
        child = reference.resolve(document)
        page = _page_of(document, child)
        if page is not None and page > number:
            return child
    return None


def _page_of(document: DoclingDocument, item: Any) -> int | None:
    provenance = getattr(item, "prov", None)
    if provenance:
        return int(provenance[0].page_no)
    pages = (_page_of(document, reference.resolve(document)) for reference in getattr(item, "children", ()))
    return next((page for page in pages if page is not None), None)


def markdown(document: DoclingDocument) -> bytes:
    """Docling's Markdown; with headers, footers and picture texts where there is nothing else to read."""
    text = document.export_to_markdown()
    if not _COMMENTS.sub("", text).strip() and has_text(document):
        text = document.export_to_markdown(included_content_layers=set(ContentLayer), traverse_pictures=True)
    return (clean(text).rstrip("\n") + "\n").encode()


def can_be_read(text: bytes) -> bool:
    """Whether Markdown holds anything besides place holders."""
    return bool(_COMMENTS.sub("", text.decode()).strip())


def lossless(document: DoclingDocument) -> bytes:
    """Docling's own JSON, floats in full."""
    return clean_json(document.export_to_dict()).encode()


def clean_json(value: Any) -> str:
    """JSON text of a value whose strings may hold lone surrogates."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=False))


def has_text(document: DoclingDocument) -> bool:
    """Whether anything in the document can be read, furniture and picture text included."""
    if any(item.text.strip() for item in document.texts):
        return True
    return any(cell.text.strip() for table in document.tables for cell in table.data.table_cells)
