"""The outbox's contract on SQLite and on the fake, and what a file must do: keep state and notice together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import ledger_sqlite
from daemon.model import Document, Settled
from daemon.notice import Notice
from daemon.outbox_sqlite import SqliteOutbox
from daemon.recovery_sqlite import SqliteRecovery
from tests.contract.ledger_contract import claimed, converted, document
from tests.contract.on_time import sqlite_on_time
from tests.contract.outbox_contract import Kept, OutboxContract
from tests.fakes.ledger import MemoryLedger
from tests.fakes.outbox import MemoryOutbox
from tests.fakes.recovery import MemoryRecovery


def beside(ledger: Any) -> Kept:
    """All three."""
    recovery = ledger.beside(SqliteRecovery(ledger.edge))
    return Kept(ledger=ledger, recovery=recovery, outbox=SqliteOutbox(ledger.edge.file))


class TestMemoryOutbox(OutboxContract):
    """The fake keeps the contract."""

    @pytest.fixture
    def kept(self) -> Kept:
        """See the contract."""
        return in_memory(MemoryLedger(notices=True))

    @pytest.fixture
    def silent(self) -> Kept:
        """See the contract."""
        return in_memory(MemoryLedger())


def in_memory(ledger: MemoryLedger) -> Kept:
    """All three fakes."""
    return Kept(ledger=ledger, recovery=MemoryRecovery(ledger), outbox=MemoryOutbox(ledger))


class TestSqliteOutbox(OutboxContract):
    """A real file."""

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Iterator[Kept]:
        """See the contract."""
        with sqlite_on_time(tmp_path / "ledger.db", notices=True) as ledger:
            yield beside(ledger)

    @pytest.fixture
    def silent(self, tmp_path: Path) -> Iterator[Kept]:
        """See the contract."""
        with sqlite_on_time(tmp_path / "ledger.db") as ledger:
            yield beside(ledger)

    def test_all_or_nothing(self, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
        """A notice that cannot be written leaves its document unsettled."""

        def full(document: Document, settled: Settled) -> Notice:
            del document, settled
            raise OSError(28, "No space left on device")

        attempt = claimed(kept.ledger, document("a")).attempt
        monkeypatch.setattr(ledger_sqlite, "of_settled", full)
        with pytest.raises(OSError, match="No space"):
            kept.ledger.settle(attempt, converted(attempt))
        assert kept.ledger.settled("a") is None
        kept.ledger.check(attempt)
