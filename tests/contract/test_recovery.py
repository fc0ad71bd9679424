"""The recovery's contract on SQLite and on the fake, and what only SQLite must do: outlive its own schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import ledger_rows
from daemon.ledger import Ledger
from daemon.ledger_sqlite import SqliteLedger
from daemon.recovery import Recovery
from daemon.recovery_sqlite import SqliteRecovery
from daemon.sqlite_file import SqliteFile
from tests.contract.ledger_contract import T0
from tests.contract.on_time import sqlite_on_time
from tests.contract.recovery_contract import DOC, RecoveryContract
from tests.fakes.ledger import MemoryLedger
from tests.fakes.recovery import MemoryRecovery


class TestMemoryRecovery(RecoveryContract):
    """The fake keeps the contract."""

    @pytest.fixture
    def ledger(self) -> MemoryLedger:
        """An empty fake."""
        return MemoryLedger()

    @pytest.fixture
    def recovery(self, ledger: MemoryLedger) -> Recovery:
        """Beside it."""
        return MemoryRecovery(ledger)


class TestSqliteRecovery(RecoveryContract):
    """SQLite keeps the contract."""

    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Iterator[Ledger]:
        """An empty file."""
        with sqlite_on_time(tmp_path / "ledger.db") as ledger:
            yield ledger

    @pytest.fixture
    def recovery(self, ledger: Any) -> Recovery:
        """Beside it."""
        beside: Recovery = ledger.beside(SqliteRecovery(ledger.edge))
        return beside


def test_a_ledger_of_the_first_schema(tmp_path: Path) -> None:
    """An upgrade keeps every document, and what failed before it can be reclaimed after it."""
    path = tmp_path / "old.db"
    migrations = ledger_rows.MIGRATIONS[:1]
    old = SqliteFile.open(path, application_id=ledger_rows.APPLICATION_ID, migrations=migrations)
    with old.write() as db:
        db.execute("INSERT INTO documents VALUES (?, ?, 'v1', '\"e1\"', '{\"ocr\": false}', 0, 0)", (DOC.id, DOC.uri))
        db.execute("INSERT INTO attempts VALUES (?, 1, 'h', 'b', 'i', 1, 0, 60, 50)", (DOC.id,))
        crash = "VALUES (?, 1, 1, 'crashed', 'why', 1, 1, NULL, NULL, NULL, NULL, 0, NULL, 0.5, 0, '', '')"
        db.execute(f"INSERT INTO outcomes {crash}", (DOC.id,))
        db.execute("INSERT INTO settled VALUES (?, 'failed', 1, 50, 'crashed', 'why', NULL, 0, '{}')", (DOC.id,))
    old.close()
    new = SqliteLedger.open(path)
    assert new.document(DOC.id) == DOC
    assert [outcome.fingerprint for outcome in new.attempts(DOC.id)[0].outcomes] == [""]
    assert SqliteRecovery(new).reclaim(DOC, key="attempt:1", attempt=1, now=T0) == 1
    new.close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone() == (len(ledger_rows.MIGRATIONS),)
    raw.close()
