"""RapidOCR as three plain functions: find lines, tell which way is up, read lines.

Engine. Lines are searched on a picture of the region made smaller and never larger (RapidOCR's default blows a
strip up to 736 px high: seven seconds for a logo), on a larger one again only where the print turns out small, and
cut out of the full picture for recognition.
What a line is read as depends on that line alone, and its memory is bounded: one beyond LONGEST_LINE_PX is read in
pieces. `python -m bench.ocr` says what each choice costs and gives. Pictures are RGB; quads are four corners,
clockwise from the text's own top left, in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from daemon.engine.budget import (
    DETECTION_EDGE_PX,
    LEAST_LINE_PX,
    LINE_HEIGHT_PX,
    LONGEST_LINE_PX,
    SMALL_PRINT_EDGE_PX,
    detection_edge,
    within_edge,
)
from daemon.errors import EngineError

#: Characters that a recogniser must know before it may claim a language.
_ALPHABETS = {
    "en": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "zh": "的一是不了人我在有他這这中大来上國国",
    "ja": "のにはをたがでてとしれさアイウエオ",
    "fr": "àâçéèêëîïôùûœ",
    "de": "äöüßÄÖÜ",
    "es": "áéíóúñ¿¡",
    "it": "àèéìòù",
    "pt": "ãõáéíóúâêôç",
}
#: Long edges of the pictures searched when nothing was found on the larger one.
_SECOND_LOOKS_PX = (640, 320)
#: Print is small when a tenth of so many lines or more are no higher than this on the picture that was searched.
_SMALL_PRINT_PX, _MANY = 15.0, 10
#: So many of the longest lines say which way a page must be turned, and of each a piece so many times its height.
_SAMPLE, _SAMPLE_WIDTH = 6, 10
#: A corner box this much longer than it is high is a line, not a blot.
_ELONGATED = 1.8
#: Confidence below which neither direction reads: vertical writing or noise, not a page on its side.
_LEGIBLE = 0.75
#: Confidence at which the direction that the classifier proposes is taken without reading the other one.
_SURE = 0.9
#: How much surer the recogniser must be in another direction before a page is turned.
_MARGIN = 0.05


class Reader:
    """RapidOCR's detector, direction classifier and recogniser, loaded from the wheel."""

    def __init__(
        self,
        languages: Sequence[str],
        *,
        detection_edge_px: int = DETECTION_EDGE_PX,
        small_print_edge_px: int = SMALL_PRINT_EDGE_PX,
        lines_at_once: int = 1,
        least_line_px: int = LEAST_LINE_PX,
    ) -> None:
        """Load the three models. Raises EngineError when one is missing or cannot read `languages`.

        The rest is what `bench.ocr` compares: the long edge at which lines are searched, and that of a second search
        where the print is small (0: never), how many lines are recognised in one run (padded to the widest of
        them), and to which width a shorter line is padded.
        """
        try:
            from rapidocr import RapidOCR  # noqa: PLC0415 - must follow runtime.prepare
            from rapidocr.ch_ppocr_rec import TextRecInput  # noqa: PLC0415
            from rapidocr.utils.process_img import get_rotate_crop_image  # noqa: PLC0415
        except ImportError as error:
            raise EngineError(f"cannot load the engine: package rapidocr is missing ({error})") from error
        parameters = {
            "Global.log_level": "critical",
            "Det.limit_type": "max",
            "Det.limit_side_len": detection_edge_px,
            # One line at a time by default: batches take no less time per line, and memory for each line.
            "Rec.rec_batch_num": lines_at_once,
            "Rec.rec_img_shape": [3, LINE_HEIGHT_PX, least_line_px],
        }
        engine = RapidOCR(params=parameters)
        try:
            # RapidOCR loads on first use, in a child; we load here, once.
            self._detect: Any = engine._load_det_model()  # noqa: SLF001
            self._classify: Any = engine._load_cls_model()  # noqa: SLF001
            self._recognise: Any = engine._load_rec_model()  # noqa: SLF001
        except OSError as error:
            raise EngineError(f"cannot load the engine: a model of package rapidocr is missing ({error})") from error
        self._edge_px, self._small_print_px = detection_edge_px, small_print_edge_px
        self._input = TextRecInput
        self._cut = get_rotate_crop_image
        self._check_languages(languages)

    def _check_languages(self, languages: Sequence[str]) -> None:
        known = set(self._recognise.postprocess_op.character)
        lacking = {name: "".join(c for c in alphabet if c not in known) for name, alphabet in _ALPHABETS.items()}
        readable = ", ".join(sorted(name for name, missing in lacking.items() if not missing))
        for language in languages:
            missing = lacking.get(language)
            if missing != "":
                why = f"the model of package rapidocr lacks {missing!r}" if missing else "it is not known here"
                raise EngineError(
                    f"cannot promise OCR in {language!r}: {why}; name only such as can be read, which are {readable} "
                    "(engine.languages)"
                )

    def find(self, picture: np.ndarray) -> list[np.ndarray]:
        """Quads of the text lines in a picture, top to bottom."""
        if min(picture.shape[:2]) < 8:  # noqa: PLR2004 - no letter is that small
            return []
        quads = self._searched(picture, self._edge_px)
        edge = detection_edge(picture.shape[1], picture.shape[0], edge_px=self._edge_px)
        shown = edge / max(picture.shape[:2])
        if shown < 1.0 and self._edge_px < self._small_print_px and is_small_print(quads, shown):
            quads = self._searched(picture, self._small_print_px)
        for edge in _SECOND_LOOKS_PX:
            # A lone word on a large sheet, or a letter as high as the page, is only seen from afar.
            if quads or max(picture.shape[:2]) <= edge:
                break
            small, factor = within_edge(picture, edge)
            quads = [quad / np.float32(factor) for quad in self._detected(small)]
        return quads

    def _searched(self, picture: np.ndarray, edge_px: int) -> list[np.ndarray]:
        """Quads of the lines in a picture as it looks within `edge_px`, and within the area that goes with it."""
        self._detect.limit_side_len = edge_px
        edge = detection_edge(picture.shape[1], picture.shape[0], edge_px=edge_px)
        if edge == edge_px:
            return self._detected(picture)
        small, factor = within_edge(picture, edge)
        return [quad / np.float32(factor) for quad in self._detected(small)]

    def _detected(self, picture: np.ndarray) -> list[np.ndarray]:
        found = self._detect(np.ascontiguousarray(picture[:, :, ::-1]))
        return [] if found.boxes is None else [np.asarray(quad, dtype=np.float32) for quad in found.boxes]

    def cut(self, picture: np.ndarray, quad: np.ndarray) -> np.ndarray:
        """The line in a quad, upright; a standing one is laid down."""
        return np.ascontiguousarray(self._cut(picture, quad.copy()))

    def read(self, lines: Sequence[np.ndarray]) -> list[tuple[str, float]]:
        """Text and confidence (0 to 1) of each line picture."""
        usable = [line if min(line.shape[:2]) > 0 else np.full((8, 8, 3), 255, np.uint8) for line in lines]
        if not usable:
            return []
        parts = [pieces(line) for line in usable]
        flat = [np.ascontiguousarray(piece[:, :, ::-1]) for part in parts for piece in part]
        result = self._recognise(self._input(img=flat))
        read = iter(zip(map(str, result.txts), map(float, result.scores), strict=True))
        return [joined([next(read) for _ in part]) for part in parts]

    def turn_needed(self, picture: np.ndarray, quads: Sequence[np.ndarray]) -> int:
        """Degrees clockwise (0, 90, 180, 270) by which the picture must be turned to be read.

        The direction classifier proposes, the recogniser's confidence decides: a page of vertical writing
        or of noise stays as it is.
        """
        standing = [quad for quad in quads if _height(quad) > _ELONGATED * _width(quad)]
        lying = [quad for quad in quads if _width(quad) > _ELONGATED * _height(quad)]
        if len(standing) > len(lying):
            # `cut` lays a standing line down by a quarter turn against the clock.
            return self._quarter_turn([_part(self.cut(picture, quad)) for quad in _longest(standing)])
        lines = [_part(self.cut(picture, quad)) for quad in _longest(lying)]
        if not lines or not self._seems_upside_down(lines):
            return 0
        upright, upside_down = self._confidence(lines), self._confidence([_half_turn(line) for line in lines])
        return 180 if upside_down > upright + _MARGIN else 0

    def _quarter_turn(self, laid: Sequence[np.ndarray]) -> int:
        """270 when lines that were turned against the clock read best so, 90 when upside down, 0 when neither reads."""
        ways = [(270, laid), (90, [_half_turn(line) for line in laid])]
        if self._seems_upside_down(laid):
            ways.reverse()
        (likely, lines), (other, turned) = ways
        confidence = self._confidence(lines)
        if confidence >= _SURE:
            return likely
        opposite = self._confidence(turned)
        if max(confidence, opposite) < _LEGIBLE:
            return 0
        return likely if confidence >= opposite else other

    def _seems_upside_down(self, lines: Sequence[np.ndarray]) -> bool:
        votes = self._classify([np.ascontiguousarray(line[:, :, ::-1]) for line in lines]).cls_res
        return bool(sum(label == "180" for label, _ in votes) * 2 >= len(votes))

    def _confidence(self, lines: Sequence[np.ndarray]) -> float:
        """Mean confidence over the characters read."""
        read = self.read(lines)
        weight = sum(len(text) for text, _ in read)
        return sum(len(text) * score for text, score in read) / weight if weight else 0.0

    def warm_up(self) -> None:
        """One run of each network on a blank picture."""
        blank = np.full((64, 320, 3), 255, dtype=np.uint8)
        self.find(blank)
        self._classify([blank])
        self.read([blank])


