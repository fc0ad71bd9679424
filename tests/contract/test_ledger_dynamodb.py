"""The ledger's contract on DynamoDB, over real HTTP to moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from daemon.dynamodb_calls import Calls
from daemon.ledger import Ledger
from daemon.model import Cause, Document
from daemon.notice import of_parked
from daemon.outbox import Backlog
from daemon.outbox_dynamodb import DynamoDbOutbox, announcement
from daemon.recovery_dynamodb import DynamoDbRecovery
from tests.contract.dynamo import on_time
from tests.contract.ledger_contract import T0, LedgerContract
from tests.contract.outbox_contract import Kept, OutboxContract
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


class TestDynamoDbOutbox(OutboxContract):
    """DynamoDB keeps the contract of notices too."""

    @pytest.fixture
    def kept(self, moto_endpoint: str) -> Iterator[Kept]:
        """See the contract."""
        yield from beside(moto_endpoint, notices=True)

    @pytest.fixture
    def silent(self, moto_endpoint: str) -> Iterator[Kept]:
        """See the contract."""
        yield from beside(moto_endpoint, notices=False)

    def test_more_than_one_page(self, kept: Kept) -> None:
        """Long URIs of many documents: a query's page has 1 MB, a transaction 100 items."""
        calls: Calls = kept.outbox._calls  # type: ignore[attr-defined]
        for start in range(0, 450, 90):
            told = [
                of_parked(Document(id=f"d-{n:04}", uri="s3://in/" + "x" * 4_000), attempts=1, cause=Cause.EMPTY, at=T0)
                for n in range(start, start + 90)
            ]
            calls.write([announcement(each) for each in told], token=uuid4().hex)
        waiting = kept.outbox.waiting(limit=1_000)
        assert [each.document_id for each in waiting] == [f"d-{n:04}" for n in range(450)]
        assert kept.outbox.backlog() == Backlog(number=450, oldest_at=T0)
        kept.outbox.sent(waiting)
        assert kept.outbox.backlog() == Backlog()


def beside(endpoint: str, *, notices: bool) -> Iterator[Kept]:
    """All three, on an empty table."""
    ledger: Any
    ledger, edge = on_time(endpoint, notices=notices)
    outbox = DynamoDbOutbox(edge.documents.calls)
    yield Kept(ledger=ledger, recovery=ledger.beside(DynamoDbRecovery(edge)), outbox=outbox)
    ledger.close()


class TestDynamoDbLedger(LedgerContract):
    """DynamoDB keeps the contract."""

    @pytest.fixture
    def ledger(self, moto_endpoint: str) -> Iterator[Ledger]:
        """An empty table."""
        ledger: Any
        ledger, _ = on_time(moto_endpoint)
        yield ledger
        ledger.close()
