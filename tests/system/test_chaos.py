"""A short chaos run: everything that the long one does (`python -m bench.chaos`), for some seconds.

The machine decides how much happens in this time; what must come out of it does not depend on that.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.aws, pytest.mark.process]

#: A net: half a minute on an idle machine, several on a busy one.
_NET_S = 280


def test_nothing_is_lost() -> None:
    """Everything dies and nothing answers, and all the same each document ends once: in the store, or with a person."""
    command = [sys.executable, "-m", "bench.chaos", "--json", "--documents", "40", "--seconds", "10"]
    options = ["--troubles-per-minute", "300", "--longest-wait", "4", "--reclaims", "1", "--seed", "7"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=_NET_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (told["documents"], told["published"] + told["parked"]) == (40, 40)
    wrong = ("lost", "published_twice", "wrong_results", "too_many_attempts", "deleted_too_early", "starts_refused")
    assert {name: told[name] for name in (*wrong, "audit_findings", "bugs")} == dict.fromkeys(
        (*wrong, "audit_findings", "bugs"), 0
    )
    # Named points kill parents on purpose in each run, so this does not depend on the killer's luck.
    assert told["parents_ended_by_status"]["-9"] > 0
    assert sum(told["faults_injected"].values()) > 0
    assert told["attempts"] > told["documents"]
