"""The ledger's contract on DynamoDB, over real HTTP to moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from daemon.ledger import Ledger
from daemon.recovery_dynamodb import DynamoDbRecovery
from tests.contract.dynamo import on_time
from tests.contract.ledger_contract import LedgerContract
from tests.contract.recovery_contract import RecoveryContract

pytestmark = pytest.mark.aws


class TestDynamoDbRecovery(RecoveryContract):
    """DynamoDB keeps the contract of recovery too."""

    @pytest.fixture
    def ledger(self, moto_endpoint: str) -> Iterator[Ledger]:
        """An empty table."""
        ledger: Any
        ledger, _ = on_time(moto_endpoint)
        yield ledger
        ledger.close()

    @pytest.fixture
    def recovery(self, ledger: Any) -> Any:
        """Beside it, on the same clocks."""
        return ledger.beside(DynamoDbRecovery(ledger.edge))


class TestDynamoDbLedger(LedgerContract):
    """DynamoDB keeps the contract."""

    @pytest.fixture
    def ledger(self, moto_endpoint: str) -> Iterator[Ledger]:
        """An empty table."""
        ledger: Any
        ledger, _ = on_time(moto_endpoint)
        yield ledger
        ledger.close()
