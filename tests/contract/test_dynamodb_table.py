"""The table as it must be, and the lock in it: made once, checked at each start, held by one sweep of all hosts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from os import getpid
from typing import Any

import pytest
import structlog

from daemon import dynamodb_table
from daemon.config import LedgerSettings, Settings
from daemon.dynamodb_calls import Calls, ChangedError
from daemon.errors import AlreadyRunningError, ConfigurationError, ResourceError
from daemon.ledgers import create_table, open_ledger
from daemon.lock_dynamodb import LEASE_S, RunLock, run_lock
from tests.aws import REGION
from tests.contract.dynamo import TABLE, ServerClock, calls, make_table
from tests.contract.ledger_contract import after

pytestmark = pytest.mark.aws
ADVICE = "Let it end."


@pytest.fixture
def server() -> ServerClock:
    """The table's clock."""
    return ServerClock()


@pytest.fixture
def table(moto_endpoint: str, server: ServerClock) -> Calls:
    """Calls to an empty one."""
    make_table(moto_endpoint)
    return calls(moto_endpoint, server)


def test_made_once(moto_endpoint: str) -> None:
    """Asked twice, made once, and fit to be used."""
    made = calls(moto_endpoint)
    assert [dynamodb_table.create(made), dynamodb_table.create(made)] == [True, False]
    dynamodb_table.check(made)


def test_a_missing_table(moto_endpoint: str) -> None:
    """A refused start, and what to do; nothing is made in passing."""
    settings = Settings(ledger=LedgerSettings(table=TABLE, region=REGION, endpoint_url=moto_endpoint))
    with pytest.raises(ResourceError, match=r"there is none\. `bulkhead ledger create` makes it"):
        open_ledger(settings)
    assert calls(moto_endpoint).client().list_tables()["TableNames"] == []
    assert create_table(settings)
    open_ledger(settings).close()
    with pytest.raises(ConfigurationError, match=r"ledger\.table must be set"):
        create_table(Settings())


def _without_index(definition: dict[str, Any]) -> None:
    del definition["GlobalSecondaryIndexes"][0]
    definition["AttributeDefinitions"] = [
        each for each in definition["AttributeDefinitions"] if each["AttributeName"] != "registry"
    ]


def _with_another_key(definition: dict[str, Any]) -> None:
    definition["GlobalSecondaryIndexes"][1]["KeySchema"][1]["AttributeName"] = "document_id"
    definition["AttributeDefinitions"] = [
        each for each in definition["AttributeDefinitions"] if each["AttributeName"] != "state_order"
    ]


def _with_numbers(definition: dict[str, Any]) -> None:
    for each in definition["AttributeDefinitions"]:
        each["AttributeType"] = "N" if each["AttributeName"] == "sk" else "S"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_without_index, r"index documents \(registry, document_id\) is missing; TTL is not enabled on expires_at"),
        (_with_another_key, r"index states must be state \(S, HASH\) and state_order \(S, RANGE\)"),
        (_with_numbers, r"its key must be pk \(S, HASH\) and sk \(S, RANGE\)"),
    ],
)
def test_another_table(moto_endpoint: str, spoil: Callable[[dict[str, Any]], None], said: str) -> None:
    """A table of another shape is refused, all that is wrong is named, and nothing of it is changed."""
    definition = dynamodb_table.definition(TABLE)
    spoil(definition)
    made = calls(moto_endpoint)
    made.client().create_table(**definition)
    with pytest.raises(ResourceError, match=said):
        dynamodb_table.check(made)
    with pytest.raises(ResourceError, match="new table or index"):
        dynamodb_table.create(made)


# The lock


def test_two_sweeps(table: Calls, server: ServerClock) -> None:
    """The second is told who holds it, where, and since when; it gets it as soon as the first one ends."""
    with run_lock(table, "sweep", advice=ADVICE):
        server.now = after(40)
        who = rf"pid {getpid()} on host {socket.gethostname()} has held it for 0:00:40. {ADVICE}"
        with pytest.raises(AlreadyRunningError, match=who):
            RunLock(table, "sweep").take(advice=ADVICE)
        RunLock(table, "another").take(advice=ADVICE)
    RunLock(table, "sweep").take(advice=ADVICE)


def test_a_killed_sweep(table: Calls, server: ServerClock) -> None:
    """It keeps the others out for one lease, and not longer; if it was only paused, it learns that it lost the lock."""
    killed = RunLock(table, "sweep")
    killed.take(advice=ADVICE)
    server.now = after(LEASE_S / 2)
    killed.renew()
    server.now = after(1.5 * LEASE_S - 1)
    with pytest.raises(AlreadyRunningError, match="has held it for 0:01:29"):
        RunLock(table, "sweep").take(advice=ADVICE)
    server.now = after(1.5 * LEASE_S)
    RunLock(table, "sweep").take(advice=ADVICE)
    with pytest.raises(ChangedError):
        killed.renew()
    with pytest.raises(ChangedError):
        killed.give_back()


def test_many_sweeps_at_once(table: Calls) -> None:
    """However many hosts' timers fire together, one sweeps."""
    start, got = threading.Barrier(4), []

    def take() -> None:
        start.wait(timeout=30)
        try:
            RunLock(table, "sweep").take(advice=ADVICE)
        except AlreadyRunningError as error:
            got.append(str(error))
        else:
            got.append("")

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count("") == 1


def test_a_sweep_that_is_overtaken(table: Calls, server: ServerClock) -> None:
    """It is told in the log, goes on, and leaves the other one's lock alone."""
    with structlog.testing.capture_logs() as logs:
        with run_lock(table, "sweep", advice=ADVICE):
            server.now = after(LEASE_S)
            RunLock(table, "sweep").take(advice=ADVICE)
        assert [line["event"] for line in logs] == ["lease.lost"]
    with pytest.raises(AlreadyRunningError):
        RunLock(table, "sweep").take(advice=ADVICE)


def test_a_long_sweep_keeps_its_lock(moto_endpoint: str) -> None:
    """Renewed by the real server's clock while it lasts, longer than any lease."""
    make_table(moto_endpoint)
    real = calls(moto_endpoint)
    renewed = threading.Event()
    count = 0

    def watch(**_: object) -> None:
        nonlocal count
        count += 1
        if count > 10:
            renewed.set()

    real.client().meta.events.register("after-call.dynamodb.PutItem", watch)
    with run_lock(real, "sweep", advice=ADVICE, lease_s=3.0):
        assert renewed.wait(60)
        with pytest.raises(AlreadyRunningError):
            RunLock(calls(moto_endpoint), "sweep").take(advice=ADVICE)
