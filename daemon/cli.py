"""The command line: parse, call, print, exit status; no logic.

Shell. `--json` prints one JSON object per line on stdout and nothing else; logs and the progress bar go to stderr.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import structlog
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from daemon import __version__, cli_calibrate, cli_recovery
from daemon.cli_shared import Config, Json, StateDir, print_rows, say, settings_of, settings_of_ledger
from daemon.clock import SystemClock
from daemon.errors import BulkheadError, ConfigurationError, ExitStatus, OperatorError
from daemon.model import Options
from daemon.notify import Service

app = typer.Typer(
    name="bulkhead",
    help="Turn other people's documents into Markdown, in children that may die.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Ocr = Annotated[bool, typer.Option("--ocr/--no-ocr", help="Read pictures of text, or use text layers only.")]


def main() -> None:
    """Run the command and leave with its exit status."""
    try:
        app()
    except OperatorError as error:
        _leave(error, error.status)
    except BulkheadError as error:
        _leave(error, ExitStatus.UNAVAILABLE)


def _leave(error: BulkheadError, status: ExitStatus) -> NoReturn:
    print(f"bulkhead: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
    sys.exit(int(status))


def _version(wanted: bool) -> None:
    if wanted:
        say(f"bulkhead {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    del version


@app.command()
def run(config: Config = None) -> None:
    """Be the daemon.

    Receive, convert, publish, until told to stop: SIGTERM and Ctrl+C drain, Ctrl+C twice leaves at once.
    """
    from daemon import run as daemon_run  # noqa: PLC0415 - `--help` must not pay for the AWS SDK

    service = Service.from_environment()
    # A watchdog's SIGABRT, and a crash, leave the place of every thread in the journal.
    faulthandler.enable()
    with service.hearing_the_end():
        settings = settings_of(config)
        try:
            daemon_run.run(settings, service=service)
        except BulkheadError as error:
            structlog.get_logger().error("daemon.refused", message=str(error))
            raise
        except Exception:
            # A bug ends the daemon, and systemd starts it again; this is its last word.
            structlog.get_logger().exception("daemon.crashed")
            raise


@app.command()
def convert(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.", show_default=False)],
    config: Config = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Documents at the same time.", show_default="auto")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout", min=1, help="Deadline of one document, in s.")] = None,
    ocr: Ocr = True,
    force: Annotated[bool, typer.Option("--force", help="Convert again what an earlier run has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Convert files and folders, without AWS.

    The same parent, ledger, children and ladder as the daemon. A second run skips what has not changed.
    """
    from daemon import convert as converting  # noqa: PLC0415 - `--help` must not pay for what only this needs

    settings = settings_of(
        config,
        defaults={"log__level": "error"},
        state_dir=out / converting.STATE,
        store__url=str(out),
        ledger__table="",
        notices__destination="",
        retry__release_delay_s=1.0,
        child__document_timeout_s=timeout_s,
        workers=workers,
    )
    console = Console(stderr=True)
    with _bar(console) as bar:
        task = bar.add_task("converting", total=None)
        report = converting.convert(
            paths,
            settings,
            options=Options(ocr=ocr),
            force=force,
            on_line=lambda line: say(line.as_json()) if as_json else bar.console.print(_sentence(line)),
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if report.unfinished:
        console.print(f"interrupted: {len(report.lines)} ended, {report.unfinished} left; run again to go on")
        raise typer.Exit(ExitStatus.INTERRUPTED)
    if not as_json:
        console.print(f"{len(report.lines) - report.failed} converted, {report.failed} failed; results lie in {out}")
    raise typer.Exit(ExitStatus.DOCUMENT_FAILED if report.failed else ExitStatus.DONE)


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _sentence(line: object) -> str:
    from daemon.convert import Line  # noqa: PLC0415 - as above

    assert isinstance(line, Line), "convert tells lines"
    again = " (unchanged, skipped)" if line.skipped else ""
    if line.markdown is None:
        return f"{line.path}: {line.status}{again}: {line.cause}: {line.cause_detail}"
    return f"{line.path}: {line.status}{again}, {line.pages} page(s) → {line.markdown}"


@app.command()
def submit(
    uris: Annotated[list[str], typer.Argument(help="s3://, https:// or file:// URIs.", show_default=False)],
    config: Config = None,
    ocr: Ocr = True,
    as_json: Json = False,
) -> None:
    """Enqueue documents for a daemon."""
    from daemon import submit as submitting  # noqa: PLC0415 - `--help` must not pay for the AWS SDK
    from daemon.wiring import open_queue  # noqa: PLC0415

    settings = settings_of(config)
    settings.require("queue.url", command="bulkhead submit")
    queue = open_queue(settings)
    try:
        for sent in submitting.submit(uris, queue, ocr=ocr):
            fields = {"uri": sent.uri, "message_id": sent.message_id}
            say(json.dumps(fields) if as_json else f"{sent.uri}: enqueued as message {sent.message_id}")
    finally:
        queue.close()


@app.command()
def status(config: Config = None, state_dir: StateDir = None, as_json: Json = False) -> None:
    """Show what runs and what ended last."""
    from daemon import story  # noqa: PLC0415 - `--help` must not pay for the AWS SDK
    from daemon.held_back import held_back  # noqa: PLC0415
    from daemon.ledgers import open_to_read  # noqa: PLC0415
    from daemon.notices import waiting  # noqa: PLC0415
    from daemon.suspended import suspension  # noqa: PLC0415

    settings = settings_of_ledger(config, state_dir)
    ledger, at = open_to_read(settings), SystemClock().now()
    try:
        now = story.status(
            ledger,
            now=at,
            suspended=suspension(settings.state_dir, now=at),
            notices=waiting(ledger, now=at),
            held_back=held_back(settings.state_dir),
        )
    finally:
        ledger.close()
    if as_json:
        say(json.dumps(now))
        return
    console = Console()
    shown = {
        "running": ("document_id", "attempt", "running_s"),
        "recent": ("document_id", "status", "pages", "cause"),
    }
    for title, columns in shown.items():
        rows = now[title]
        assert isinstance(rows, list), "status gives lists"
        print_rows(console, title, [{column: row[column] for column in columns} for row in rows])
    if waits := now["held_back"]:
        assert isinstance(waits, list), "status gives lists"
        rows = [f"{row['document_id']} needs {row['need_bytes'] / 2**30:.1f} GiB" for row in waits]
        console.print(f"waiting for memory, which others have: {', '.join(rows)}", markup=False)
    if isinstance(reason := now["suspended"], dict):
        console.print(f"SUSPENDED since {reason['since']}, pid {reason['pid']}: {reason['detail']}", markup=False)
    if isinstance(unsent := now["notices"], dict):
        console.print(f"{unsent['waiting']} notices wait, the oldest since {unsent['oldest_at']}", markup=False)
    documents = now["documents"]
    assert isinstance(documents, dict), "status gives counts"
    console.print(", ".join(f"{number} {state}" for state, number in documents.items()) or "no documents yet")


@app.command()
def explain(
    document: Annotated[str, typer.Argument(help="An id, the beginning of one, or a URI.", show_default=False)],
    config: Config = None,
    state_dir: StateDir = None,
    as_json: Json = False,
) -> None:
    """Tell the whole story of one document.

    Every attempt, every child with its signal, page and traceback, and how it ended.
    """
    from daemon import story  # noqa: PLC0415
    from daemon.ledgers import open_to_read, recovery_of  # noqa: PLC0415

    ledger = open_to_read(settings_of_ledger(config, state_dir))
    try:
        told = story.explain(ledger, recovery_of(ledger), document)
    finally:
        ledger.close()
    say(json.dumps(told) if as_json else "\n".join(story.told(told)))


@app.command()
def doctor(config: Config = None, as_json: Json = False) -> None:
    """Check whether this host would work.

    The engine and a canary through a real child, queue, store, state and sizing.
    """
    from daemon import doctor as doctors  # noqa: PLC0415 - `--help` must not pay for the AWS SDK

    worst = ExitStatus.DONE
    for finding in doctors.examine(settings_of(config)):
        fields = {"check": finding.check, "verdict": str(finding.verdict), "detail": finding.detail}
        say(json.dumps(fields) if as_json else f"{finding.verdict:8}{finding.check:12}{finding.detail}")
        worst = finding.status if worst is ExitStatus.DONE else worst
    raise typer.Exit(int(worst))


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the Markdown; a new temporary one if unset.")
    ] = None,
) -> None:
    """Try everything on this machine.

    An embedded SQS and S3, the real daemon, sample documents, one of which kills its child.
    """
    from daemon import demo as demonstration  # noqa: PLC0415 - needs the demo extra

    if not demonstration.available():
        message = "cannot run the demo: moto is not installed; pip install 'bulkheadd[demo]'"
        raise ConfigurationError(message)
    raise typer.Exit(int(demonstration.demo(out)))


app.add_typer(cli_calibrate.app)
app.add_typer(cli_recovery.app)
