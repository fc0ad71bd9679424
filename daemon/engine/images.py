"""Image documents: PNG, JPEG and TIFF of any number of frames; each frame is a page.

Engine. Frames are counted in the file's own directory, bounded and with loops detected, before Pillow sees
it; a frame's size is checked before it is decoded; one frame is in memory at a time. Only the three named
formats are ever tried.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator

import numpy as np
from docling.backend.pdf_backend import PdfDocumentBackend
from docling.datamodel.base_models import InputFormat
from docling_core.types.doc import BoundingBox, CoordOrigin, Size
from docling_core.types.doc.page import SegmentedPdfPage
from PIL import Image, ImageFile

from daemon.engine.budget import READING_SCALE, Budget
from daemon.engine.pages import SourcePage, empty_segmented_page
from daemon.errors import DocumentError
from daemon.model import Cause, MediaType

_FORMATS = {MediaType.PNG: "PNG", MediaType.JPEG: "JPEG", MediaType.TIFF: "TIFF"}
#: Resolutions outside are somebody's default, not a measurement; the frame is then 1 pt per pixel.
_CREDIBLE_DPI = (50.0, 1300.0)
#: EXIF's tag, and what brings each of its values upright.
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_QUARTER_TURNS = frozenset({_UPRIGHT[value] for value in (5, 6, 7, 8)})
#: What Pillow raises for a broken file.
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, KeyError, TypeError, IndexError, AttributeError)


class ImageSource(PdfDocumentBackend):  # type: ignore[misc]
    """An open image document; Docling's document backend."""

    has_text_layers = False

    def __init__(self, data: bytes, *, media_type: MediaType, budget: Budget, max_pages: int) -> None:
        """Open `data`. Raises DocumentError: MALFORMED, NO_PAGES or TOO_LARGE."""
        self.input_format = InputFormat.IMAGE
        self.path_or_stream = None
        self.budget = budget
        self.warnings: list[str] = []
        # The budget decides, not Pillow's own guess at a bomb.
        Image.MAX_IMAGE_PIXELS = None
        self._frames = self._count(data, media_type, max_pages)
        self._data, self._format = data, _FORMATS[media_type]
        try:
            self._image = self._open()
        except _BROKEN as error:
            raise DocumentError(Cause.MALFORMED, f"cannot open the {self._format} image: {_say(error)}") from error

    def _open(self) -> Image.Image:
        return Image.open(io.BytesIO(self._data), formats=[self._format])

    def _count(self, data: bytes, media_type: MediaType, max_pages: int) -> int:
        if media_type is not MediaType.TIFF:
            return 1
        frames, looped = count_tiff_frames(data, limit=max_pages + 1)
        if frames == 0:
            raise DocumentError(Cause.NO_PAGES, "cannot convert the TIFF: it has no frames")
        if frames > max_pages:
            detail = f"cannot convert the TIFF: it has more than {max_pages} frames (engine.max_pages)"
            raise DocumentError(Cause.TOO_LARGE, detail)
        if looped:
            self.warnings.append(f"the TIFF's directory runs in a circle; it was left after {frames} frames")
        return frames

    @classmethod
    def supported_formats(cls) -> set[InputFormat]:
        """Docling asks for it."""
        return {InputFormat.IMAGE}

    def page_count(self) -> int:
        """Frames."""
        return self._frames

    def is_valid(self) -> bool:
        """A document that could not be opened has no instance."""
        return True

    def load_page(self, page_no: int) -> ImagePage:
        """The frame with the index `page_no`, decoded. Raises DocumentError: MALFORMED or TOO_LARGE."""
        try:
            if page_no:
                self._image.seek(page_no)
            else:
                # Anew: a JPEG stays as small as it was once decoded, and a TIFF at the frame that it was left at.
                self._image.close()
                self._image = self._open()
            dpi = _credible_dpi(self._image)
            picture, complete = _decode(self._image, self.budget)
        except _BROKEN as error:
            raise DocumentError(Cause.MALFORMED, f"cannot decode frame {page_no + 1}: {_say(error)}") from error
        page = ImagePage(page_no + 1, picture, dpi=dpi, budget=self.budget)
        if not complete:
            page.notes.degraded.append("the image's data end early; the rest of the frame is missing")
        return page

    def iter_pages(self) -> Iterator[ImagePage]:
        """All frames in order."""
        return (self.load_page(index) for index in range(self._frames))

    def unload(self) -> None:
        """Close the file."""
        self._image.close()


