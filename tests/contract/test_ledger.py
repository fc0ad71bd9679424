"""The ledger's contract on SQLite and on the fake, and what only SQLite must do: survive kills and rivals."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.errors import ResourceError
from daemon.ledger import AlreadySettled, Claim, Claimed, Held, Ledger
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Document
from daemon.recovery_sqlite import SqliteRecovery
from tests.contract.ledger_contract import (
    CRASH,
    HERE,
    LEASE_S,
    T0,
    THERE,
    LedgerContract,
    after,
    claimed,
    converted,
    document,
)
from tests.contract.on_time import sqlite_on_time
from tests.fakes.clock import FakeClock
from tests.fakes.ledger import MemoryLedger

#: Settles one document after another, and prints each one's number once it is committed.
SETTLER = """
import sys
from pathlib import Path
from daemon.ledger_sqlite import SqliteLedger
from tests.contract.ledger_contract import CRASH, claimed, converted, document
ledger = SqliteLedger.open(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    attempt = claimed(ledger, document(f"doc-{number}")).attempt
    ledger.record_outcome(attempt, CRASH)
    ledger.settle(attempt, converted(attempt))
    print(number, flush=True)
    number += 1
"""

#: Claims what it is told to, and prints what came of it.
CLAIMER = """
import sys
from pathlib import Path
from daemon.ledger_sqlite import SqliteLedger
from tests.contract.ledger_contract import HERE, LEASE_S, T0, document
ledger = SqliteLedger.open(Path(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    claim = ledger.claim(document(line.strip()), holder=HERE, now=T0, lease_s=LEASE_S)
    print(type(claim).__name__, flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python of its own that runs `script` from the repository's root."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
    )


class TestMemoryLedger(LedgerContract):
    """The fake keeps the contract."""

    @pytest.fixture
    def ledger(self) -> Ledger:
        """An empty fake."""
        return MemoryLedger()


class TestSqliteLedger(LedgerContract):
    """SQLite keeps the contract."""

    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Iterator[Ledger]:
        """An empty file."""
        with sqlite_on_time(tmp_path / "ledger.sqlite") as ledger:
            yield ledger


@pytest.mark.process
def test_killed_while_writing(tmp_path: Path) -> None:
    """Whatever was acknowledged before a SIGKILL is there after it, and the file is whole; again and again."""
    path = tmp_path / "ledger.sqlite"
    acknowledged = -1
    for life in range(8):
        with start(SETTLER, str(path), str(acknowledged + 2)) as writer:
            assert writer.stdout is not None
            for _ in range(3 * life + 1):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
            assert writer.wait() == -signal.SIGKILL
        ledger = SqliteLedger.open(path)
        settled = ledger.settled(f"doc-{acknowledged}")
        attempts = ledger.attempts(f"doc-{acknowledged}")
        counts = ledger.counts()
        ledger.close()
        assert settled is not None
        assert settled.manifest == f"s3://out/doc-{acknowledged}/manifest.json"
        assert attempts[0].outcomes == (CRASH,)
        assert counts["converted"] >= acknowledged - life  # each life skips one number, whose fate is open
        raw = sqlite3.connect(path)
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        raw.close()


@pytest.mark.process
def test_two_processes_claim_at_once(tmp_path: Path) -> None:
    """Two processes that claim the same document at the same moment: exactly one wins, every time."""
    path = str(tmp_path / "ledger.sqlite")
    with start(CLAIMER, path) as one, start(CLAIMER, path) as two:
        assert one.stdin is not None
        assert one.stdout is not None
        assert two.stdin is not None
        assert two.stdout is not None
        assert [one.stdout.readline(), two.stdout.readline()] == ["ready\n", "ready\n"]
        wins = {"one": 0, "two": 0}
        for number in range(60):
            first, second = (one, two) if number % 2 else (two, one)
            for process in (first, second):
                assert process.stdin is not None
                process.stdin.write(f"doc-{number}\n")
                process.stdin.flush()
            answers = {"one": one.stdout.readline(), "two": two.stdout.readline()}
            assert sorted(answers.values()) == ["Claimed\n", "Held\n"]
            wins["one" if answers["one"] == "Claimed\n" else "two"] += 1
        one.stdin.close()
        two.stdin.close()
    assert sum(wins.values()) == 60


def test_reader_beside_a_writer(tmp_path: Path) -> None:
    """`bulkhead status` sees every committed write of a running daemon, and never an unfinished one."""
    path = tmp_path / "ledger.sqlite"
    writer = SqliteLedger.open(path, clock=FakeClock(now=T0), boot_id=HERE.boot_id)
    reader = SqliteLedger.open_read_only(path)
    attempt = claimed(writer, document()).attempt
    assert reader.counts()["running"] == 1
    with writer._file.write() as connection:
        connection.execute("DELETE FROM attempts")
        (seen,) = reader.attempts("report-1")
        assert replace(seen, lease_until=attempt.lease_until) == attempt
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
    writer.settle(attempt, converted(attempt))
    assert reader.settled("report-1") == converted(attempt)
    reader.close()
    writer.close()


def test_reader_of_a_missing_ledger(tmp_path: Path) -> None:
    """A wrong path must not create an empty ledger that then says that nothing ever ran."""
    path = tmp_path / "ledger.sqlite"
    with pytest.raises(ResourceError, match=r"cannot read .*no such file"):
        SqliteLedger.open_read_only(path)
    assert list(tmp_path.iterdir()) == []


def test_contents_survive_a_restart(tmp_path: Path) -> None:
    """A new process finds what the last one wrote, and goes on counting attempts where it stopped."""
    path = tmp_path / "ledger.sqlite"
    ledger = SqliteLedger.open(path, boot_id=HERE.boot_id)
    claimed(ledger, document())
    ledger.close()
    ledger = SqliteLedger.open(path, boot_id=HERE.boot_id)
    assert ledger.break_leases(host=HERE.host, invocation="another", now=T0) == 1
    assert claimed(ledger, document()).attempt.number == 2
    ledger.close()


STEPS_S = (-1e9, -600.0, 0.0, 600.0, 1e9)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_no_step_of_the_wall_clock_moves_a_lease(tmp_path: Path, step_s: float) -> None:
    """Set forward, a second attempt would begin beside a living one; set back, the dead would hold what they had."""
    clock = FakeClock(now=T0)
    ledger = SqliteLedger.open(tmp_path / "ledger.db", clock=clock, boot_id=HERE.boot_id)

    def take() -> Claim:
        return ledger.claim(document(), holder=THERE, now=clock.now(), lease_s=LEASE_S)

    attempt = claimed(ledger, document(), now=clock.now()).attempt
    for _ in range(2):
        clock.jump(step_s)
        clock.advance(LEASE_S - 1)
        left = clock.now() + timedelta(seconds=1)
        assert take() == Held(holder=HERE, lease_until=left)
        (standing,) = SqliteRecovery(ledger).standing("report-1").attempts
        assert {each.lease_until for each in (*ledger.running(), standing)} == {left}, "as a sweep compares it"
        ledger.renew(attempt, now=clock.now(), lease_s=LEASE_S)
        clock.jump(-step_s)
    clock.advance(LEASE_S)
    clock.jump(step_s)
    assert ledger.running()[0].lease_until == clock.now()
    assert isinstance(take(), Claimed)
    ended = ledger.attempts("report-1")[0]
    clock.jump(step_s)
    assert ledger.attempts("report-1")[0] == ended, "what is past is told as it was"
    ledger.close()


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("uptime_s", [5.0, 1e9])
def test_another_boots_lease_is_over(tmp_path: Path, uptime_s: float, step_s: float) -> None:
    """After a reboot the uptime begins again, so an old end says nothing; whoever gave the lease is dead."""
    path = tmp_path / "ledger.db"
    with closing(SqliteLedger.open(path, clock=FakeClock(now=T0), boot_id=HERE.boot_id)) as before:
        claimed(before, document())
    clock = FakeClock(now=T0 + timedelta(seconds=step_s), monotonic_s=uptime_s)
    with closing(SqliteLedger.open(path, clock=clock, boot_id="boot-9")) as ledger:
        assert ledger.running()[0].lease_until <= clock.now()
        assert ledger.break_leases(host=HERE.host, invocation="new", now=clock.now()) == 0
        again = claimed(ledger, document(), holder=replace(HERE, boot_id="boot-9"), now=clock.now())
        assert "host here rebooted" in again.history[0].outcomes[0].detail


def test_no_lease_is_longer_than_a_fresh_one(tmp_path: Path) -> None:
    """Whatever wrote it: who lives renews it in time, and nobody waits longer for the dead."""
    clock = FakeClock(now=T0)
    ledger = SqliteLedger.open(tmp_path / "ledger.db", clock=clock, boot_id=HERE.boot_id)
    ledger.claim(document(), holder=HERE, now=T0, lease_s=10 * LEASE_S)
    held = ledger.claim(document(), holder=THERE, now=T0, lease_s=LEASE_S)
    assert held == Held(holder=HERE, lease_until=after(LEASE_S))
    clock.advance(LEASE_S)
    claimed(ledger, document(), holder=THERE, now=clock.now())
    ledger.close()


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    """A surrogate out of a file name or a child's stderr must not make a document impossible to record."""
    ledger = SqliteLedger.open(tmp_path / "ledger.sqlite")
    doc = Document(id="odd", uri="file:///in/\udcff.pdf")
    attempt = claimed(ledger, doc).attempt
    ledger.settle(attempt, converted(attempt, detail="bad byte \udcfe"))
    stored, settled = ledger.document("odd"), ledger.settled("odd")
    assert stored is not None
    assert settled is not None
    assert (stored.uri, settled.detail) == ("file:///in/\\udcff.pdf", "bad byte \\udcfe")
    ledger.settle(attempt, converted(attempt, detail="bad byte \udcfe"))
    assert isinstance(ledger.claim(doc, holder=HERE, now=T0, lease_s=LEASE_S), AlreadySettled)
    ledger.close()
