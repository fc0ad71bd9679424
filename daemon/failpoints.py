"""Failpoints: the grammar that names where to die, for which document, and how.

Core. `POINT[@SELECTOR]=ACTION`, separated by `;`, selectors joined by `,`. Nothing dies here: `faults.fire`
does what an action says. Every mistake in a text is refused with the words that would have been right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Point(StrEnum):
    """Where a process may be told to die."""

    #: The child has read its job and has not opened the document.
    CHILD_START = "child.start"
    #: The first stage of a page was announced.
    CHILD_PAGE = "child.page"
    #: Before OCR of a page.
    CHILD_OCR = "child.ocr"
    #: Before layout of a page.
    CHILD_LAYOUT = "child.layout"
    #: Everything is converted; the result is not sent.
    CHILD_RESULT = "child.result"
    #: The parent's steps, each right after it was confirmed. The prefix `parent.` may be left out.
    AFTER_RECEIVE = "parent.after_receive"
    AFTER_MARK = "parent.after_mark"
    AFTER_FETCH = "parent.after_fetch"
    AFTER_STORE = "parent.after_store"
    AFTER_SETTLE = "parent.after_settle"
    AFTER_DEAD_LETTER = "parent.after_dead_letter"


class Action(StrEnum):
    """How to die, or to misbehave."""

    #: A read through a null pointer in native code.
    SEGV = "segv"
    ABORT = "abort"
    #: SIGKILL to itself.
    KILL = "kill"
    #: Leave silently with status 0.
    EXIT0 = "exit0"
    #: Stay in native code for ever, holding the GIL.
    HANG = "hang"
    #: Allocate and touch memory until stopped.
    OOM = "oom"
    #: Send bytes that are no frame. Children only.
    GARBAGE = "garbage"
    #: Send frames beyond the limit. Children only.
    FLOOD = "flood"
    #: Raise an exception that nobody expects.
    RAISE = "raise"
    #: `sleep:S`: wait S seconds, then go on.
    SLEEP = "sleep"


_PAGE_POINTS = frozenset({Point.CHILD_PAGE, Point.CHILD_OCR, Point.CHILD_LAYOUT})
_FRAME_ACTIONS = frozenset({Action.GARBAGE, Action.FLOOD})
_SELECTORS = ("page", "doc", "ocr", "attempt", "child")
#: An hour: longer than any drill, and a typing error does not outlive the shift.
MAX_SLEEP_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    """One entry; a selector that is None matches everything."""

    point: Point
    action: Action
    #: Length of `sleep:S`; 0 for every other action.
    seconds: float = 0.0
    page: int | None = None
    #: Shell pattern, compared with the document's id and case.
    doc: str | None = None
    ocr: bool | None = None
    attempt: int | None = None
    #: The n-th child of that document's attempt, from 1.
    child: int | None = None

    def matches(
        self,
        point: Point,
        *,
        page: int | None = None,
        doc: str | None = None,
        ocr: bool | None = None,
        attempt: int | None = None,
        child: int | None = None,
    ) -> bool:
        """Whether this entry fires at `point`; a selector never matches what the caller does not know."""
        return (
            self.point is point
            and (self.doc is None or (doc is not None and fnmatchcase(doc, self.doc)))
            and self.page in {None, page}
            and self.ocr in {None, ocr}
            and self.attempt in {None, attempt}
            and self.child in {None, child}
        )


def matching(
    failpoints: Iterable[Failpoint],
    point: Point,
    *,
    page: int | None = None,
    doc: str | None = None,
    ocr: bool | None = None,
    attempt: int | None = None,
    child: int | None = None,
) -> tuple[Failpoint, ...]:
    """Return the entries that fire at `point`, in the order in which they were written."""
    return tuple(
        entry for entry in failpoints if entry.matches(point, page=page, doc=doc, ocr=ocr, attempt=attempt, child=child)
    )


def parse(text: str) -> tuple[Failpoint, ...]:
    """Read failpoints; empty entries (a trailing `;`) are skipped.

    Raises ValueError whose message names the entry, what is wrong with it and what would be right.
    """
    return tuple(_entry(part) for raw in text.split(";") if (part := raw.strip()))


def _entry(text: str) -> Failpoint:
    head, equals, action_text = (part.strip() for part in text.rpartition("="))
    if not equals or not head:
        raise ValueError(f"cannot read failpoint {text!r}: write POINT[@SELECTOR]=ACTION, for example child.ocr=segv")
    point_text, at, selector_text = (part.strip() for part in head.partition("@"))
    point = _point(point_text, text)
    action, seconds = _action(action_text, text)
    if action in _FRAME_ACTIONS and not point.startswith("child."):
        raise ValueError(f"cannot read failpoint {text!r}: {action} is for children, the parent sends no frames")
    if at and not selector_text:
        raise ValueError(f"cannot read failpoint {text!r}: nothing after the @; selectors are {', '.join(_SELECTORS)}")
    chosen = _selectors(selector_text, text) if at else {}
    if "page" in chosen and point not in _PAGE_POINTS:
        raise ValueError(f"cannot read failpoint {text!r}: {point} belongs to no page; leave page= out")
    return Failpoint(
        point=point,
        action=action,
        seconds=seconds,
        page=_count("page", chosen, text),
        doc=chosen.get("doc"),
        ocr=_switch(chosen, text),
        attempt=_count("attempt", chosen, text),
        child=_count("child", chosen, text),
    )


def _point(name: str, text: str) -> Point:
    for candidate in (name, f"parent.{name}"):
        if candidate in set(Point):
            return Point(candidate)
    raise ValueError(f"cannot read failpoint {text!r}: no point {name!r}; points are {', '.join(Point)}")


def _action(name: str, text: str) -> tuple[Action, float]:
    word, colon, seconds_text = name.partition(":")
    if word not in set(Action) or (colon and word != Action.SLEEP):
        raise ValueError(f"cannot read failpoint {text!r}: no action {name!r}; actions are {', '.join(Action)}:S")
    if word != Action.SLEEP:
        return Action(word), 0.0
    try:
        seconds = float(seconds_text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_SLEEP_S:
        raise ValueError(f"cannot read failpoint {text!r}: write sleep:S with 0 to {MAX_SLEEP_S:.0f} seconds")
    return Action.SLEEP, seconds


def _selectors(selector_text: str, text: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for raw in selector_text.split(","):
        name, equals, value = (part.strip() for part in raw.partition("="))
        if name not in _SELECTORS or not equals or not value:
            raise ValueError(
                f"cannot read failpoint {text!r}: {raw.strip()!r} is no selector; "
                f"write NAME=VALUE with {', '.join(_SELECTORS)}",
            )
        if name in chosen:
            raise ValueError(f"cannot read failpoint {text!r}: {name}= is given twice; write two failpoints")
        chosen[name] = value
    return chosen


def _count(name: str, chosen: dict[str, str], text: str) -> int | None:
    value = chosen.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) < 10 and int(value) > 0):  # noqa: PLR2004  nine digits are more than any count
        raise ValueError(f"cannot read failpoint {text!r}: {name}={value} is no number from 1")
    return int(value)


def _switch(chosen: dict[str, str], text: str) -> bool | None:
    value = chosen.get("ocr")
    if value not in {None, "on", "off"}:
        raise ValueError(f"cannot read failpoint {text!r}: write ocr=on or ocr=off")
    return None if value is None else value == "on"
