"""Rows, columns and cells of tables.

Engine. A Docling table stage without a network of its own: PyMuPDF's layout predictor has found the grid on
the way and left it on the page. A table without one (scanned, or drawn inside a picture) gets its rows and
columns from the gaps between its text. No text is dropped: what no grid holds becomes a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, ClassVar

from docling.datamodel.base_models import Cluster, Page, Table, TableStructurePrediction
from docling.datamodel.document import ConversionResult
from docling.datamodel.pipeline_options import BaseTableStructureOptions
from docling.models.base_table_model import BaseTableStructureModel
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel, TableCell

from daemon.engine.api import Progress
from daemon.engine.pages import Grid, SourcePage
from daemon.engine.wording import clean
from daemon.model import Stage

_TABLES = frozenset({DocItemLabel.TABLE, DocItemLabel.DOCUMENT_INDEX})
#: A gap between columns is at least this many times the height of a line.
_COLUMN_GAP = 0.9
#: The same where as many rows have the gap in the same place; detected boxes all but touch.
_ALIGNED_GAP, _LEAST_ROWS = 0.05, 3
#: By which share a row's pieces may be more or fewer than those of the usual row.
_USUAL = 0.35
#: A grid beyond this is a mistake of the predictor, and would be a mountain of empty cells.
_MOST_CELLS = 20_000


class PageTableOptions(BaseTableStructureOptions):  # type: ignore[misc]
    """No choices."""

    kind: ClassVar[str] = "bulkhead_tables"


class PageTableModel(BaseTableStructureModel):  # type: ignore[misc]
    """Docling's table stage."""

    def __init__(self, *, options: PageTableOptions, **_: Any) -> None:
        self.options = options
        self.enabled = True
        #: Replaced for each document.
        self.progress: Progress | None = None

    @classmethod
    def get_options_type(cls) -> type[BaseTableStructureOptions]:
        """Docling asks for it."""
        return PageTableOptions

    def predict_tables(self, conv_res: ConversionResult, pages: Sequence[Page]) -> Sequence[TableStructurePrediction]:
        """The structure of every table cluster of each page."""
        del conv_res
        return [self._tables(page, page._backend) for page in pages]  # noqa: SLF001 - Docling's stages reach the backend so

    def _tables(self, page: Page, source: SourcePage) -> TableStructurePrediction:
        layout = page.predictions.layout
        clusters = [c for c in layout.clusters if c.label in _TABLES] if layout is not None else []
        if clusters and self.progress is not None:
            self.progress.stage(Stage.TABLES, source.number)
        return TableStructurePrediction(table_map={c.id: structure(c, source, page.page_no) for c in clusters})


def structure(cluster: Cluster, source: SourcePage, page_no: int) -> Table:
    """The table in a cluster, its cells filled."""
    texts = [(clean(c.text).strip(), c.to_bounding_box()) for c in cluster.cells if c.text.strip()]
    grid = source.grids.get(cluster.id)
    by_rules = grid is not None and bool(grid.cells) and (len(grid.rows) - 1) * (len(grid.columns) - 1) <= _MOST_CELLS
    if by_rules:
        assert grid is not None
        source.notes.engines["tables"] = "pymupdf"
    else:
        source.notes.engines["tables"] = "text gaps"
        grid = grid_from_gaps(texts, cluster.bbox)
    rows, columns = len(grid.rows) - 1, len(grid.columns) - 1
    cells = _filled(grid, texts) if not by_rules or any(c.from_ocr for c in cluster.cells) else _joined(grid)
    return Table(
        label=cluster.label,
        id=cluster.id,
        text="",
        otsl_seq=[],
        num_rows=rows,
        num_cols=columns,
        table_cells=cells,
        cluster=cluster,
        page_no=page_no,
    )


