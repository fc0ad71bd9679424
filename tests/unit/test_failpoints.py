"""The grammar of failpoints, as documented, and refusals that teach it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.failpoints import Action, Failpoint, Point, matching, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        (" ; ", ()),
        ("child.ocr=segv", (Failpoint(point=Point.CHILD_OCR, action=Action.SEGV),)),
        ("child.ocr@page=7=segv", (Failpoint(point=Point.CHILD_OCR, action=Action.SEGV, page=7),)),
        (
            "child.page@page=2,doc=bad-*,ocr=on,attempt=1,child=3=sleep:0.5;",
            (
                Failpoint(
                    point=Point.CHILD_PAGE,
                    action=Action.SLEEP,
                    seconds=0.5,
                    page=2,
                    doc="bad-*",
                    ocr=True,
                    attempt=1,
                    child=3,
                ),
            ),
        ),
        (
            "parent.after_mark=kill; after_store@doc=a*b = exit0",
            (
                Failpoint(point=Point.AFTER_MARK, action=Action.KILL),
                Failpoint(point=Point.AFTER_STORE, action=Action.EXIT0, doc="a*b"),
            ),
        ),
        ("child.start@doc=a@b=hang", (Failpoint(point=Point.CHILD_START, action=Action.HANG, doc="a@b"),)),
    ],
)
def test_read(text: str, expected: tuple[Failpoint, ...]) -> None:
    """Every form of the grammar is read."""
    assert parse(text) == expected


@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("action", Action)
def test_every_action_at_every_point(point: Point, action: Action) -> None:
    """All combinations exist, but for the two that only a child can do."""
    text = f"{point}={action}{':1' if action is Action.SLEEP else ''}"
    if action in {Action.GARBAGE, Action.FLOOD} and point.startswith("parent."):
        with pytest.raises(ValueError, match="for children"):
            parse(text)
    else:
        assert [(entry.point, entry.action) for entry in parse(text)] == [(point, action)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("child.ocr", "write POINT"),
        ("=segv", "write POINT"),
        ("child.tables=segv", "points are child.start"),
        ("child.ocr=die", "actions are segv"),
        ("child.ocr=segv:3", "no action"),
        ("child.ocr=sleep", "sleep:S"),
        ("child.ocr=sleep:x", "sleep:S"),
        ("child.ocr=sleep:-1", "sleep:S"),
        ("child.ocr=sleep:nan", "sleep:S"),
        ("child.ocr=sleep:inf", "sleep:S"),
        ("child.ocr@=segv", "nothing after the @"),
        ("child.ocr@page=segv", "no selector"),
        ("child.ocr@pages=1=segv", "no selector"),
        ("child.ocr@page=0=segv", "no number from 1"),
        ("child.ocr@page=1,page=2=segv", "given twice"),
        ("child.ocr@attempt=x=segv", "no number from 1"),
        ("child.ocr@child=٣=segv", "no number from 1"),
        ("child.ocr@ocr=yes=segv", "ocr=on or ocr=off"),
        ("child.start@page=1=segv", "belongs to no page"),
        ("parent.after_mark@page=1=kill", "belongs to no page"),
    ],
)
def test_refused(text: str, words: str) -> None:
    """A mistake is named together with what would be right."""
    with pytest.raises(ValueError, match=words) as caught:
        parse(f"child.ocr=segv;{text}")
    assert repr(text) in str(caught.value)


@given(st.text(alphabet="childocrpage.@=,;:*0123 segv", max_size=60))
def test_any_text(text: str) -> None:
    """A text is read or refused; nothing else is raised."""
    with suppress(ValueError):
        parse(text)


def test_selectors_narrow() -> None:
    """All selectors must match, and an entry without any fires everywhere at its point."""
    narrow, wide, other = parse(
        "child.ocr@page=7,ocr=on,doc=scan-*,attempt=2,child=1=segv;child.ocr=abort;child.page=kill"
    )
    assert other.action is Action.KILL
    there = {"page": 7, "doc": "scan-1", "ocr": True, "attempt": 2, "child": 1}
    assert matching((narrow, wide, other), Point.CHILD_OCR, **there) == (narrow, wide)  # type: ignore[arg-type]  # one dict of mixed values
    for change in ({"page": 8}, {"doc": "print-1"}, {"ocr": False}, {"attempt": 1}, {"child": 2}):
        assert matching((narrow, wide), Point.CHILD_OCR, **(there | change)) == (wide,)  # type: ignore[arg-type]  # as above


def test_a_selector_never_matches_the_unknown() -> None:
    """Where the caller knows no document, an entry for one document does not fire."""
    assert matching(parse("after_receive@doc=*=kill"), Point.AFTER_RECEIVE) == ()
