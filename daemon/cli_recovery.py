"""The commands for what failed: parse, call, print, exit status; no logic.

Shell. `cli.py` joins them with the others.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from daemon.build import build
from daemon.cli_shared import Config, Json, StateDir, print_rows, say, settings_of, settings_of_ledger
from daemon.clock import SystemClock
from daemon.errors import ExitStatus
from daemon.recovery import Parked

if TYPE_CHECKING:
    from daemon.audit import Finding
    from daemon.parked import Choice

app = typer.Typer(add_completion=False)
parked = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, retry or drop what waits for a person.")
app.add_typer(parked, name="parked")
ledgers = typer.Typer(add_completion=False, no_args_is_help=True, help="Make what hosts that share a ledger need.")
app.add_typer(ledgers, name="ledger")

Keys = Annotated[list[str] | None, typer.Argument(help="Ids as `parked list` shows them.", show_default=False)]
OfCause = Annotated[str | None, typer.Option("--cause", help="Only those of this cause.")]
OfProblem = Annotated[
    str | None, typer.Option("--problem", help="Only those of this cause, signal, stage and engine, as listed.")
]
OlderThan = Annotated[str | None, typer.Option("--older-than", help="Only those parked for longer: 90s, 30m, 12h, 2d.")]
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

    def tell(finding: Finding) -> None:
        fields = {"check": str(finding.check), "document_id": finding.document_id, "detail": finding.detail}
        say(json.dumps(fields) if as_json else f"{finding.check:22}{finding.document_id}  {finding.detail}")

    audited = recovery_wiring.audit(settings_of(config), tell=tell)
    if audited.clean and not as_json:
        say(f"ledger, store and queues agree about {audited.documents} document(s)")
    raise typer.Exit(int(ExitStatus.DONE if audited.clean else ExitStatus.DOCUMENT_FAILED))


@parked.command("list")
def list_parked(
    config: Config = None,
    state_dir: StateDir = None,
    cause: OfCause = None,
    problem: OfProblem = None,
    older_than: OlderThan = None,
    other_engine: OtherEngine = False,
    as_json: Json = False,
) -> None:
    """List what is parked, oldest first."""
    from daemon import parked as entries  # noqa: PLC0415 - `--help` must not pay for the AWS SDK

    now, installed = SystemClock().now(), build()
    choice = _choice(None, cause, problem, older_than, other_engine=other_engine)
    rows = [entries.in_short(entry, now=now, build=installed) for entry in _chosen(config, state_dir, choice)]
    if as_json:
        for row in rows:
            say(json.dumps(row))
        return
    print_rows(Console(), "parked", rows)
    if others := sum(row["other_engine"] is True for row in rows):
        say(f"{others} of them failed in another engine than the installed one: `bulkhead parked retry --other-engine`")


@parked.command()
def show(
    key: Annotated[str, typer.Argument(help="An id as `parked list` shows it.", show_default=False)],
    config: Config = None,
    state_dir: StateDir = None,
    as_json: Json = False,
) -> None:
    """Show one entry with its message; `bulkhead explain` tells its attempts."""
    from daemon import parked as entries  # noqa: PLC0415

    (entry,) = _chosen(config, state_dir, entries.Choice(keys=[key]))
    told = entries.in_full(entry, now=SystemClock().now(), build=build())
    if as_json:
        say(json.dumps(told))
        return
    for name, value in told.items():
        say(f"{name:13}{'' if value is None else value}")


@parked.command()
def retry(
    keys: Keys = None,
    config: Config = None,
    cause: OfCause = None,
    problem: OfProblem = None,
    older_than: OlderThan = None,
    other_engine: OtherEngine = False,
    as_json: Json = False,
) -> None:
    """Send parked documents back to the queue, each with one more reclaim in hand."""
    from daemon import parked as entries  # noqa: PLC0415
    from daemon.recovery_wiring import opened_hand  # noqa: PLC0415

    choice = _required(_choice(keys, cause, problem, older_than, other_engine=other_engine))
    clock = SystemClock()
    with opened_hand(settings_of(config), command="bulkhead parked retry") as hand:
        found = entries.chosen(hand.recovery, choice, now=clock.now())
        sent = entries.retry(found, recovery=hand.recovery, checkpoints=hand.checkpoints, queue=hand.queue, clock=clock)
    _tell("retried", sent, as_json=as_json)


@parked.command()
def drop(
    keys: Keys = None,
    config: Config = None,
    state_dir: StateDir = None,
    cause: OfCause = None,
    problem: OfProblem = None,
    older_than: OlderThan = None,
    as_json: Json = False,
) -> None:
    """Forget the messages of parked documents; their history stays."""
    from daemon import parked as entries  # noqa: PLC0415
    from daemon.ledgers import recovery_of  # noqa: PLC0415
    from daemon.recovery_wiring import opened_ledger  # noqa: PLC0415

    choice = _required(_choice(keys, cause, problem, older_than))
    with opened_ledger(settings_of_ledger(config, state_dir)) as ledger:
        recovery = recovery_of(ledger)
        dropped = entries.drop(entries.chosen(recovery, choice, now=SystemClock().now()), recovery=recovery)
    _tell("dropped", dropped, as_json=as_json)


@app.command()
def requeue(
    document: Annotated[str, typer.Argument(help="An id, the beginning of one, or a URI.", show_default=False)],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Convert a document again, whatever became of it."""
    from daemon import parked as entries  # noqa: PLC0415
    from daemon.recovery_wiring import opened_hand  # noqa: PLC0415

    with opened_hand(settings_of(config), command="bulkhead requeue") as hand:
        sent = entries.requeue(
            document,
            ledger=hand.ledger,
            recovery=hand.recovery,
            checkpoints=hand.checkpoints,
            queue=hand.queue,
            clock=SystemClock(),
        )
    _tell("requeued", [sent], as_json=as_json)


@ledgers.command()
def create(config: Config = None, as_json: Json = False) -> None:
    """Make the DynamoDB table that `ledger.table` names.

    It needs more rights than the daemon has. A table that is there already is only checked.
    """
    from daemon.ledgers import create_table  # noqa: PLC0415 - `--help` must not pay for the AWS SDK

    settings = settings_of(config)
    made = create_table(settings)
    name = settings.ledger.table
    told = f"made table {name}" if made else f"table {name} is there, and as it must be"
    say(json.dumps({"table": name, "created": made}) if as_json else told)


def _choice(
    keys: list[str] | None,
    cause: str | None,
    problem: str | None,
    older_than: str | None,
    *,
    other_engine: bool = False,
) -> Choice:
    from daemon.parked import Choice  # noqa: PLC0415

    not_of = build() if other_engine else None
    return Choice(keys=keys or [], cause=cause, problem=problem, older_than=older_than, not_of=not_of)


def _required(choice: Choice) -> Choice:
    """A command that changes something must be told which."""
    if not choice:
        raise typer.BadParameter("say which: ids, --cause, --problem, --older-than, or for a retry --other-engine")
    return choice


def _chosen(config: Path | None, state_dir: Path | None, choice: Choice) -> list[Parked]:
    from daemon.ledgers import open_to_read, recovery_of  # noqa: PLC0415
    from daemon.parked import chosen  # noqa: PLC0415

    with closing(open_to_read(settings_of_ledger(config, state_dir))) as ledger:
        return chosen(recovery_of(ledger), choice, now=SystemClock().now())


def _tell(what: str, keys: list[str], *, as_json: bool) -> None:
    for key in keys:
        say(json.dumps({"did": what, "key": key}) if as_json else f"{what} {key}")
    if not keys and not as_json:
        say("nothing chosen")
