"""How large anything is ever rendered or decoded: the only place that decides it, and that renders.

Engine. Rules: the size is computed before anything is allocated, from the box that the renderer itself
uses (crop box, `/Rotate` and `UserUnit` applied); nothing else in the package calls `get_pixmap`, decodes
an image or resizes one upwards. Lengths in `_pt` are 1/72 inch, `scale` is pixels per point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pymupdf
from PIL import Image

from daemon.engine.skew import turn_back
from daemon.errors import DocumentError
from daemon.model import Cause

#: 200 dots per inch: more does not help the recogniser, and its time grows with it.
READING_SCALE = 200 / 72
#: The layout network of text pages sees a page at 72 dots per inch.
LAYOUT_SCALE = 1.0
#: Long edge of the picture on which text lines are searched; recognition then cuts them out of the larger one.
#: Detection takes 0.7 s at 960 px and 2.0 s at 1568 px on one thread; on five scans the words agreed to 0.98 or better.
DETECTION_EDGE_PX = 960
#: And its area: that of a letter page at this edge, so that a square sheet takes no more memory than a letter.
DETECTION_AREA_PX = 960 * 742
#: The same where the print is small: 0.22 s more of CPU, and words 0.958, 0.966 and 0.994 became 0.992, 0.975 and 1.0.
SMALL_PRINT_EDGE_PX = 1280
#: Height of a line's picture as the recogniser's network takes it.
LINE_HEIGHT_PX = 48
#: A shorter line is padded to this width. RapidOCR's 320 makes a page number as dear as half a line.
LEAST_LINE_PX = 96
#: A longer line is read in pieces: the network takes 70 MB for 2,000 px of width and 510 MB for 16,000. A line of
#: 10 pt across a letter page has 2,000.
LONGEST_LINE_PX = 4096
#: Ruling lines are searched at 144 dots per inch: a hairline is a third of a pixel there.
RULES_SCALE = 2.0
#: Long edge of the picture on which ink is searched.
INK_EDGE_PX = 400
#: The preview's frame.
PREVIEW_SIZE_PX = (300, 400)
#: A page narrower than this in both directions, at 72 dpi, is enlarged for reading up to here.
_LEAST_EDGE_PX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one engine, in pixels; see the settings of the same names."""

    page_px: int
    image_px: int
    preview_px: int

    def scale(self, width_pt: float, height_pt: float, *, wanted: float, limit_px: int | None = None) -> float:
        """The largest scale up to `wanted` at which the area stays within `limit_px` (default: `page_px`).

        Never zero for a page with an area; raises DocumentError(TOO_LARGE) for a page whose size is no number.
        """
        area = width_pt * height_pt
        if not math.isfinite(area) or area <= 0:
            raise DocumentError(Cause.MALFORMED, f"cannot render a page of {width_pt} by {height_pt} pt")
        return min(wanted, math.sqrt((limit_px or self.page_px) / area))

    def render(self, page: Any, *, wanted: float, clip: Any = None, limit_px: int | None = None) -> np.ndarray:
        """The picture of a PyMuPDF page, or of its part `clip` (pt), as RGB of shape (height, width, 3)."""
        box = pymupdf.Rect(clip) & page.rect if clip is not None else page.rect
        scale = self.scale(box.width, box.height, wanted=wanted, limit_px=limit_px)
        # A strip must not round to nothing.
        matrix = pymupdf.Matrix(max(scale, 1 / box.width), max(scale, 1 / box.height))
        pixmap = page.get_pixmap(matrix=matrix, clip=box, colorspace=pymupdf.csRGB, alpha=False)
        picture = np.frombuffer(pixmap.samples, dtype=np.uint8).reshape(pixmap.height, pixmap.width, 3)
        return picture.copy()

    def cut(
        self,
        picture: Image.Image,
        part: tuple[float, float, float, float],
        *,
        width_pt: float,
        height_pt: float,
        wanted: float,
    ) -> np.ndarray:
        """The part of a decoded picture (left, top, right, bottom in its pixels) that is so large on paper, as RGB."""
        scale = self.scale(width_pt, height_pt, wanted=wanted)
        size = (max(1, round(width_pt * scale)), max(1, round(height_pt * scale)))
        return np.asarray(picture.resize(size, Image.Resampling.LANCZOS, box=part, reducing_gap=3.0))

    @contextmanager
    def within(self, page: Any) -> Iterator[tuple[Any, float]]:
        """A page that may be rendered at 72 dpi, and its scale in relation to `page`.

        PyMuPDF's predictor renders by itself, at 72 dpi, whatever the page's size, and takes the places of a
        rotated page's text as if it were not rotated; a page beyond the budget, or rotated, is set into a
        smaller or upright one first, its text included.
        """
        rect = page.rect
        scale = self.scale(rect.width, rect.height, wanted=LAYOUT_SCALE)
        if scale >= LAYOUT_SCALE and not page.rotation:
            yield page, 1.0
            return
        rotation = page.rotation
        with pymupdf.open() as small:
            target = small.new_page(width=rect.width * scale, height=rect.height * scale)
            # `show_pdf_page` fits by the rotated size and draws unrotated: it must see no rotation.
            page.set_rotation(0)
            try:
                target.show_pdf_page(target.rect, page.parent, page.number, rotate=-rotation)
            finally:
                page.set_rotation(rotation)
            yield target, scale

    def check_frame(self, width_px: int, height_px: int) -> None:
        """Refuse a frame of more pixels than `image_px`, before it is decoded.

        Raises DocumentError(TOO_LARGE).
        """
        if width_px <= 0 or height_px <= 0:
            raise DocumentError(Cause.MALFORMED, f"cannot decode a frame of {width_px} by {height_px} px")
        if width_px * height_px > self.image_px:
            detail = (
                f"cannot decode a frame of {width_px} by {height_px} px: the limit is {self.image_px} px in all "
                "(engine.image_budget_px)"
            )
            raise DocumentError(Cause.TOO_LARGE, detail)

    def decode(self, frame: Image.Image, *, limit_px: int) -> Image.Image:
        """The frame in RGB with at most `limit_px` pixels; JPEG is scaled while decoding, so it may be any size.

        Raises DocumentError(TOO_LARGE) for a frame beyond `image_px` in a format that cannot do that.
        """
        width, height = frame.size
        factor = min(1.0, math.sqrt(limit_px / max(1, width * height)))
        if frame.format == "JPEG" and factor < 1.0:
            frame.draft("RGB", (math.ceil(width * factor), math.ceil(height * factor)))
        self.check_frame(*frame.size)
        picture = _to_rgb(frame)
        return shrink(picture, limit_px=limit_px)


