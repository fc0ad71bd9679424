"""Going back by one version with the ledger that the newer one left."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from daemon import doctor
from daemon.config import load
from daemon.errors import ConfigurationError
from daemon.ledger import Held
from daemon.ledger_rows import (
    APPLICATION_ID,
    MIGRATIONS,
    OUTCOME_COLUMNS,
    USABLE_FROM,
    instant,
    microseconds,
    to_outcome,
)
from daemon.ledger_sqlite import SqliteLedger
from daemon.ledgers import open_to_look
from daemon.model import Cause, Document
from daemon.sqlite_file import SqliteFile
from tests.contract.ledger_contract import CRASH, HERE, LEASE_S, T0, after, claimed, converted, document
from tests.fakes.clock import FakeClock

#: What a program of another version need not know in order to write.
ADDITIVE = (
    r"CREATE TABLE \w+",
    r"CREATE INDEX \w+",  # and no UNIQUE one
    r"ALTER TABLE \w+ ADD COLUMN \w+ (TEXT|INTEGER|REAL)( NOT NULL DEFAULT \S+)?$",
)
#: The statements of the release before, as they were: it inserts into columns by name.
BEFORE = (
    """INSERT INTO documents (id, uri, version_id, etag, options, registered_us)
       VALUES ('old', 's3://b/k', '', '', '{}', 1)""",
    """INSERT INTO attempts (document_id, number, host, boot_id, invocation, pid, started_us, lease_until_us, ended_us)
       VALUES ('old', 1, 'host', 'boot', 'run', 7, 1, 2, 3)""",
    """INSERT INTO outcomes (document_id, attempt, position, cause, detail, child, ocr, mode, signal, stage, page,
         pages_done, pages, elapsed_s, peak_rss_bytes, traceback, stderr_tail)
       VALUES ('old', 1, 1, 'crashed', 'SIGSEGV', 1, 1, 'full', 'SIGSEGV', 'ocr', 1, 0, 2, 0.5, 1, '', '')""",
    """INSERT INTO settled (document_id, status, attempt, settled_us, cause, detail, manifest, pages, pages_by_state)
       VALUES ('old', 'failed', 1, 3, 'crashed', '', NULL, 0, '{}')""",
    """INSERT INTO parked (key, document_id, uri, body, cause, signal, stage, build, detail, attempts, reclaims,
         parked_us)
       VALUES ('old', 'old', 's3://b/k', '', 'crashed', 'SIGSEGV', 'ocr', 'b', '', 1, 0, 4)""",
)


def test_what_came_since_the_release_before_is_an_addition() -> None:
    """Whoever adds one that the version before cannot live with raises `USABLE_FROM`: it then refuses the file."""
    assert 1 <= USABLE_FROM <= len(MIGRATIONS)
    for migration in MIGRATIONS[USABLE_FROM:]:
        for statement in migration:
            assert any(re.match(known, statement) for known in ADDITIVE), statement


def test_the_version_before_works_on_the_newer_ledger(tmp_path: Path) -> None:
    """It writes what it always wrote; the newer one reads that, and goes on where it was."""
    path = tmp_path / "ledger.db"
    newer = SqliteLedger.open(path)
    attempt = claimed(newer, document("new")).attempt
    newer.record_outcome(attempt, CRASH)
    older = SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:USABLE_FROM])
    with older.write() as db:
        for statement in BEFORE:
            db.execute(statement)
    older.close()
    newer.settle(attempt, converted(attempt))
    (outcome,) = newer.attempts("old")[0].outcomes
    assert (outcome.cause, outcome.page) == (Cause.CRASHED, 1)
    assert {name: count for name, count in newer.counts().items() if count} == {"converted": 1, "failed": 1}
    newer.close()


@pytest.mark.parametrize("act", ["claim", "renew", "break"])
def test_the_version_before_knows_leases_by_the_wall_clock(tmp_path: Path, act: str) -> None:
    """Its own column says what it always said, and as long as it runs beside, or in place of, the newer one."""
    path, clock = tmp_path / "ledger.db", FakeClock(now=T0)
    newer = SqliteLedger.open(path, clock=clock, boot_id=HERE.boot_id)
    attempt = claimed(newer, document()).attempt
    clock.advance(10)
    if act == "renew":
        newer.renew(attempt, now=clock.now(), lease_s=LEASE_S)
    elif act == "break":
        newer.break_leases(host=HERE.host, invocation="new", now=clock.now())
    older = SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:USABLE_FROM])
    with older.read() as db:
        (until_us,) = db.execute("SELECT lease_until_us FROM attempts").fetchone()
    older.close()
    newer.close()
    assert instant(until_us) == after({"claim": LEASE_S, "renew": LEASE_S + 10, "break": 10.0}[act])


@pytest.mark.parametrize("ago_s", [0.0, 600.0])
def test_a_lease_of_the_version_before(tmp_path: Path, ago_s: float) -> None:
    """It ends by the wall clock, which is all that is known of it; set back, it ends as early as a fresh one."""
    path, clock = tmp_path / "ledger.db", FakeClock(now=after(-ago_s))
    row = (HERE.host, HERE.boot_id, HERE.invocation, microseconds(T0), microseconds(after(LEASE_S)))
    older = SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:-1])
    with closing(older), older.write() as db:
        db.execute(BEFORE[0])
        db.execute(BEFORE[1].partition("VALUES")[0] + "VALUES ('old', 1, ?, ?, ?, 7, ?, ?, NULL)", row)
    old = Document(id="old", uri="s3://b/k")
    for _ in range(2):  # an upgrade that was cut off after the schema, and the next one
        SqliteLedger.open(path).close()
    newer = SqliteLedger.open(path, clock=clock, boot_id=HERE.boot_id)
    assert newer.running()[0].lease_until == after(LEASE_S)
    clock.advance(LEASE_S / 2)
    assert isinstance(newer.claim(old, holder=HERE, now=clock.now(), lease_s=LEASE_S), Held)
    clock.advance(LEASE_S if ago_s else LEASE_S / 2)
    claimed(newer, old, now=clock.now())
    newer.close()


def test_two_versions_back_is_refused(tmp_path: Path) -> None:
    """With a sentence that says which schema is there, and without having touched it."""
    path = tmp_path / "ledger.db"
    SqliteLedger.open(path).close()
    if USABLE_FROM == 1:
        pytest.skip("there is no older schema")
    with pytest.raises(ConfigurationError, match=f"schema {len(MIGRATIONS)}; this one knows {USABLE_FROM - 1}"):
        SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[: USABLE_FROM - 1])


def test_a_doctor_of_the_next_version_migrates_nothing(tmp_path: Path) -> None:
    """It is asked beside the running daemon, before anyone has decided to switch."""
    path = tmp_path / "ledger.db"
    SqliteFile.open(path, application_id=APPLICATION_ID, migrations=MIGRATIONS[:1]).close()
    settings = load(environ={}, state_dir=tmp_path)
    ledger, behind = open_to_look(settings)
    assert (set(ledger.counts().values()), behind) == ({0}, len(MIGRATIONS) - 1)
    ledger.close()
    said = [detail for _, detail in doctor._state(settings)]
    assert "will bring the ledger's schema" in said[-1]
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone() == (1,)
    raw.close()


def test_a_cause_that_only_the_newer_version_knows() -> None:
    """After going back, a document's history is still readable: the unknown counts as a crash."""
    row = dict.fromkeys(OUTCOME_COLUMNS.split(", "), "") | {
        "cause": "eaten_by_a_grue",
        "mode": "sideways",
        "stage": "x",
    }
    outcome = to_outcome(list(row.values()))
    assert (outcome.cause, outcome.mode, outcome.stage) == (Cause.CRASHED, None, None)