def grid_from_gaps(texts: Sequence[tuple[str, BoundingBox]], around: BoundingBox) -> Grid:
    """Rows and columns where the text leaves gaps; one cell when it leaves none."""
    boxes = [box for _, box in texts]
    if not boxes:
        return Grid(rows=[around.t, around.b], columns=[around.l, around.r], cells=[])
    height = sorted(box.height for box in boxes)[len(boxes) // 2]
    rows = _boundaries([(b.t, b.b) for b in boxes], 0.0, (around.t, around.b), shrink=0.25)
    usual = _usual_rows(boxes, rows)
    # What keeps apart in row after row is a column, however near; in a row or two it may be a wide blank.
    least_gap = (_ALIGNED_GAP if len(usual) >= _LEAST_ROWS else _COLUMN_GAP) * height
    columns = _boundaries([(b.l, b.r) for row in usual for b in row], least_gap, (around.l, around.r))
    return Grid(rows=rows, columns=columns, cells=[])


def _usual_rows(boxes: Sequence[BoundingBox], rows: Sequence[float]) -> list[list[BoundingBox]]:
    """The boxes by row, of rows with about as many as most: a heading across columns says nothing about these.

    All rows where none is usual.
    """
    by_row: dict[int, list[BoundingBox]] = {}
    for box in boxes:
        by_row.setdefault(_index(rows, (box.t + box.b) / 2), []).append(box)
    usual = median(len(row) for row in by_row.values())
    return [row for row in by_row.values() if abs(len(row) - usual) <= _USUAL * usual] or list(by_row.values())


def _boundaries(
    spans: Sequence[tuple[float, float]], least_gap: float, ends: tuple[float, float], *, shrink: float = 0.0
) -> list[float]:
    """Middles of the gaps that no span crosses, between the two ends; spans are shortened by `shrink` at each end."""
    shortened = sorted((a + shrink * (b - a), b - shrink * (b - a)) for a, b in spans)
    result = [ends[0]]
    reach = shortened[0][1]
    for start, end in shortened[1:]:
        if start - reach > least_gap:
            result.append((reach + start) / 2)
        reach = max(reach, end)
    return [*result, ends[1]]


def _joined(grid: Grid) -> list[TableCell]:
    """The predictor's assignments, several pieces of text in one place joined in their order."""
    pieces: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for text, row, row_end, column, column_end in grid.cells:
        pieces.setdefault((row, column), []).append((clean(text).strip(), row_end, column_end))
    return _without_overlaps(
        [
            _cell(
                grid,
                " ".join(text for text, _, _ in parts if text),
                (row, max(end for _, end, _ in parts)),
                (column, max(end for _, _, end in parts)),
            )
            for (row, column), parts in sorted(pieces.items())
        ]
    )


def _without_overlaps(cells: list[TableCell]) -> list[TableCell]:
    """Cells cut back so that none lies on another: Docling's grid shows only the last of those that do."""
    taken = {(cell.start_row_offset_idx, cell.start_col_offset_idx) for cell in cells}
    for cell in cells:
        row, column = cell.start_row_offset_idx, cell.start_col_offset_idx
        rows, columns = range(row, cell.end_row_offset_idx), range(column, cell.end_col_offset_idx)
        if any((r, c) in taken for r in rows for c in columns if (r, c) != (row, column)):
            cell.row_span = cell.col_span = 1
            cell.end_row_offset_idx, cell.end_col_offset_idx = row + 1, column + 1
        taken.update(
            (r, c) for r in range(row, cell.end_row_offset_idx) for c in range(column, cell.end_col_offset_idx)
        )
    return cells


def _filled(grid: Grid, texts: Sequence[tuple[str, BoundingBox]]) -> list[TableCell]:
    """Each piece of text in the row and column of its middle, a piece that crosses columns in its first."""
    places: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for text, box in texts:
        row = _index(grid.rows, (box.t + box.b) / 2)
        column = _index(grid.columns, min((box.l + box.r) / 2, box.l + box.height))
        places.setdefault((row, column), []).append((box.t, box.l, text))
    return [
        _cell(grid, " ".join(text for _, _, text in sorted(parts)), (row, row + 1), (column, column + 1))
        for (row, column), parts in sorted(places.items())
    ]


def _cell(grid: Grid, text: str, rows: tuple[int, int], columns: tuple[int, int]) -> TableCell:
    last_row, last_column = len(grid.rows) - 1, len(grid.columns) - 1
    row, column = min(rows[0], last_row - 1), min(columns[0], last_column - 1)
    row_end, column_end = min(max(rows[1], row + 1), last_row), min(max(columns[1], column + 1), last_column)
    return TableCell(
        text=text,
        bbox=BoundingBox(
            l=grid.columns[column],
            t=grid.rows[row],
            r=grid.columns[column_end],
            b=grid.rows[row_end],
            coord_origin=CoordOrigin.TOPLEFT,
        ),
        row_span=row_end - row,
        col_span=column_end - column,
        start_row_offset_idx=row,
        end_row_offset_idx=row_end,
        start_col_offset_idx=column,
        end_col_offset_idx=column_end,
        column_header=row == 0,
    )


def _index(boundaries: Sequence[float], value: float) -> int:
    """The interval that holds `value`, the outer ones reaching on for ever."""
    inner = boundaries[1:-1]
    return sum(value >= boundary for boundary in inner)
