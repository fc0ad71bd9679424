"""The list of events is the list: what is logged is in it, and what needs a person is explained."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from daemon.events import ErrorEvent, EventName, InfoEvent, WarningEvent

ROOT = Path(__file__).parents[2]
INFO, WARNING, ERROR = (frozenset(get_args(group)) for group in (InfoEvent, WarningEvent, ErrorEvent))
#: The most severe level that each method writes at, and the names that may be written there.
ALLOWED = {
    "debug": INFO | WARNING | ERROR,
    "info": INFO | WARNING | ERROR,
    "warning": WARNING | ERROR,
    "error": ERROR,
    "exception": ERROR,
    "critical": ERROR,
}


def logged(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, method, name) of every `log.METHOD("name", …)` in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        receiver = node.func.value
        is_log = isinstance(receiver, ast.Name | ast.Attribute) and ast.unparse(receiver).rsplit(".", 1)[-1] in {
            "log",
            "_log",
        }
        first = node.args[0]
        if is_log and node.func.attr in ALLOWED and isinstance(first, ast.Constant):
            yield node.lineno, node.func.attr, str(first.value)


@pytest.mark.parametrize("path", sorted((ROOT / "daemon").rglob("*.py")), ids=lambda path: path.name)
def test_every_logged_name_is_listed_at_its_level(path: Path) -> None:
    """Whoever filters by a name or by a level must be able to rely on `events.py`."""
    wrong = [
        f"{path.name}:{line}: log.{method}({name!r})"
        for line, method, name in logged(path)
        if name not in ALLOWED[method]
    ]
    assert not wrong, "not in daemon/events.py at this level; add the name there, with a line of meaning"


def test_no_name_is_listed_twice() -> None:
    """One name has one most severe level."""
    assert len(INFO) + len(WARNING) + len(ERROR) == len(INFO | WARNING | ERROR)


def test_names_are_a_noun_and_a_past_tense_verb() -> None:
    """`noun.verbed`: lower case, one dot, so that a prefix selects a subject."""
    for name in INFO | WARNING | ERROR:
        noun, _, verb = name.partition(".")
        assert noun.isidentifier(), name
        assert verb.isidentifier(), name
        assert name == name.lower()


def test_whoever_is_paged_finds_a_heading() -> None:
    """An ERROR means that a person must act, so its name is a heading in `docs/operating.md`."""
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").splitlines()
    headings = {line.lstrip("#").strip().strip("`") for line in page if line.startswith("#")}
    assert headings >= ERROR, "write what happened and what to do"


def test_the_scan_sees_names() -> None:
    """The scan must not pass because it finds nothing."""
    sources = sorted((ROOT / "daemon").rglob("*.py"))
    assert any(name in {*INFO, *WARNING, *ERROR} for path in sources for _, _, name in logged(path))
    assert get_args(EventName)
