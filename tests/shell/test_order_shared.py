"""The same promises where hosts share everything: a DynamoDB ledger, an S3 store, S3 checkpoints, over real HTTP.

A parent, and a sweep, are cut at the n-th call of any edge, for every n, as in `test_order.py` and `test_sweep.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from daemon import dynamodb_table
from daemon.checkpoints_s3 import S3Checkpoints
from daemon.ledger_dynamodb import DynamoDbLedger
from daemon.store_s3 import S3Store
from tests.aws import REGION
from tests.contract.dynamo import KEEP_S, calls
from tests.fakes.clock import FakeClock
from tests.shell import test_sweep
from tests.shell.test_order import CASES, Opener, Places, cut_everywhere
from tests.shell.test_sweep import PROMISES

pytestmark = pytest.mark.aws


@pytest.fixture
def shared(moto_endpoint: str) -> Opener:
    """A table and a prefix of its own for each world, in one bucket; the table's clock is the world's."""
    s3 = boto3.client("s3", endpoint_url=moto_endpoint, region_name=REGION)
    s3.create_bucket(Bucket="shared", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    db = calls(moto_endpoint).client()  # making one takes as long as fifty calls
    number = itertools.count()

    def opened(folder: Path, clock: FakeClock) -> Places:
        del folder
        name = f"world-{next(number)}"

        def now(_: Mapping[str, Any]) -> datetime:
            return clock.now()

        table = calls(moto_endpoint, now, table=name)
        table._client = db
        dynamodb_table.create(table)
        return Places(
            ledger=DynamoDbLedger(table, clock=clock, boot_id="boot", keep_s=KEEP_S),
            store=S3Store(s3, "shared", f"{name}/results"),
            checkpoints=S3Checkpoints(s3, "shared", f"{name}/checkpoints"),
        )

    return opened


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("case", ["crashes_then_converts", "five_pages_one_trap", "is_gone"])
def test_a_parent_that_dies_at_any_call(tmp_path: Path, shared: Opener, case: str, after: bool) -> None:  # noqa: FBT001
    """Killed at any edge call, before or after it took effect: the next parent ends every document, once."""
    cut_everywhere(tmp_path, CASES[case], shared, after=after)


@pytest.mark.parametrize("name", PROMISES)
def test_a_sweep_that_dies_at_any_call(
    tmp_path: Path, shared: Opener, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Killed at any edge call, after it took effect: the next sweep ends it, and counts nothing twice."""
    monkeypatch.setattr(test_sweep, "KIND", shared)
    check: Callable[..., None] = test_sweep.test_a_sweep_that_dies_at_any_call
    check(tmp_path, name, after=True)
