"""What the files of the command line have in common: options, settings, printing.

Shell. Nothing here is a command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from daemon import log
from daemon.config import Settings, load

Config = Annotated[
    Path | None,
    typer.Option("--config", envvar="BULKHEAD_CONFIG", help="TOML file with settings.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, and nothing else, on stdout.")]
StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", help="Where the ledger lies, for instance OUT/.bulkhead after a convert."),
]

#: Wider than any row of ours, but for a URI that then goes on in the next line.
_PIPE_COLUMNS = 400


def say(text: str) -> None:
    """One line on stdout."""
    print(text, flush=True)  # noqa: T201 - this is the command line


def settings_of(config: Path | None, *, defaults: dict[str, object] | None = None, **overrides: Any) -> Settings:
    """The settings, with logs configured by them. Raises ConfigurationError."""
    settings = load(config, defaults=defaults, **overrides)
    log.configure(settings.log)
    for note in settings.notes:
        structlog.get_logger().warning("settings.finding", detail=note)
    return settings


def settings_of_ledger(config: Path | None, state_dir: Path | None) -> Settings:
    """The settings; a `state_dir` that is named means the file in it, whatever table is set."""
    return settings_of(config, state_dir=state_dir, ledger__table=None if state_dir is None else "")


def print_rows(console: Console, title: str, rows: list[dict[str, object]]) -> None:
    """A table whose columns are the keys of its rows."""
    if not rows:
        console.print(f"{title}: none")
        return
    if not console.is_terminal:  # a pipe has no width, and what is cut cannot be pasted into the next command
        console.width = _PIPE_COLUMNS
    table = Table(title=title, box=box.SIMPLE)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
