"""Rows, columns and cells of tables.

Engine. A Docling table stage without a network of its own: PyMuPDF's layout predictor has found the grid on
the way and left it on the page. A table without one (scanned, or drawn inside a picture) gets its rows and
columns from the gaps between its text. Its texts are the cluster's own lines: each is in the table once, whatever
the grid says, and a line that crosses columns is cut between words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any, ClassVar

from docling.datamodel.base_models import Cluster, Page, Table, TableStructurePrediction
from docling.datamodel.document import ConversionResult
from docling.datamodel.pipeline_options import BaseTableStructureOptions
from docling.models.base_table_model import BaseTableStructureModel
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel, TableCell

from daemon.engine.api import Progress
from daemon.engine.gaps import grid_from_gaps
from daemon.engine.glyphs import composed, sets_accents_apart
from daemon.engine.lanes import LEAST_GAP, Piece, interval, parted, pieces_of
from daemon.engine.lattice import MOST_CELLS
from daemon.engine.pages import Grid, SourcePage
from daemon.engine.regions import union
from daemon.engine.ruled import checked
from daemon.engine.rules import Rules
from daemon.engine.splitting import split
from daemon.engine.strokes import rules_on
from daemon.engine.wording import clean
from daemon.model import Stage

_TABLES = frozenset({DocItemLabel.TABLE, DocItemLabel.DOCUMENT_INDEX})
#: A detected line's box reaches so many heights beyond its letters on each side.
_BEYOND = 0.2
_BULLETS = frozenset("•◦▪▫●○■□∙·")
#: An entry of a table of contents: title with its leader, page number in Arabic or Roman figures.
_ENTRY = re.compile(r"^(.*?(?:\s?[.·…_]){3,})\s*([A-Z]?-?\d{1,5}|[ivxlcdm]{1,7})$", re.IGNORECASE | re.DOTALL)
#: Share of the rows that must be such.
_MOST_ENTRIES = 0.6


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
    """The table in a cluster: every one of the cluster's lines in it, once."""
    texts = [(clean(c.text).strip(), c.to_bounding_box()) for c in cluster.cells if c.text.strip()]
    grid = source.grids.get(cluster.id)
    if grid is not None and grid.cells and (len(grid.rows) - 1) * (len(grid.columns) - 1) <= MOST_CELLS:
        source.notes.engines["tables"] = "pymupdf"
    else:
        source.notes.engines["tables"] = "text gaps"
        grid = grid_from_gaps(texts, cluster.bbox)
    # What is drawn in a table of contents are leaders and links.
    rules = rules_on(source) if cluster.label is DocItemLabel.TABLE else Rules()
    grid, cells = filled(against_rules(grid, texts, cluster.bbox, rules), texts)
    return Table(
        label=cluster.label,
        id=cluster.id,
        text="",
        otsl_seq=[],
        num_rows=len(grid.rows) - 1,
        num_cols=len(grid.columns) - 1,
        table_cells=cells,
        cluster=cluster,
        page_no=page_no,
    )


def against_rules(grid: Grid, texts: Sequence[tuple[str, BoundingBox]], around: BoundingBox, rules: Rules) -> Grid:
    """The grid as the page's rules and the lines of its text have it; the predicted one where they say nothing."""
    near = rules.around(around, median(box.height for _, box in texts)) if texts else Rules()
    pieces = pieces_of(grid.words, near) if grid.words else [Piece(text=text, box=_inked(box)) for text, box in texts]
    result = split(checked(grid, near, pieces, around), pieces)
    if (len(result.rows) - 1) * (len(result.columns) - 1) > MOST_CELLS:
        return grid
    result.rules = near
    return result


def _inked(box: BoundingBox) -> BoundingBox:
    """About where the letters of a detected line are: its box reaches beyond its ends, over rules and neighbours."""
    beyond = min(_BEYOND * box.height, box.width / 4)
    return box.model_copy(update={"l": box.l + beyond, "r": box.r - beyond})


def filled(grid: Grid, texts: Sequence[tuple[str, BoundingBox]]) -> tuple[Grid, list[TableCell]]:
    """The grid's cells with the lines of text in them; a table of contents gets a column for its page numbers."""
    ends: dict[tuple[int, int], tuple[int, int]] = {}
    for row, row_end, column, column_end in grid.cells:
        known = ends.get((row, column), (0, 0))
        ends[row, column] = (max(known[0], row_end), max(known[1], column_end))
    empty = [_cell(grid, "", (row, end[0]), (column, end[1])) for (row, column), end in sorted(ends.items())]
    cells = _without_overlaps(empty)
    by_place = {
        (row, column): cell
        for cell in cells
        for row in range(cell.start_row_offset_idx, cell.end_row_offset_idx)
        for column in range(cell.start_col_offset_idx, cell.end_col_offset_idx)
    }
    for text, box in _pieces(grid, texts):
        row = interval(grid.rows, (box.t + box.b) / 2)
        column = interval(grid.columns, min((box.l + box.r) / 2, box.l + box.height))
        if (row, column) not in by_place:
            by_place[row, column] = _cell(grid, "", (row, row + 1), (column, column + 1))
            cells.append(by_place[row, column])
        cell = by_place[row, column]
        cell.text = f"{cell.text} {text}".strip()
    apart = sets_accents_apart(cell.text for cell in cells)
    for cell in cells:
        cell.text = composed(cell.text, surely=apart)
    cells.sort(key=_place)
    return _with_page_numbers(grid, cells)


