"""The commands for what failed: parse, call, print, exit status; no logic.

Shell. `cli.py` joins them with the others.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from daemon.build import build
from daemon.cli_shared import Config, Json, StateDir, print_rows, say, settings_of
from daemon.clock import SystemClock
from daemon.errors import ExitStatus
from daemon.ledger_sqlite import SqliteLedger
from daemon.recovery import Parked
from daemon.recovery_sqlite import SqliteRecovery

app = typer.Typer(add_completion=False)
parked = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, retry or drop what waits for a person.")
app.add_typer(parked, name="parked")

Keys = Annotated[list[str] | None, typer.Argument(help="Ids as `parked list` shows them.", show_default=False)]
OfCause = Annotated[str | None, typer.Option("--cause", help="Only those of this cause.")]
OtherEngine = Annotated[
    bool, typer.Option("--other-engine", help="Only those that another engine than the installed one failed at.")
]


@app.command()
def sweep(
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Sweep the dead-letter queue once.

    Reclaim or park dead letters, settle what a dead parent stored, tell a person once for each cause, clean up.
    """
    from daemon import recovery_wiring  # noqa: PLC0415 - `--help` must not pay for the AWS SDK

    counts, did = recovery_wiring.sweep(settings_of(config), dry_run=dry_run)
    if as_json:
        for each in did:
            say(json.dumps({"did": each.what, "document_id": each.document_id, "detail": each.detail}))
        say(json.dumps({"swept": counts, "dry_run": dry_run}))
        return
    for each in did:
        say(f"{each.what:12}{each.document_id}  {each.detail}")
    summary = ", ".join(f"{number} {what}" for what, number in sorted(counts.items())) or "nothing to do"
    say(f"{'would be done: ' if dry_run else ''}{summary}")


@app.command()
def audit(config: Config = None, as_json: Json = False) -> None:
    """Check that nothing is lost or done twice.

    Ledger, store, checkpoints and queues must agree, and every page must be accounted for.
    """
    from daemon import recovery_wiring  # noqa: PLC0415

    findings = recovery_wiring.audit(settings_of(config))
    for finding in findings:
        fields = {"check": str(finding.check), "document_id": finding.document_id, "detail": finding.detail}
        say(json.dumps(fields) if as_json else f"{finding.check:22}{finding.document_id}  {finding.detail}")
    if not findings and not as_json:
        say("ledger, store and queues agree")
    raise typer.Exit(int(ExitStatus.DOCUMENT_FAILED if findings else ExitStatus.DONE))


@parked.command("list")
def list_parked(
    config: Config = None,
    state_dir: StateDir = None,
    cause: OfCause = None,
    other_engine: OtherEngine = False,
    as_json: Json = False,
) -> None:
    """List what is parked, oldest first."""
    from daemon import parked as entries  # noqa: PLC0415 - `--help` must not pay for the AWS SDK

    now = SystemClock().now()
    found = _chosen(config, state_dir, [], cause=cause, other_engine=other_engine)
    rows = [entries.in_short(entry, now=now) for entry in found]
    if as_json:
        for row in rows:
            say(json.dumps(row))
    else:
        print_rows(Console(), "parked", rows)


@parked.command()
def show(
    key: Annotated[str, typer.Argument(help="An id as `parked list` shows it.", show_default=False)],
    config: Config = None,
    state_dir: StateDir = None,
    as_json: Json = False,
) -> None:
    """Show one entry with its message; `bulkhead explain` tells its attempts."""
    from daemon import parked as entries  # noqa: PLC0415

    (entry,) = _chosen(config, state_dir, [key])
    told = entries.in_full(entry, now=SystemClock().now())
    if as_json:
        say(json.dumps(told))
        return
    for name, value in told.items():
        say(f"{name:12}{'' if value is None else value}")


@parked.command()
def retry(
    keys: Keys = None,
    config: Config = None,
    cause: OfCause = None,
    other_engine: OtherEngine = False,
    as_json: Json = False,
) -> None:
    """Send parked documents back to the queue, each with one more reclaim in hand."""
    from daemon import parked as entries  # noqa: PLC0415
    from daemon.recovery_wiring import opened_ledger, opened_queue  # noqa: PLC0415

    _require_choice(keys, cause, other_engine=other_engine)
    settings = settings_of(config)
    with opened_ledger(settings) as ledger, opened_queue(settings, command="bulkhead parked retry") as queue:
        recovery = SqliteRecovery(ledger)
        found = entries.chosen(recovery, keys or [], cause=cause, not_of=build() if other_engine else None)
        sent = entries.retry(found, recovery=recovery, queue=queue, clock=SystemClock())
    _tell("retried", sent, as_json=as_json)


@parked.command()
def drop(
    keys: Keys = None,
    config: Config = None,
    state_dir: StateDir = None,
    cause: OfCause = None,
    as_json: Json = False,
) -> None:
    """Forget the messages of parked documents; their history stays."""
    from daemon import parked as entries  # noqa: PLC0415
    from daemon.recovery_wiring import opened_ledger  # noqa: PLC0415

    _require_choice(keys, cause, other_engine=False)
    with opened_ledger(settings_of(config, state_dir=state_dir)) as ledger:
        recovery = SqliteRecovery(ledger)
        dropped = entries.drop(entries.chosen(recovery, keys or [], cause=cause), recovery=recovery)
    _tell("dropped", dropped, as_json=as_json)


@app.command()
def requeue(
    document: Annotated[str, typer.Argument(help="An id, the beginning of one, or a URI.", show_default=False)],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Convert a document again, whatever became of it."""
    from daemon import parked as entries  # noqa: PLC0415
    from daemon.recovery_wiring import opened_ledger, opened_queue  # noqa: PLC0415

    settings = settings_of(config)
    with opened_ledger(settings) as ledger, opened_queue(settings, command="bulkhead requeue") as queue:
        recovery = SqliteRecovery(ledger)
        sent = entries.requeue(document, ledger=ledger, recovery=recovery, queue=queue, clock=SystemClock())
    _tell("requeued", [sent], as_json=as_json)


def _chosen(
    config: Path | None,
    state_dir: Path | None,
    keys: list[str],
    *,
    cause: str | None = None,
    other_engine: bool = False,
) -> list[Parked]:
    from daemon.parked import chosen  # noqa: PLC0415
    from daemon.wiring import ledger_path  # noqa: PLC0415

    settings = settings_of(config, state_dir=state_dir)
    with closing(SqliteLedger.open_read_only(ledger_path(settings))) as ledger:
        return chosen(SqliteRecovery(ledger), keys, cause=cause, not_of=build() if other_engine else None)


def _require_choice(keys: list[str] | None, cause: str | None, *, other_engine: bool) -> None:
    if not (keys or cause or other_engine):
        raise typer.BadParameter("say which: ids, --cause, or for a retry --other-engine")


def _tell(what: str, keys: list[str], *, as_json: bool) -> None:
    for key in keys:
        say(json.dumps({"did": what, "key": key}) if as_json else f"{what} {key}")
    if not keys and not as_json:
        say("nothing chosen")
