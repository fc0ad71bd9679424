"""The commands for what failed: parse, call, print, exit status; no logic.

Shell. `cli.py` joins them with the others.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daemon.cli_shared import Config, Json, say, settings_of

app = typer.Typer(add_completion=False)


@app.command()
def sweep(
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Make one sweep: reclaim or park dead letters, settle what a dead parent stored, tell once, clean up."""
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
