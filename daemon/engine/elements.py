"""Docling's page elements as JSON values and back: a tag for the type, then its fields.

Engine. Every type that our stages make is here, field by field, so that a new field of Docling's is a decision and not
an accident. Of a cluster's cells only the texts of nested clusters are kept: assembly reads no others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docling.datamodel.base_models import Cluster, ContainerElement, FigureElement, Table, TextElement
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel, TableCell
from docling_core.types.doc.document import Orientation
from docling_core.types.doc.page import BoundingRectangle, TextCell
from pydantic import AnyUrl

_CELL_NUMBERS = (
    "row_span",
    "col_span",
    "start_row_offset_idx",
    "end_row_offset_idx",
    "start_col_offset_idx",
    "end_col_offset_idx",
)
_CELL_FLAGS = ("column_header", "row_header", "row_section", "fillable")


def to_value(element: Any) -> dict[str, Any]:
    """An element as a JSON value. Raises TypeError for a type that no stage of ours makes."""
    value = {"id": element.id, "label": element.label.value, "cluster": _cluster_value(element.cluster)}
    # The types are told apart exactly: Docling derives them from each other.
    if type(element) is TextElement and element.field_item is None:
        link = element.hyperlink
        value["link"] = None if link is None else ["path" if isinstance(link, Path) else "url", str(link)]
        return {"type": "text", "text": element.text, **value}
    if type(element) is Table and not element.field_cells:
        grid = [element.num_rows, element.num_cols, element.orientation.value]
        cells = [_cell_value(cell) for cell in element.table_cells]
        return {"type": "table", "text": element.text, "grid": grid, "cells": cells, **value}
    if type(element) is FigureElement and not element.annotations:
        return {"type": "figure", "text": element.text, **value}
    if type(element) is ContainerElement:
        return {"type": "container", "text": element.text, **value}
    raise TypeError(f"cannot keep an element of type {type(element).__name__}")


def from_value(value: dict[str, Any], page_no: int) -> Any:
    """The element of a JSON value. Raises ValueError, LookupError or TypeError for anything else."""
    common = {
        "id": value["id"],
        "label": DocItemLabel(value["label"]),
        "page_no": page_no,
        "cluster": _cluster(value["cluster"]),
        "text": value["text"],
    }
    if value["type"] == "text":
        return TextElement(**common, hyperlink=_link(value["link"]))
    if value["type"] == "table":
        rows, columns, orientation = value["grid"]
        return Table(
            **common,
            otsl_seq=[],
            num_rows=rows,
            num_cols=columns,
            orientation=Orientation(orientation),
            table_cells=[_cell(cell) for cell in value["cells"]],
        )
    return {"figure": FigureElement, "container": ContainerElement}[value["type"]](**common)


def _link(value: list[str] | None) -> AnyUrl | Path | None:
    if value is None:
        return None
    kind, text = value
    types: dict[str, type[AnyUrl | Path]] = {"path": Path, "url": AnyUrl}
    link: AnyUrl | Path = types[kind](text)
    return link


def _cluster_value(cluster: Cluster, *, nested: bool = False) -> list[Any]:
    cells = [cell.text for cell in cluster.cells] if nested else []
    children = [_cluster_value(child, nested=True) for child in cluster.children]
    return [cluster.id, cluster.label.value, _box_value(cluster.bbox), cluster.confidence, cells, children]


def _cluster(value: list[Any]) -> Cluster:
    number, label, bbox, confidence, cells, children = value
    box = _box(bbox)
    return Cluster(
        id=number,
        label=DocItemLabel(label),
        bbox=box,
        confidence=confidence,
        cells=[_text_cell(index, text, box) for index, text in enumerate(cells)],
        children=[_cluster(child) for child in children],
    )


def _text_cell(index: int, text: str, box: BoundingBox) -> TextCell:
    """A nested cluster's text; its place is the cluster's, since nobody reads a closer one."""
    rect = BoundingRectangle.from_bounding_box(box)
    return TextCell(index=index, text=text, orig=text, rect=rect, from_ocr=False)


def _cell_value(cell: TableCell) -> list[Any]:
    if type(cell) is not TableCell:
        raise TypeError(f"cannot keep a table cell of type {type(cell).__name__}")
    box = None if cell.bbox is None else _box_value(cell.bbox)
    flags = "".join("1" if getattr(cell, name) else "0" for name in _CELL_FLAGS)
    return [cell.text, box, [getattr(cell, name) for name in _CELL_NUMBERS], flags]


def _cell(value: list[Any]) -> TableCell:
    text, box, numbers, flags = value
    fields = dict(zip(_CELL_NUMBERS, numbers, strict=True))
    fields |= {name: flag == "1" for name, flag in zip(_CELL_FLAGS, flags, strict=True)}
    return TableCell(text=text, bbox=None if box is None else _box(box), **fields)


def _box_value(box: BoundingBox) -> list[Any]:
    return [box.l, box.t, box.r, box.b, int(box.coord_origin is CoordOrigin.TOPLEFT)]


def _box(value: list[Any]) -> BoundingBox:
    left, top, right, bottom, from_top = value
    origin = {1: CoordOrigin.TOPLEFT, 0: CoordOrigin.BOTTOMLEFT}[from_top]
    return BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=origin)