def is_small_print(quads: Sequence[np.ndarray], scale: float) -> bool:
    """Whether lines found on a picture shown at `scale` are so low there that others may have been missed."""
    heights = [scale * min(_width(quad), _height(quad)) for quad in quads]
    return len(heights) >= _MANY and float(np.percentile(heights, 10)) < _SMALL_PRINT_PX


def pieces(line: np.ndarray) -> list[np.ndarray]:
    """The line, or where it is longer than LONGEST_LINE_PX at the recogniser's height, its pieces from left to right.

    It is cut in the last quarter of what fits, where the columns differ least from top to bottom: between words.
    """
    height = line.shape[0]
    most = LONGEST_LINE_PX * height // LINE_HEIGHT_PX
    parts = []
    while line.shape[1] > most:
        first = most * 3 // 4
        contrast = np.ptp(line[:, first:most], axis=0).max(axis=-1).astype(np.float32)
        gap = max(1, min(height // 3, contrast.size))  # about a blank's width
        at = first + gap // 2 + int(np.argmin(np.convolve(contrast, np.ones(gap, np.float32), "valid")))
        parts.append(line[:, :at])
        line = line[:, at:]
    return [*parts, line]


def joined(read: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """What the pieces of a line say together, and its mean confidence over the characters."""
    if len(read) == 1:
        return read[0]
    said = [(text, score) for text, score in read if text.strip()]
    weight = sum(len(text) for text, _ in said)
    mean = sum(len(text) * score for text, score in said) / weight if weight else 0.0
    return " ".join(text.strip() for text, _ in said), mean


def turn_quad(quad: np.ndarray, degrees: int, shape: tuple[int, ...]) -> np.ndarray:
    """Where a quad lies after its picture, of `shape` (height, width), was turned clockwise."""
    height, width = shape[:2]
    x, y = quad[:, 0], quad[:, 1]
    if degrees == 90:  # noqa: PLR2004
        points, first = np.stack([height - y, x], axis=1), 1
    elif degrees == 180:  # noqa: PLR2004
        points, first = np.stack([width - x, height - y], axis=1), 2
    elif degrees == 270:  # noqa: PLR2004
        points, first = np.stack([y, width - x], axis=1), -1
    else:
        return quad
    return np.roll(points, first, axis=0).astype(np.float32)


def turn_picture(picture: np.ndarray, degrees: int) -> np.ndarray:
    """The picture turned clockwise."""
    return np.ascontiguousarray(np.rot90(picture, -(degrees // 90) % 4))


def _half_turn(line: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(cv2.rotate(line, cv2.ROTATE_180))


def _part(line: np.ndarray) -> np.ndarray:
    """Enough of a line to tell whether it reads."""
    return np.ascontiguousarray(line[:, : _SAMPLE_WIDTH * line.shape[0]])


def _longest(quads: Sequence[np.ndarray]) -> list[np.ndarray]:
    return sorted(quads, key=lambda quad: -max(_width(quad), _height(quad)))[:_SAMPLE]


def _width(quad: np.ndarray) -> float:
    return float(max(np.linalg.norm(quad[0] - quad[1]), np.linalg.norm(quad[3] - quad[2])))


def _height(quad: np.ndarray) -> float:
    return float(max(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[1] - quad[2])))
