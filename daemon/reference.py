"""Writes `docs/reference.md` from the code, so that the page cannot say otherwise: `python -m daemon.reference`.

Shell. `--check` writes nothing and leaves with 1 when the page differs. The text of an entry is its docstring or
the `#:` lines above it; an entry without one is an error.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from daemon import cli, errors, events, failpoints, metrics, metrics_textfile, model
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.config_section import Section
from daemon.config_sources import PREFIX, SEPARATOR

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

INTRODUCTION = """\
# Reference

Made from the code by `python -m daemon.reference`; a test fails when the two differ. Do not edit.
"""

SETTINGS_TEXT = """\
Strongest first: an option of the command, a variable of the environment, a file in `$CREDENTIALS_DIRECTORY` (named like
`sentry__dsn`), the TOML file (`--config`, else `BULKHEAD_CONFIG`, else `/etc/bulkhead/bulkhead.toml` if it exists), the
default. A variable is `BULKHEAD_` and the name, with `__` between section and name; an empty one takes back what a
weaker place sets; a list is written as `a,b` or as JSON. An unknown name is a refused start.
"""

METRICS_TEXT = """\
Those of the daemon at `http://METRICS.LISTEN/metrics`; those of `sweep` and `audit` in `metrics.textfile_dir`, as
`bulkhead_sweep.prom` (every run) and `bulkhead_sweep_success.prom` (every run that came to its end), alike for `audit`.
"""

FAILPOINTS_TEXT = """\
`BULKHEAD_FAILPOINTS="POINT[@SELECTOR]=ACTION;…"`, with `BULKHEAD_ALLOW_FAILPOINTS=true`, kills children and the daemon
on purpose. Selectors are joined by `,`: `page=N`, `doc=GLOB`, `ocr=on|off`, `attempt=N`, `child=N`.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Commands\n", *_commands(), "## Settings\n", SETTINGS_TEXT, *_settings()]
    parts += ["## Exit statuses\n", _table(("status", "name", "meaning"), _statuses())]
    parts += ["## Causes\n", "Why a document, or an attempt, ended as it did.\n"]
    parts += [_table(("cause", "whose problem", "retry", "meaning"), _causes())]
    parts += ["## States of a page\n", _table(("state", "meaning"), _members(model.PageState))]
    parts += ["## Log events\n", "ERROR events have a heading in [operating.md](operating.md).\n"]
    parts += [_table(("event", "level, at most", "meaning"), _events())]
    parts += ["## Metrics\n", METRICS_TEXT, _table(("metric", "kind", "labels", "meaning"), _metrics())]
    parts += ["## Failpoints\n", FAILPOINTS_TEXT, _table(("point", "when"), _members(failpoints.Point))]
    parts += [_table(("action", "what it does"), _members(failpoints.Action))]
    return "\n".join(parts)


