"""The daemon, a sweep and an audit together: a spell of dying children passes, and nothing is lost or left."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from pathlib import Path

import pytest

from daemon.emulator import Emulated
from daemon.errors import ExitStatus
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import ResultStatus
from tests.system.daemon_process import daemon, environment
from tests.system.test_sweep import bulkhead

pytestmark = [pytest.mark.engine, pytest.mark.aws, pytest.mark.process]

#: No child of this document lives long enough to open it.
SPELL = {"ALLOW_FAILPOINTS": "true", "FAILPOINTS": "child.start@doc=letter.pdf*=segv"}


def one_life(aws: Emulated, state: Path, *names: str, **settings: str) -> list[str]:
    """A daemon that ends these documents, and leaves; their causes."""
    causes = []
    with daemon(environment(aws, state, **settings)) as running:
        for name in names:
            line = running.wait_for("attempt.settled", uri=f"s3://{aws.bucket}/inbox/{name}")
            causes.append(str(line["cause"]))
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
    return causes


def swept(aws: Emulated, state: Path) -> dict[str, int]:
    """What one sweep did."""
    result = bulkhead(aws, state, "sweep", "--json", RETRY__RECLAIM_DELAY_S="0")
    assert result.returncode == ExitStatus.DONE, result.stderr
    counts = json.loads(result.stdout.splitlines()[-1])["swept"]
    assert isinstance(counts, dict)
    return counts


def test_a_spell_of_dying_children(aws: Emulated, samples: Path, tmp_path: Path) -> None:
    """Given up while every child died, sent back by a sweep, converted after the spell; the locked one is parked."""
    state = tmp_path / "state"
    for name in ("letter.pdf", "encrypted.pdf"):
        aws.upload(samples / name)
    assert one_life(aws, state, "letter.pdf", "encrypted.pdf", **SPELL) == ["crashed", "encrypted"]
    assert swept(aws, state) == {"reclaimed": 1, "parked": 1, "alerted": 1}
    assert one_life(aws, state, "letter.pdf") == ["converted"]
    assert swept(aws, state) == {}
    audited = bulkhead(aws, state, "audit")
    assert (audited.returncode, audited.stdout) == (
        ExitStatus.DONE,
        "ledger, store and queues agree about 2 document(s)\n",
    ), audited.stderr
    with closing(SqliteLedger.open_read_only(state / "ledger.db")) as ledger:
        (letter,) = ledger.find(f"s3://{aws.bucket}/inbox/letter.pdf")
        settled = ledger.settled(letter.id)
        assert settled is not None
        assert (settled.status, settled.attempt) == (ResultStatus.CONVERTED, 2)
        assert ledger.counts() == {"running": 0, "waiting": 0, "converted": 1, "partial": 0, "failed": 1}
