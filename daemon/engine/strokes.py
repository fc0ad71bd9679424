"""Where the ruling lines of a page are found: in what its PDF draws, or in its picture.

Engine. A hostile page draws millions of lines, so both ways are bounded: by a count that is known before anything is
copied, and by the size of a picture. Nothing here raises for what a page holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np

from daemon.engine.budget import RULES_SCALE, straight_within_edge
from daemon.engine.pages import SourcePage
from daemon.engine.rules import Rules, rules_of

#: A page that draws more shapes, or more corners of them, is a map or an attack.
MOST_SHAPES, MOST_CORNERS = 20_000, 100_000
#: Rules found in a picture; more of them are a pattern.
_MOST_FOUND = 5_000
#: A rule in a picture is at least so long, in points: longer than the strokes of print.
_LEAST_PT = 24.0
#: And no thicker.
_THICKEST_PT = 3.0
#: It is darker than both its sides by so many grey levels; paper and JPEG stay below.
_DARKER = 30
_WHITE = 250
#: An image over this share of a page is what the page shows.
_WHOLE_PAGE = 0.7


def rules_on(page: SourcePage) -> Rules:
    """The rules of a page, looked for once: in what it draws where that is known and bounded, else in its picture."""
    if page.rules is None:
        decoder = page.shapes()
        found = drawn(decoder, page.get_size().height) if decoder is not None else None
        page.rules = _seen(page) if found is None or _is_scan(page, found) else found
    return page.rules


def _seen(page: SourcePage) -> Rules:
    picture, scale = page.picture(wanted=RULES_SCALE)
    straight, factor = straight_within_edge(picture, max(picture.shape), skew=page.skew)
    return pictured(straight, scale * factor)


def _is_scan(page: SourcePage, found: Rules) -> bool:
    """Whether a page is a picture with a hidden text layer: it draws no rule, and shows some."""
    size = page.get_size()
    images = page.get_bitmap_rects() if not (found.across or found.down) else ()
    return any(box.area() >= _WHOLE_PAGE * size.width * size.height for box in images)


def drawn(decoder: Any, page_height: float) -> Rules | None:
    """The rules that docling-parse's decoder of a page has seen; None where they are too many to look at."""
    shapes = decoder.get_page_shapes()
    if len(shapes) > MOST_SHAPES:
        return None
    corners = 0
    for shape in shapes:
        corners += max(shape.get_i(), default=0)
        if corners > MOST_CORNERS:
            return None
    lines = (tuple(line) for line in decoder.get_shape_lines(horizontal=True, vertical=True, tolerance=0.1))
    boxes = [*lines, *_thin_boxes(shapes)]
    return rules_of((left, page_height - top, right, page_height - bottom) for left, bottom, right, top in boxes)


def _thin_boxes(shapes: Any) -> Iterator[tuple[float, float, float, float]]:
    """Boxes (left, bottom, right, top) around the shapes that are visible on paper: a rule is often a filled one."""
    for shape in shapes:
        if min(shape.get_rgb_filling_ops()) >= _WHITE:
            continue
        xs, ys = shape.get_x(), shape.get_y()
        if len(xs) in {4, 5} and len(set(shape.get_i())) == 2:  # noqa: PLR2004 - one closed outline
            yield min(xs), min(ys), max(xs), max(ys)


def pictured(picture: np.ndarray, scale: float) -> Rules:
    """The rules in a page's picture (RGB, `scale` pixels per point) that lies straight."""
    grey = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY)
    least, thickest = max(8, round(_LEAST_PT * scale)), 2 * math.ceil(_THICKEST_PT * scale / 2) + 1
    crossings = _thin(grey, (thickest, thickest))
    found = [
        *_long(_thin(grey, (1, thickest)), crossings, (least, 1)),
        *_long(_thin(grey, (thickest, 1)), crossings, (1, least)),
    ]
    if len(found) > _MOST_FOUND:
        return Rules()
    return rules_of((left / scale, top / scale, right / scale, bottom / scale) for left, top, right, bottom in found)


def _thin(grey: np.ndarray, kernel: tuple[int, int]) -> np.ndarray:
    """1 where the picture is darker than on both sides of a kernel (width, height): an edge of a shaded cell is not."""
    dark = cv2.morphologyEx(grey, cv2.MORPH_BLACKHAT, np.ones(kernel[::-1], np.uint8))
    ink: np.ndarray = (dark > _DARKER).astype(np.uint8)
    return ink


def _long(ink: np.ndarray, crossings: np.ndarray, kernel: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Boxes (px) of ink as long as a kernel (width, height); where lines cross it is dark along both, and no gap."""
    # A line that drifts by a pixel on its way is still one.
    spread = cv2.dilate(ink, np.ones((1, 3) if kernel[0] == 1 else (3, 1), np.uint8))
    whole = cv2.morphologyEx(cv2.bitwise_or(spread, crossings), cv2.MORPH_OPEN, np.ones(kernel[::-1], np.uint8))
    _, _, boxes, _ = cv2.connectedComponentsWithStats(
        cv2.bitwise_and(whole, cv2.bitwise_or(ink, crossings)), connectivity=8
    )
    return [(left, top, left + width, top + height) for left, top, width, height, _ in boxes[1:].tolist()]
