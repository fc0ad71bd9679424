"""Regions of a page: PyMuPDF's graph network where there is text, rapid-layout where there is a picture only.

Engine. A Docling layout stage. PyMuPDF's predictor sees text boxes and returns nothing without them; the
table grids that it finds on the way are left on the page for the table stage. Rapid-layout's boxes overlap
and repeat, so they are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pymupdf
from docling.datamodel.base_models import Cluster, LayoutPrediction, Page
from docling.datamodel.document import ConversionResult
from docling.datamodel.pipeline_options import BaseLayoutOptions
from docling.models.base_layout_model import BaseLayoutModel
from docling_core.types.doc import BoundingBox, CoordOrigin, DocItemLabel

from daemon.engine.api import Progress
from daemon.engine.budget import Budget, straight_within_edge
from daemon.engine.figures import with_figures
from daemon.engine.pages import Grid, SourcePage
from daemon.engine.pdf import PdfPage
from daemon.engine.regions import merge_clusters
from daemon.engine.runtime import quiet
from daemon.errors import EngineError
from daemon.model import Stage

#: Classes of the CDLA network. Its equations are plain text: Docling leaves out a formula's own text.
_CDLA = {
    "text": DocItemLabel.TEXT,
    "title": DocItemLabel.SECTION_HEADER,
    "figure": DocItemLabel.PICTURE,
    "figure_caption": DocItemLabel.CAPTION,
    "table": DocItemLabel.TABLE,
    "table_caption": DocItemLabel.CAPTION,
    "header": DocItemLabel.PAGE_HEADER,
    "footer": DocItemLabel.PAGE_FOOTER,
    "reference": DocItemLabel.TEXT,
    "equation": DocItemLabel.TEXT,
}
#: Long edge of the picture given to rapid-layout, whose network sees 800 px.
_PICTURE_EDGE_PX = 1000
#: PyMuPDF's predictor reports no confidence; Docling drops what is below 0.5.
_SURE = 0.9


class PageLayoutOptions(BaseLayoutOptions):  # type: ignore[misc]
    """No choices: the models are those in the wheels."""

    kind: ClassVar[str] = "bulkhead_layout"


class PageLayoutModel(BaseLayoutModel):  # type: ignore[misc]
    """Docling's layout stage on the two bundled predictors."""

    def __init__(self, *, options: PageLayoutOptions, **_: Any) -> None:
        """Load both predictors. Raises EngineError naming the package."""
        self.options = options
        #: Replaced for each document.
        self.progress: Progress | None = None
        if not callable(pymupdf._get_layout):  # noqa: SLF001 - the only sign that `Page.get_layout` will work
            raise EngineError("cannot load the engine: package pymupdf has no layout models (pymupdf.layout)")
        try:
            from rapid_layout import RapidLayout  # noqa: PLC0415 - must follow runtime.prepare
        except ImportError as error:
            raise EngineError(f"cannot load the engine: package rapid-layout is missing ({error})") from error
        with quiet():
            self._pictures = RapidLayout(conf_thresh=0.4)

    @classmethod
    def get_options_type(cls) -> type[BaseLayoutOptions]:
        """Docling asks for it."""
        return PageLayoutOptions

    def predict_layout(self, conv_res: ConversionResult, pages: Sequence[Page]) -> Sequence[LayoutPrediction]:
        """Clusters of each page, without cells; Docling assigns these later."""
        del conv_res
        return [LayoutPrediction(clusters=self._clusters(page._backend)) for page in pages]  # noqa: SLF001 - Docling's stages reach the backend so

    def _clusters(self, page: SourcePage) -> list[Cluster]:
        if self.progress is not None:
            self.progress.stage(Stage.LAYOUT, page.number)
        if isinstance(page, PdfPage) and any(cell.text.strip() for cell in page.get_text_cells()):
            clusters = self.by_text(page)
            if clusters:
                page.notes.engines["layout"] = "pymupdf"
                return with_figures(clusters, page)
        page.notes.engines["layout"] = "rapid-layout"
        return self.by_picture(page)

    def by_text(self, page: PdfPage) -> list[Cluster]:
        """PyMuPDF's regions, in its reading order; table grids go to `page.grids`."""
        with page.budget.within(page.mupdf) as (small, scale):
            small.get_layout(return_raw=True)
            groups = small.layout_information or []
            tabled = any(group.get("table_grid") is not None for group in groups)
            words = [(word[4], _box(word, 1 / scale)) for word in small.get_text("words")] if tabled else []
        clusters: list[Cluster] = []
        for group in groups:
            box = _box(group["group_bbox"], 1 / scale)
            if box.width <= 0 or box.height <= 0:
                continue
            number = len(clusters)
            clusters.append(Cluster(id=number, label=_label(group["class_name"]), bbox=box, confidence=_SURE))
            if group.get("table_grid") is not None:
                page.grids[number] = _grid(group, box, 1 / scale, words)
                # The other parser's boxes of the same text are a little larger; none may be left outside.
                clusters[number].bbox = box.expand_by_scale(0.005, 0.01)
        return clusters

    def by_picture(self, page: SourcePage) -> list[Cluster]:
        """Rapid-layout's regions, merged."""
        size = page.get_size()
        picture, scale = page.picture(wanted=_PICTURE_EDGE_PX / max(size.width, size.height))
        small, factor = straight_within_edge(picture, _PICTURE_EDGE_PX, skew=page.skew)
        found = self._pictures(np.ascontiguousarray(small[:, :, ::-1]))
        clusters: list[Cluster] = []
        for box, name, score in zip(found.boxes or (), found.class_names or (), found.scores or (), strict=True):
            region = _box(box, 1 / (scale * factor))
            if region.width > 0 and region.height > 0:
                label = _CDLA.get(str(name).lower(), DocItemLabel.TEXT)
                # The network's own threshold was applied; Docling's would drop more.
                sure = max(float(score), 0.5)
                clusters.append(Cluster(id=len(clusters), label=label, bbox=region, confidence=sure))
        return merge_clusters(clusters)

    def warm_up(self, budget: Budget, page: PdfPage) -> None:
        """One run of each network."""
        del budget
        self.by_text(page)
        page.grids.clear()
        self._pictures(np.full((64, 64, 3), 255, dtype=np.uint8))


def _label(name: str) -> DocItemLabel:
    """PyMuPDF's class names are Docling's, but for their hyphens."""
    label = DocItemLabel(name.replace("-", "_"))
    return DocItemLabel.SECTION_HEADER if label is DocItemLabel.TITLE else label


def _box(values: Sequence[float], factor: float) -> BoundingBox:
    left, top, right, bottom = (float(value) * factor for value in values[:4])
    return BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)


def _grid(group: dict[str, Any], box: BoundingBox, factor: float, words: Sequence[tuple[str, BoundingBox]]) -> Grid:
    """The predictor's rules, which lie between rows and columns, as boundaries; not its texts: it tears words."""
    rules = group["table_grid"]
    rows = [box.t, *(box.t + float(y) * factor for y in sorted(rules.h_lines)), box.b]
    columns = [box.l, *(box.l + float(x) * factor for x in sorted(rules.v_lines)), box.r]
    cells = [
        (int(cell.row_start), int(cell.row_end), int(cell.col_start), int(cell.col_end))
        for cell in group["table_cells"] or ()
    ]
    return Grid(rows=rows, columns=columns, cells=cells, words=[word for word in words if word[1].overlaps(box)])