def comments(module: ModuleType) -> dict[int, str]:
    """For each line of a module that follows `#:` lines: their text, joined."""
    found: dict[int, str] = {}
    gathered: list[str] = []
    for number, line in enumerate(inspect.getsource(module).splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("#:"):
            gathered.append(stripped.removeprefix("#:").strip())
            continue
        if gathered:
            found[number] = " ".join(gathered)
        gathered = []
    return found


def _members(kind: type[Enum]) -> list[tuple[str, str]]:
    """(value, meaning) of each member; a member may speak for itself, the enum as a whole may not."""
    module = sys.modules[kind.__module__]
    said = comments(module)
    rows = []
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            assigned = [each for each in node.body if isinstance(each, ast.Assign)]
            for each in assigned:
                name = ast.unparse(each.targets[0])
                rows.append((f"`{kind[name].value}`", said.get(each.lineno, name.replace("_", " ").lower())))
    assert len(rows) == len(kind), f"every member of {kind.__name__} is in its source"
    return rows


def _statuses() -> list[tuple[str, str, str]]:
    """Exit statuses by number."""
    names = {f"`{member.value}`": member.name.lower() for member in errors.ExitStatus}
    return [(value, names[value], meaning) for value, meaning in _members(errors.ExitStatus)]


def _causes() -> list[tuple[str, str, str, str]]:
    """Causes with whose problem each is."""
    rows = []
    for value, meaning in _members(model.Cause):
        cause = model.Cause(value.strip("`"))
        if cause in {model.Cause.CONVERTED, model.Cause.SLICED}:
            rows.append((value, "nobody's", "", meaning))
            continue
        retry = "never" if cause in model.PERMANENT_CAUSES else "yes" if cause in model.WORLD_CAUSES else "by a person"
        rows.append((value, str(model.problem_of(cause)), retry, meaning))
    return rows


def _events() -> list[tuple[str, str, str]]:
    """Events by name, with the most severe level at which each is written."""
    said = comments(events)
    groups = {"InfoEvent": "INFO", "WarningEvent": "WARNING", "ErrorEvent": "ERROR"}
    rows = []
    for node in ast.walk(ast.parse(inspect.getsource(events))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in groups:
            level = groups[ast.unparse(node.targets[0])]
            names = [each for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
            rows += [(f"`{each.value!s}`", level, said[each.lineno]) for each in names]
    return sorted(rows)


def _metrics() -> list[tuple[str, str, str, str]]:
    """Ours, the daemon's first."""
    registries = [metrics.DaemonMetrics(clock=SystemClock()).registry]
    for command in ("sweep", "audit"):
        figures = metrics_textfile.Figures(documents=0)
        registries += [
            metrics_textfile.ran(command, figures, 0.0, 0.0, succeeded=True),
            metrics_textfile.success(command, 0.0),
        ]
    rows = [row for registry in registries for row in metrics.described(registry)]
    return [(f"`{name}`", kind, labels, meaning) for name, kind, labels, meaning in rows]


def _settings() -> Iterator[str]:
    """One table per section."""
    alone = {name: field for name, field in Settings.model_fields.items() if not _section(field)}
    yield "### Top level\n"
    yield _setting_table((), alone)
    for name, field in Settings.model_fields.items():
        section = _section(field)
        if section:
            yield f"### [{name}]\n"
            yield f"{inspect.getdoc(section)}\n"
            yield _setting_table((name,), section.model_fields)


def _section(field: FieldInfo) -> type[Section] | None:
    """The section that a field holds, if it is one."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _setting_table(path: tuple[str, ...], fields: dict[str, FieldInfo]) -> str:
    """Name, variable, kind, default and meaning."""
    rows = [
        (
            f"`{name}`",
            f"`{PREFIX}{SEPARATOR.join((*path, name)).upper()}`",
            _kind(field),
            _default(field.default),
            field.description or "",
        )
        for name, field in fields.items()
    ]
    return _table(("name", "variable", "kind", "default", "meaning"), rows)


def _kind(field: FieldInfo) -> str:
    """What may be written, with bounds."""
    bounds = _bounds(field.metadata)
    return f"{_type(field.annotation)}{bounds}"


def _type(kind: Any) -> str:
    """A type in an operator's words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(arguments[0]) + _bounds(arguments[1:])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if arguments:
        return " or ".join(_type(each) for each in arguments if each is not NoneType)
    names = {
        bool: "true or false",
        int: "whole number",
        float: "number",
        str: "text",
        Path: "path",
        SecretStr: "secret",
    }
    return names[kind]


def _bounds(metadata: Any) -> str:
    """Bounds out of annotations, for instance `, ≥ 1, ≤ 20`."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = []
    for entry in metadata:
        nested = entry.metadata if isinstance(entry, FieldInfo) else [entry]
        for constraint in nested:
            found += [
                f", {sign} {getattr(constraint, name):,}" for name, sign in signs.items() if hasattr(constraint, name)
            ]
    return "".join(found)


def _default(value: Any) -> str:
    """A default as it would be written in the TOML file."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is PydanticUndefined or value is None or value in ("", ()):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{json.dumps([str(each) for each in value])}`"
    return f"`{value}`"


def _commands() -> Iterator[str]:
    """Help of each command, without the width of anybody's terminal."""
    # Typer's own copy of click has no public type.
    group: Any = typer.main.get_command(cli.app)
    for name, command in _leaves(group, ""):
        yield f"### bulkhead {name}\n"
        yield f"{inspect.cleandoc(command.help or '')}\n"
        rows = []
        for parameter in command.params:
            option = parameter.param_type_name == "option"
            label = (
                ", ".join((*parameter.opts, *parameter.secondary_opts)) if option else (parameter.name or "").upper()
            )
            rows.append((f"`{label}`", getattr(parameter, "help", None) or ""))
        if rows:
            yield _table(("argument or option", "meaning"), rows)


def _leaves(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or with `--check` compare it."""
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit(f"{PAGE} differs from the code: run `python -m daemon.reference` and commit the page")


if __name__ == "__main__":
    main()
