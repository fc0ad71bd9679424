"""A finished page as bytes and back."""

from __future__ import annotations

import json
import warnings
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.engine import runtime
from daemon.model import Cause, PageMode, PageReport, PageState

pytestmark = pytest.mark.engine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    runtime.prepare(1)
    from docling.datamodel.base_models import (
        Cluster,
        ContainerElement,
        FigureElement,
        PageConfidenceScores,
        Table,
        TextElement,
    )
    from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel, Size, TableCell
    from docling_core.types.doc.page import BoundingRectangle, TextCell
    from pydantic import AnyUrl

    from daemon.engine import checkpoint

ENGINE = "0123456789abcdef"
BOX = BoundingBox(l=0.1, t=1 / 3, r=1e-17 + 200.1, b=700.0)


def cluster(number: int, label: DocItemLabel, *children: Cluster, text: str = "") -> Cluster:
    """A region; `text` is a cell in it."""
    rect = BoundingRectangle.from_bounding_box(BOX)
    cells = [TextCell(index=0, text=text, orig=text, rect=rect, from_ocr=True)] if text else []
    return Cluster(id=number, label=label, bbox=BOX, confidence=0.1 + 0.2, cells=cells, children=list(children))


def full_page() -> checkpoint.FinishedPage:
    """A page with an element of each type, and awkward numbers."""
    low = BoundingBox(l=1, t=9, r=2, b=3, coord_origin=CoordOrigin.BOTTOMLEFT)
    cell = TableCell(
        text="é",
        bbox=low,
        row_span=1,
        col_span=2,
        start_row_offset_idx=0,
        end_row_offset_idx=1,
        start_col_offset_idx=0,
        end_col_offset_idx=2,
        column_header=True,
    )
    inner = cluster(7, DocItemLabel.LIST_ITEM, text="nested\ud800")
    common: dict[str, Any] = {"page_no": 3}
    elements = (
        TextElement(id=0, label=DocItemLabel.TEXT, text="a", cluster=cluster(0, DocItemLabel.TEXT), **common),
        TextElement(
            id=1,
            label=DocItemLabel.PAGE_FOOTER,
            text="b",
            cluster=cluster(1, DocItemLabel.PAGE_FOOTER),
            hyperlink=AnyUrl("https://example.org/a%20b?q=1"),
            **common,
        ),
        TextElement(
            id=2,
            label=DocItemLabel.CODE,
            text="c",
            cluster=cluster(2, DocItemLabel.CODE),
            hyperlink=Path("a/b c"),
            **common,
        ),
        Table(
            id=3,
            label=DocItemLabel.TABLE,
            text="",
            otsl_seq=[],
            num_rows=1,
            num_cols=2,
            table_cells=[cell, cell.model_copy(update={"bbox": None})],
            cluster=cluster(3, DocItemLabel.TABLE),
            **common,
        ),
        FigureElement(id=4, label=DocItemLabel.PICTURE, cluster=cluster(4, DocItemLabel.PICTURE, inner), **common),
        ContainerElement(id=5, label=DocItemLabel.FORM, cluster=cluster(5, DocItemLabel.FORM, inner), **common),
    )
    report = PageReport(page=3, state=PageState.MIXED, engine="ocr=rapidocr", reason="§", elapsed_s=0.1)
    return checkpoint.FinishedPage(
        report=report,
        mode=PageMode.REDUCED,
        size=Size(width=612.1, height=1 / 3),
        elements=elements,
        shape_lines=(BOX,),
        shape_boxes=None,
        scores=PageConfidenceScores(parse_score=0.1, ocr_score=1.0),
        turned=270,
        inked=True,
        cause=Cause.TOO_LARGE,
    )


def signed(value: object) -> bytes:
    """A blob with a right header around any JSON value."""
    body = zlib.compress(json.dumps(value).encode())
    return checkpoint._header(body, page=3, engine=ENGINE) + body


def test_a_page_comes_back_as_it_was() -> None:
    """Types, floats to the last bit, links of both kinds, nested text and lone surrogates."""
    page = full_page()
    back = checkpoint.decode(checkpoint.encode(page, engine=ENGINE), page=3, engine=ENGINE)
    assert [type(element) for element in back.elements] == [type(element) for element in page.elements]
    for before, after in zip(page.elements, back.elements, strict=True):
        assert after.model_dump(exclude={"cluster"}) == before.model_dump(exclude={"cluster"})
        assert after.cluster.bbox == before.cluster.bbox
        assert after.cluster.confidence == before.cluster.confidence
    assert back.elements[5].cluster.children[0].cells[0].text == "nested\ud800"
    for name in ("report", "mode", "size", "shape_lines", "shape_boxes", "turned", "inked", "cause"):
        assert getattr(back, name) == getattr(page, name), name
    assert str(back.scores) == str(page.scores)


def test_equal_pages_give_equal_bytes() -> None:
    """And what came back is kept as it was."""
    blob = checkpoint.encode(full_page(), engine=ENGINE)
    assert checkpoint.encode(full_page(), engine=ENGINE) == blob
    assert checkpoint.encode(checkpoint.decode(blob, page=3, engine=ENGINE), engine=ENGINE) == blob


@settings(max_examples=200, deadline=None)
@given(at=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7), cut=st.booleans())
def test_no_damage_goes_unseen(at: int, bit: int, *, cut: bool) -> None:
    """One bit, or the end missing: refused, by the quick look and by the whole one."""
    blob = checkpoint.encode(full_page(), engine=ENGINE)
    at %= len(blob)
    damaged = blob[:at] if cut else blob[:at] + bytes([blob[at] ^ (1 << bit)]) + blob[at + 1 :]
    assert not checkpoint.intact(damaged, page=3, engine=ENGINE)
    with pytest.raises(ValueError, match="cannot restore page 3"):
        checkpoint.decode(damaged, page=3, engine=ENGINE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("report", "mode", "size", "elements", "lines", "boxes", "scores", "turned", "inked", "cause")


@settings(max_examples=200, deadline=None)
@given(field=st.sampled_from([*FIELDS, ""]), value=JSON)
def test_foreign_values_are_refused_or_read_and_nothing_else(field: str, value: object) -> None:
    """A blob with a right checksum and any contents raises ValueError, or is a page that can be kept again."""
    good = json.loads(zlib.decompress(checkpoint.encode(full_page(), engine=ENGINE).partition(b"\n")[2]))
    try:
        page = checkpoint.decode(signed(good | {field: value} if field else value), page=3, engine=ENGINE)
    except ValueError:
        return
    assert page.report.page == 3
    checkpoint.encode(page, engine=ENGINE)


@pytest.mark.parametrize(("page", "engine"), [(4, ENGINE), (3, "fedcba9876543210")])
def test_a_blob_of_another_page_or_engine_is_refused(page: int, engine: str) -> None:
    """What another engine made would not end in the same bytes."""
    with pytest.raises(ValueError, match="of another page or of another engine"):
        checkpoint.decode(checkpoint.encode(full_page(), engine=ENGINE), page=page, engine=engine)


def test_another_engine_has_another_digest() -> None:
    """A version, a model, a budget: all of them are in the manifest."""
    first = checkpoint.engine_digest({"page_budget_px": 1, "packages": {"a": "1", "b": "2"}})
    assert first == checkpoint.engine_digest({"packages": {"b": "2", "a": "1"}, "page_budget_px": 1})
    assert first != checkpoint.engine_digest({"packages": {"b": "2", "a": "1"}, "page_budget_px": 2})
