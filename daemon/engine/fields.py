"""The fields of a form on a scan: text in a small frame, and what stands beside it and asks for it.

Engine, but pure. Points with the origin at the top left. The layout network calls a form a picture, and a picture's
text is left out. What is asked stands in the frame itself, or left of it on its line, or just above it.
"""

from __future__ import annotations

from collections.abc import Sequence

from docling_core.types.doc import BoundingBox

from daemon.engine.faces import Face
from daemon.engine.pages import Line
from daemon.engine.regions import union

#: Lines of one field, at most.
_FIELD_LINES = 3
#: A form has so many fields, and this share of its lines in them.
_LEAST_FIELDS, _IN_FIELDS = 2, 0.3
#: A question ends so many heights of a line left of the frame, or so many above it, at most.
_LEFT, _ABOVE = 8.0, 1.5


def is_form(faces: Sequence[Face]) -> bool:
    """Whether so many lines stand in frames of their own that this is a form, and no picture."""
    held = sum(len(face.lines) for face in faces if _is_field(face))
    lines = sum(len(face.lines) for face in faces)
    return sum(map(_is_field, faces)) >= _LEAST_FIELDS and held >= _IN_FIELDS * lines


def fields_among(faces: Sequence[Face]) -> list[BoundingBox]:
    """Boxes around each answer and its question; where none is found the answer is left alone."""
    free = [line for face in faces if not _is_field(face) for line in face.lines]
    found: list[BoundingBox] = []
    for face in filter(_is_field, faces):
        if len(face.lines) > 1:
            found.append(union(line.box for line in face.lines))
            continue
        question = _question(face.lines[0].box, face.box, free)
        if question is not None:
            free.remove(question)
            found.append(union((question.box, face.lines[0].box)))
    return found


def _is_field(face: Face) -> bool:
    return face.closed and len(face.lines) <= _FIELD_LINES


def _question(answer: BoundingBox, frame: BoundingBox, free: Sequence[Line]) -> Line | None:
    """The nearest line left of a frame and beside its answer, or else the nearest one above the frame."""
    beside = [
        line
        for line in free
        if line.box.t < (answer.t + answer.b) / 2 < line.box.b
        and -answer.height < frame.l - line.box.r < _LEFT * answer.height
    ]
    if beside:
        return max(beside, key=lambda line: float(line.box.r))
    above = [
        line
        for line in free
        if line.box.l < frame.r
        and line.box.r > frame.l
        and -answer.height / 2 < frame.t - line.box.b < _ABOVE * answer.height
    ]
    return max(above, key=lambda line: float(line.box.b), default=None)