def _place(cell: TableCell) -> tuple[int, int]:
    return cell.start_row_offset_idx, cell.start_col_offset_idx


def _pieces(grid: Grid, texts: Sequence[tuple[str, BoundingBox]]) -> list[tuple[str, BoundingBox]]:
    """The lines, in reading order; one that crosses columns is cut where it has gaps, if MuPDF reads the same in it."""
    ordered: list[tuple[str, BoundingBox]] = []
    heights: dict[int, list[tuple[str, BoundingBox]]] = {}
    for word in grid.words:
        heights.setdefault(int(word[1].t + word[1].b) // 2, []).append(word)
    for row in _rows(texts):
        for text, box in row:
            crosses = any(box.l + 0.3 * box.height < x < box.r - 0.3 * box.height for x in grid.columns[1:-1])
            near = (word for height in range(int(box.t) - 2, int(box.b) + 3) for word in heights.get(height, ()))
            chunks = _chunks([word for word in near if _centre_in(word[1], box)], grid.rules) if crosses else []
            same = "".join(said for said, _ in chunks).replace(" ", "") == text.replace(" ", "")
            ordered += chunks if same else [(text, box)]
    return ordered


def _chunks(words: Sequence[tuple[str, BoundingBox]], rules: Rules) -> list[tuple[str, BoundingBox]]:
    """Words that only a blank separates and no rule, put together: a heading over several columns is one piece."""
    chunks: list[tuple[str, BoundingBox]] = []
    for word, box in sorted(words, key=lambda piece: float(piece[1].l)):
        for text, place in _before_bullets(clean(word), box):
            last = chunks[-1] if chunks else None
            follows = last is not None and place.l - last[1].r < LEAST_GAP * place.height
            if last is not None and follows and text[0] not in _BULLETS and not parted(rules, last[1], place):
                chunks[-1] = (f"{last[0]} {text}", union((last[1], place)))
            else:
                chunks.append((text, place))
    return chunks


def _before_bullets(word: str, box: BoundingBox) -> list[tuple[str, BoundingBox]]:
    """A word, cut before a bullet in it, which belongs to the next column; its letters taken for equally wide."""
    at = next((index for index, sign in enumerate(word) if index and sign in _BULLETS), None)
    if at is None:
        return [(word, box)]
    middle = box.l + box.width * at / len(word)
    return [(word[:at], box.model_copy(update={"r": middle})), (word[at:], box.model_copy(update={"l": middle}))]


def _rows(texts: Sequence[tuple[str, BoundingBox]]) -> list[list[tuple[str, BoundingBox]]]:
    """Lines from top to bottom, those side by side from left to right."""
    rows: list[list[tuple[str, BoundingBox]]] = []
    for text, box in sorted(texts, key=lambda piece: (piece[1].t + piece[1].b, piece[1].l)):
        if rows and (box.t + box.b) / 2 < rows[-1][0][1].b:
            rows[-1].append((text, box))
        else:
            rows.append([(text, box)])
    return [sorted(row, key=lambda piece: float(piece[1].l)) for row in rows]


def _centre_in(box: BoundingBox, around: BoundingBox) -> bool:
    """Whether a word is one of a line's: the parsers agree on places, less so on heights."""
    return bool(around.l <= (box.l + box.r) / 2 <= around.r and around.t - 1 <= (box.t + box.b) / 2 <= around.b + 1)


def _with_page_numbers(grid: Grid, cells: list[TableCell]) -> tuple[Grid, list[TableCell]]:
    """A table of contents in one column becomes one of two: dots lead to its numbers, so no gap shows them."""
    entries = [_ENTRY.match(cell.text) for cell in cells]
    if len(grid.columns) != 2 or len(cells) < 2 or sum(map(bool, entries)) < _MOST_ENTRIES * len(cells):  # noqa: PLR2004 - one column; rows
        return grid, cells
    left, right = grid.columns
    # As wide as the longest number, were its letters as wide as high.
    edge = max(left, right - max(len(entry[2]) * _line_height(grid) for entry in entries if entry))
    split = Grid(rows=grid.rows, columns=[left, edge, right], cells=[])
    result = []
    for cell, entry in zip(cells, entries, strict=True):
        rows = (cell.start_row_offset_idx, cell.end_row_offset_idx)
        if entry is None:
            result.append(_cell(split, cell.text, rows, (0, 1)))
        else:
            result += [_cell(split, entry[1], rows, (0, 1)), _cell(split, entry[2], rows, (1, 2))]
    return split, result


def _line_height(grid: Grid) -> float:
    return (grid.rows[-1] - grid.rows[0]) / (2 * (len(grid.rows) - 1))


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