def _to_rgb(frame: Image.Image) -> Image.Image:
    """RGB on white; sixteen-bit greys are scaled, since plain conversion would clip them to white."""
    if frame.mode in {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}:
        values = np.asarray(frame, dtype=np.float32)
        top = float(values.max(initial=0.0)) or 1.0
        # Eight-bit values in a wide mode stay what they are.
        grey = values if top <= 255 else values * (255.0 / max(top, 65535.0 if top > 4095 else top))  # noqa: PLR2004 - largest values of 8, 12 and 16 bits
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if frame.mode in {"RGBA", "LA", "PA"} or "transparency" in frame.info:
        layered = frame.convert("RGBA")
        paper = Image.new("RGBA", layered.size, "white")
        paper.alpha_composite(layered)
        return paper.convert("RGB")
    return frame.convert("RGB")


def shrink(picture: Image.Image, *, limit_px: int) -> Image.Image:
    """The picture with at most `limit_px` pixels, its proportions kept."""
    width, height = picture.size
    factor = math.sqrt(limit_px / max(1, width * height))
    if factor >= 1.0:
        return picture
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)


def within_frame(picture: np.ndarray) -> Image.Image:
    """The picture no larger than the preview's frame."""
    image = Image.fromarray(picture)
    image.thumbnail(PREVIEW_SIZE_PX, Image.Resampling.HAMMING)
    return image


def detection_edge(width_px: int, height_px: int, *, edge_px: int = DETECTION_EDGE_PX) -> int:
    """The long edge, in px and at most `edge_px`, at which lines are searched in a picture of this shape."""
    shorter, longer = sorted((width_px, height_px))
    widest = math.sqrt(DETECTION_AREA_PX * longer / max(shorter, 1)) * edge_px / DETECTION_EDGE_PX
    return min(edge_px, math.floor(widest))


def within_edge(picture: np.ndarray, edge_px: int) -> tuple[np.ndarray, float]:
    """The picture with no edge beyond `edge_px`, and the factor by which it was made smaller (≤ 1)."""
    height, width = picture.shape[:2]
    factor = min(1.0, edge_px / max(height, width))
    if factor >= 1.0:
        return picture, 1.0
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    smaller = Image.fromarray(picture).resize(size, Image.Resampling.BOX, reducing_gap=2.0)
    return np.asarray(smaller), factor


def straight_within_edge(picture: np.ndarray, edge_px: int, *, skew: float) -> tuple[np.ndarray, float]:
    """The same with text that slopes clockwise by `skew` degrees turned back; what comes in from outside is white."""
    small, factor = within_edge(picture, edge_px)
    if not skew:
        return small, factor
    height, width = small.shape[:2]
    white = (255, 255, 255)
    straight = cv2.warpAffine(
        np.ascontiguousarray(small), turn_back(skew, small.shape), (width, height), borderValue=white
    )
    return straight, factor
