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


def is_log(node: ast.expr) -> bool:
    """Whether an expression is a module's logger."""
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rsplit(".", 1)[-1] in {"log", "_log"}


def methods(node: ast.AST, aliases: dict[str, set[str]]) -> set[str]:
    """The log methods that an expression may be: `log.info`, or a name that was given one or the other."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, set())
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_log(each.value)}


def logged(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, method, name) of each `log.METHOD("name", …)`, and of `write("name")` after `write = log.info if …`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    aliases: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            aliases.setdefault(node.targets[0].id, set()).update(methods(node.value, {}) & ALLOWED.keys())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            for method in methods(node.func, aliases) & ALLOWED.keys():
                yield node.lineno, method, str(node.args[0].value)


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


def test_the_scan_sees_names(tmp_path: Path) -> None:
    """The scan must not pass because it finds nothing."""
    file = tmp_path / "module.py"
    file.write_text(
        'log.info("a.started")\nself._log.error("b.failed", x=1)\n'
        'write = log.info if fine else log.warning\nwrite("c.ended")\nother("d.ended")\n',
        encoding="utf-8",
    )
    assert sorted(logged(file)) == [
        (1, "info", "a.started"),
        (2, "error", "b.failed"),
        (4, "info", "c.ended"),
        (4, "warning", "c.ended"),
    ]
    assert set(get_args(EventName)) == {InfoEvent, WarningEvent, ErrorEvent}
