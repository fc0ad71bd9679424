"""`bulkhead calibrate` on the command line: parse, call, print, exit status; no logic.

Shell. `cli.py` joins it with the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from daemon.cli_shared import Config, Json, print_rows, say, settings_of
from daemon.errors import ExitStatus

if TYPE_CHECKING:
    from daemon.calibrate import Report
    from daemon.calibration import Turn

app = typer.Typer(add_completion=False)


@app.command()
def calibrate(
    paths: Annotated[
        list[Path], typer.Argument(help="Files and folders, as `convert` takes them.", show_default=False)
    ],
    config: Config = None,
    sample: Annotated[int, typer.Option(min=1, help="Documents to measure with, evenly over size.")] = 24,
    seconds: Annotated[
        float, typer.Option(min=1, help="Time for all of it; what is not measured by then is said.")
    ] = 600,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each combination, if there is time.")] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", help="File for the recommended settings as TOML, with the table.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Measure which setting is the fastest on this host.

    Workers, threads and pages per child, on a sample of your own documents, through real daemons in temporary folders.
    Nothing of yours is changed; the settings are printed, or written where `--out` says.
    """
    from daemon import calibrate as calibrating  # noqa: PLC0415 - `--help` must not pay for what only this needs

    settings = settings_of(
        config,
        defaults={"log__level": "error"},
        ledger__table="",
        notices__destination="",
    )
    if out is not None:
        calibrating.check_target(out, force=force)
    inputs = calibrating.sampled(paths, sample)
    console = Console(stderr=True)
    for entry in inputs:
        fields = {"path": str(entry.path), "size_bytes": entry.size_bytes}
        if as_json:
            say(json.dumps({"sampled": fields}))
        else:
            console.print(f"measuring with {entry.path} ({entry.size_bytes:,} bytes)", markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("loading the engine", total=None)

        def on_progress(turn: Turn, done: int, total: int) -> None:
            bar.update(task, description=f"round {turn.round}: {turn.combination}", completed=done, total=total)

        report = calibrating.calibrate(inputs, settings, rounds=rounds, seconds=seconds, on_progress=on_progress)
    _tell(report, as_json=as_json)
    if out is not None and report.choice is not None:
        calibrating.write(out, report.as_toml(), force=force)
        console.print(f"the settings are in {out}", markup=False, highlight=False)
    raise typer.Exit(int(_status(report)))


def _tell(report: Report, *, as_json: bool) -> None:
    from daemon.calibration_report import settings_toml  # noqa: PLC0415 - as above

    if as_json:
        for row in report.rows:
            say(json.dumps({"measured": row.as_json()}))
        for path, why in report.failures.items():
            say(json.dumps({"failed": {"path": str(path), "why": why}}))
        recommended = None
        if report.choice is not None:
            recommended = {
                name: getattr(report.choice.figures.combination, name)
                for name in ("workers", "threads", "pages_per_child")
            }
        because = None if report.choice is None else report.choice.because
        say(
            json.dumps(
                {
                    "recommended": recommended,
                    "because": because,
                    "notes": report.notes,
                    "about": report.about,
                    "interrupted": report.interrupted,
                }
            )
        )
        return
    print_rows(Console(), "measured", [dict(row.as_cells()) for row in report.rows])
    for path, why in report.failures.items():
        Console(stderr=True).print(f"{path}: {why}", markup=False, highlight=False)
    for note in report.notes:
        say(note)
    if report.choice is not None:
        say(f"{report.choice.because}\n\n{settings_toml(report.choice.figures.combination)}")
    elif report.interrupted:
        say("Interrupted: nothing is recommended.")
    else:
        say("No document of the sample has a result, so nothing is recommended.")


def _status(report: Report) -> ExitStatus:
    if report.interrupted:
        return ExitStatus.INTERRUPTED
    return ExitStatus.DOCUMENT_FAILED if report.failures else ExitStatus.DONE
