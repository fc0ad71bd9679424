"""A scan that lay askew: by how much, and how it looks straight.

Engine. Degrees are those by which the text is turned clockwise. Quads are four corners in a picture's pixels,
clockwise from the text's own top left. Lines are cut out of the picture as it is; their places, and the picture that
the layout network sees, are straight, since regions are upright boxes and those of a skewed page overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np

#: Less is no skew: boxes of lines a page wide overlap by a quarter of a line from here on.
_LEAST_DEGREES = 0.2
#: More is no skew either but slanted writing, or a drawing.
_MOST_DEGREES = 15.0
#: A line must be so many times as long as it is high before its slope says anything.
_LONG = 5.0
#: Share of the length of all long lines that must run within `_ALIKE_DEGREES` of the page's skew.
_MOST = 0.7
_ALIKE_DEGREES = 1.0


def skew_of(quads: Sequence[np.ndarray]) -> float:
    """By how much the lines of a page slope, 0 where they do not, do not agree, or are none."""
    slopes: list[tuple[float, float]] = []
    for quad in quads:
        across = (quad[1] - quad[0] + quad[2] - quad[3]) / 2
        down = (quad[3] - quad[0] + quad[2] - quad[1]) / 2
        length, height = float(np.linalg.norm(across)), float(np.linalg.norm(down))
        if across[0] > 0 and length > _LONG * height:
            slopes.append((math.degrees(math.atan2(float(across[1]), float(across[0]))), length))
    if not slopes:
        return 0.0
    skew = _weighted_median(slopes)
    alike = sum(length for slope, length in slopes if abs(slope - skew) <= _ALIKE_DEGREES)
    agreed = alike >= _MOST * sum(length for _, length in slopes)
    return skew if agreed and _LEAST_DEGREES <= abs(skew) <= _MOST_DEGREES else 0.0


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """The value at which half of all weight is reached; pairs of value and weight."""
    ordered = sorted(values)
    half, reached = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]


def straight_quad(quad: np.ndarray, degrees: float, shape: tuple[int, ...]) -> np.ndarray:
    """Where a quad lies after its picture, of `shape` (height, width), was turned back about its middle."""
    turned: np.ndarray = cv2.transform(quad[None].astype(np.float32), turn_back(degrees, shape))[0]
    return turned


def turn_back(degrees: float, shape: tuple[int, ...]) -> np.ndarray:
    """The matrix, of shape (2, 3), that turns a picture of `shape` back about its middle."""
    height, width = shape[:2]
    matrix: np.ndarray = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    return matrix
