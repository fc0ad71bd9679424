"""A ledger in moto's DynamoDB, whose server's clock a test turns.

Rules: the contract's instants are those of one clock, so `OnTime` sets the server's and the host's to each call's
`now`; what is about clocks that differ uses the ledger itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from daemon import dynamodb_table
from daemon.config import LedgerSettings
from daemon.dynamodb_calls import Calls, date_of
from daemon.ledger_dynamodb import DynamoDbLedger
from tests.aws import REGION
from tests.contract.ledger_contract import HERE, T0
from tests.contract.on_time import OnTime
from tests.fakes.clock import FakeClock

TABLE = "bulkhead-test"
KEEP_S = 86_400.0


class ServerClock:
    """The `Date` of every answer."""

    def __init__(self, now: datetime = T0) -> None:
        self.now = now

    def __call__(self, response: Mapping[str, Any]) -> datetime:
        """In place of `date_of`."""
        assert response["ResponseMetadata"]["HTTPHeaders"]["date"], "every answer bears one"
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


def calls(
    endpoint: str,
    clock: Callable[[Mapping[str, Any]], datetime] = date_of,
    *,
    table: str = TABLE,
    retry_for_s: float = 10.0,
) -> Calls:
    """To a table in the server at `endpoint`."""
    settings = LedgerSettings(table=table, region=REGION, endpoint_url=endpoint, retry_for_s=retry_for_s)
    return Calls(settings, server_clock=clock)


def make_table(endpoint: str, table: str = TABLE) -> None:
    """The table, empty, unless it is there."""
    maker = calls(endpoint, table=table)
    dynamodb_table.create(maker)
    maker.close()


def ledger_at(
    endpoint: str,
    server: ServerClock,
    *,
    skew_s: float = 0.0,
    boot_id: str = HERE.boot_id,
    keep_s: float = KEEP_S,
    table: str = TABLE,
) -> DynamoDbLedger:
    """A host's ledger; its clock is `skew_s` ahead of the server's at this moment, and stands still."""
    make_table(endpoint, table)
    clock = FakeClock(now=server.now + timedelta(seconds=skew_s))
    return DynamoDbLedger(calls(endpoint, server, table=table), clock=clock, boot_id=boot_id, keep_s=keep_s)


def on_time(endpoint: str, *, notices: bool = False) -> tuple[Any, DynamoDbLedger]:
    """An empty ledger for the contract, and the same without its clocks."""
    make_table(endpoint)
    server, clock = ServerClock(), FakeClock(now=T0)

    def turn(now: datetime) -> None:
        server.now = now
        clock.jump((now - clock.now()).total_seconds())

    ledger = DynamoDbLedger(calls(endpoint, server), clock=clock, boot_id=HERE.boot_id, keep_s=KEEP_S, notices=notices)
    return OnTime(ledger, turn), ledger