class ImagePage(SourcePage):
    """A frame."""

    def __init__(
        self, number: int, picture: tuple[Image.Image, tuple[int, int]], *, dpi: tuple[float, float], budget: Budget
    ) -> None:
        super().__init__(number, budget)
        self._picture, (width, height) = picture
        self._size = Size(width=width * 72 / dpi[0], height=height * 72 / dpi[1])

    def get_size(self) -> Size:
        """Points, by the frame's resolution where that is credible."""
        return self._size

    def picture(self, clip: BoundingBox | None = None, *, wanted: float | None = None) -> tuple[np.ndarray, float]:
        """See SourcePage. Never larger than what was decoded."""
        width, height = self._size.width, self._size.height
        box = clip.to_top_left_origin(height).as_tuple() if clip is not None else (0.0, 0.0, width, height)
        left, top, right, bottom = max(0.0, box[0]), max(0.0, box[1]), min(width, box[2]), min(height, box[3])
        across, down = self._picture.width / width, self._picture.height / height
        scale = min(READING_SCALE if wanted is None else wanted, max(across, down))
        part = (left * across, top * down, right * across, bottom * down)
        picture = self.budget.cut(self._picture, part, width_pt=right - left, height_pt=bottom - top, wanted=scale)
        return picture, picture.shape[1] / (right - left)

    def turn(self, degrees: int) -> None:
        """See SourcePage."""
        turns = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}
        self._picture = self._picture.transpose(turns[degrees])
        if degrees != 180:  # noqa: PLR2004 - a half turn keeps the size
            self._size = Size(width=self._size.height, height=self._size.width)
        self._segmented = None
        self.turned = (self.turned + degrees) % 360

    def read_text(self) -> SegmentedPdfPage:
        """See SourcePage."""
        return empty_segmented_page(self._size)

    def get_bitmap_rects(self, scale: float = 1) -> Iterable[BoundingBox]:
        """The whole page is one."""
        size = self._size
        yield BoundingBox(l=0, t=0, r=size.width, b=size.height, coord_origin=CoordOrigin.TOPLEFT).scaled(scale)


def count_tiff_frames(data: bytes, *, limit: int) -> tuple[int, bool]:
    """Frames of a TIFF or BigTIFF, at most `limit`, and whether the chain of directories bites its tail."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None or len(data) < 8:  # noqa: PLR2004 - a header's bytes
        return 0, False
    big = struct.unpack_from(order + "H", data, 2)[0] == 43  # noqa: PLR2004 - BigTIFF's version
    pointer, count_type, entry_bytes = ("Q", "Q", 20) if big else ("I", "H", 12)
    try:
        offset = struct.unpack_from(order + pointer, data, 8 if big else 4)[0]
        seen: set[int] = set()
        while offset and len(seen) < limit:
            if offset in seen:
                return len(seen), True
            entries = struct.unpack_from(order + count_type, data, offset)[0]
            seen.add(offset)
            offset = struct.unpack_from(
                order + pointer, data, offset + struct.calcsize(count_type) + entries * entry_bytes
            )[0]
    except (struct.error, OverflowError):
        # The chain leads out of the file: what came before counts.
        return len(seen) if "seen" in locals() else 0, False
    return len(seen), False


def _credible_dpi(image: Image.Image) -> tuple[float, float]:
    """Dots per inch, across and down; 72 where the file says nothing that can be believed."""
    try:
        across, down = (float(value) for value in image.info.get("dpi", (72.0, 72.0)))
    except (TypeError, ValueError, ZeroDivisionError):
        return 72.0, 72.0
    least, most = _CREDIBLE_DPI
    if not (least <= across <= most and least <= down <= most):
        return 72.0, 72.0
    return across, down


def _decode(image: Image.Image, budget: Budget) -> tuple[tuple[Image.Image, tuple[int, int]], bool]:
    """The current frame upright within `page_px`, its size as the file has it, and whether its data are complete."""
    size = image.size
    complete = True
    try:
        picture = budget.decode(image, limit_px=budget.page_px)
    except OSError:
        complete = False
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            picture = budget.decode(image, limit_px=budget.page_px)
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = False
    # Pillow applies a TIFF's orientation by itself while decoding, and removes the tag.
    turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    if turn is not None:
        picture = picture.transpose(turn)
        size = (size[1], size[0]) if turn in _QUARTER_TURNS else size
    return (picture, size), complete


def _say(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]
