"""Calls to one DynamoDB table: made, retried within a bound, dated by the server, their failures in our own words.

Edge. Rules: there is one retry policy, this one; botocore's is off. Retried with full jitter is what waiting may cure:
throttling, a transaction that met another one, 5xx, broken connections, credentials (the client is built anew). A
condition that does not hold is `ChangedError` and never retried here. Reads are consistent but for those of an index,
which cannot be. Names of attributes are always given as placeholders, since many words are reserved. The instant of
every read is the server's, out of its `Date`: no host's clock says whether a lease has run out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_before_delay,
    stop_when_event_set,
    wait_random_exponential,
)
from tenacity.nap import sleep_using_event

from daemon.aws_errors import FIRST_CALL_ERRORS, code_of, insist_on_whole_answers, is_credentials, is_transient
from daemon.config import LedgerSettings
from daemon.errors import ConfigurationError, ResourceError, WorldError
from daemon.model import Cause

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

CONNECT_TIMEOUT_S = 5.0
#: An answer takes milliseconds; a call that hangs must not eat a heartbeat.
READ_TIMEOUT_S = 5.0
#: The first wait is anywhere up to this, each next window twice as wide.
FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 2.0
#: As many as threads can call at once (slots, heartbeat, a command).
POOL_SIZE = 32
#: BatchGetItem takes so many keys.
MOST_KEYS = 100
#: TransactWriteItems takes so many items.
MOST_WRITES = 100

#: Of a call, or of a part of a transaction: somebody else was at it, or too much was asked at once.
_AGAIN = frozenset({
    "TransactionConflict", "TransactionConflictException", "TransactionInProgressException", "ThrottlingError",
    "ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "LimitExceededException",
    "ReplicatedWriteConflictException", "InvalidSignatureException",
})  # fmt: skip
_CHANGED = frozenset({"ConditionalCheckFailed", "ConditionalCheckFailedException"})
_NO_TABLE = frozenset({"ResourceNotFoundException", "TableNotFoundException"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException"})

#: One item, or a part of one, as DynamoDB writes values: `{"name": {"S": "text"}}`.
Item = Mapping[str, Any]
T = TypeVar("T")


class ChangedError(Exception):
    """A condition does not hold: somebody has written since we read. Never leaves the ledger."""


class TableDeniedError(WorldError):
    """DynamoDB refuses us. In mid-run a policy may be on its way: the world's; at start it is the operator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One part of a transaction, which is refused as a whole with `ChangedError` when a condition does not hold."""

    #: `Put`, `Delete`, `Update` or `ConditionCheck`, with everything but the table's name.
    kind: str
    request: Mapping[str, Any]


def put(item: Item, *, version: int | None) -> Write:
    """Write an item whose `version` is this now; None: that is not there yet."""
    return Write(kind="Put", request={"Item": item, **_if_version(version)})


def overwrite(item: Item) -> Write:
    """Write an item whatever was there; what else is in the transaction must check."""
    return Write(kind="Put", request={"Item": item})


def delete(key: Item, *, version: int | None = None) -> Write:
    """Remove an item, of this version when one is given."""
    return Write(kind="Delete", request={"Key": key, **(_if_version(version) if version is not None else {})})


def absent(key: Item) -> Write:
    """Nothing, unless there is such an item."""
    return Write(kind="ConditionCheck", request={"Key": key, **_if_version(None)})


def expire(key: Item, *, at_s: int) -> Write:
    """Let an item go some time after `at_s`, in seconds from 1970."""
    names, values = {"#expires_at": "expires_at"}, {":at": {"N": str(at_s)}}
    request = {"UpdateExpression": "SET #expires_at = :at", "ExpressionAttributeNames": names}
    return Write(kind="Update", request={"Key": key, **request, "ExpressionAttributeValues": values})


def _if_version(version: int | None) -> dict[str, Any]:
    if version is None:
        return {"ConditionExpression": "attribute_not_exists(#pk)", "ExpressionAttributeNames": {"#pk": "pk"}}
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":version": {"N": str(version)}},
    }


def date_of(response: Mapping[str, Any]) -> datetime:
    """When the server answered, by its own clock, to the second. Raises `WorldError` when it does not say."""
    text = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError as error:
        detail = f"cannot tell whether a lease has run out: the table's answer bears no Date ({text!r})"
        raise WorldError(Cause.STORE_UNAVAILABLE, f"{detail}. Is there a proxy that removes it?") from error


class Calls:
    """One table; its client is made when it is needed and made anew when its credentials are refused."""

    def __init__(
        self, settings: LedgerSettings, *, server_clock: Callable[[Mapping[str, Any]], datetime] = date_of
    ) -> None:
        self.table = settings.table
        self._settings = settings
        self._server_clock = server_clock
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._client: DynamoDBClient | None = None

    def get(self, key: Item) -> tuple[Item | None, datetime]:
        """The item as it is now, and when that was."""
        response = self.call(
            "read the ledger", lambda db: db.get_item(TableName=self.table, Key=dict(key), ConsistentRead=True)
        )
        return response.get("Item"), self._server_clock(response)

    def get_all(self, keys: Sequence[Item]) -> list[Item]:
        """Those items of `keys` that are there, as they are now, in no order."""
        found: list[Item] = []
        for start in range(0, len(keys), MOST_KEYS):
            left = [dict(key) for key in keys[start : start + MOST_KEYS]]
            while left:
                response = self.call("read the ledger", lambda db, left=left: self._batch(db, left))  # type: ignore[misc]
                found += response["Responses"].get(self.table, [])
                left = response["UnprocessedKeys"].get(self.table, {}).get("Keys", [])
        return found

    def _batch(self, db: DynamoDBClient, keys: list[dict[str, Any]]) -> Any:
        """One batch; one that gave nothing at all was throttled."""
        response = db.batch_get_item(RequestItems={self.table: {"Keys": keys, "ConsistentRead": True}})
        if not response["Responses"].get(self.table) and response["UnprocessedKeys"]:
            code = "ProvisionedThroughputExceeded"
            raise ClientError({"Error": {"Code": code, "Message": "no key was processed"}}, "BatchGetItem")
        return response

    def query(
        self, where: Mapping[str, str], *, begins: str = "", after: str = "", index: str | None = None, **more: Any
    ) -> Iterator[Item]:
        """Items whose first key is `where`'s first entry, and whose second key begins so, or comes after, in order.

        `where` names both keys: `{"pk": "document#1", "sk": ""}`. Of an index: keys only, and perhaps of a moment ago.
        """
        for page in self._pages(where, begins=begins, after=after, index=index, **more):
            yield from page["Items"]

    def count(self, where: Mapping[str, str], *, index: str) -> int:
        """How many there are; reads all their keys."""
        return sum(int(page["Count"]) for page in self._pages(where, index=index, Select="COUNT"))

    def _pages(
        self, where: Mapping[str, str], *, begins: str = "", after: str = "", index: str | None = None, **more: Any
    ) -> Iterator[Any]:
        (first, value), (second, _) = where.items()
        conditions, names, values = ["#first = :first"], {"#first": first}, {":first": {"S": value}}
        if begins or after:  # an empty text is refused as a key
            conditions.append("begins_with(#second, :second)" if begins else "#second > :second")
            names["#second"] = second
            values[":second"] = {"S": begins or after}
        request = {
            "TableName": self.table,
            "KeyConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            **({"ConsistentRead": True} if index is None else {"IndexName": index}),
            **more,
        }
        while True:
            response = self.call("read the ledger", lambda db: db.query(**request))
            yield response
            if not response.get("LastEvaluatedKey"):
                return
            request["ExclusiveStartKey"] = response["LastEvaluatedKey"]

    def write(self, writes: Sequence[Write], *, token: str) -> None:
        """All of them or none; `token` makes the same call again harmless. Raises `ChangedError`."""
        assert 0 < len(writes) <= MOST_WRITES, f"{len(writes)} writes are no transaction"
        if len(writes) == 1 and writes[0].kind == "Put":
            request = {"TableName": self.table, **writes[0].request}
            self.call("write the ledger", lambda db: db.put_item(**request))
            return
        items: Any = [{write.kind: {"TableName": self.table, **write.request}} for write in writes]
        self.call("write the ledger", lambda db: db.transact_write_items(TransactItems=items, ClientRequestToken=token))

    def call(self, what: str, request: Callable[[DynamoDBClient], T]) -> T:
        """What `request` returns. Raises `WorldError`, `ChangedError`, `ResourceError`, `ConfigurationError`."""
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S),
            stop=stop_before_delay(self._settings.retry_for_s) | stop_when_event_set(self._ended),
            sleep=sleep_using_event(self._ended),
            before_sleep=self._renew_client,
            reraise=True,
        )
        try:
            return retrying(lambda: request(self.client()))
        except FIRST_CALL_ERRORS as error:
            _raise_ours(f"{what} (table {self.table})", error)

    def client(self) -> DynamoDBClient:
        """The client in use; boto3's clients may be shared by threads, their making may not."""
        with self._lock:
            if self._client is None:
                self._client = _new_client(self._settings)
            return self._client

    def _renew_client(self, state: RetryCallState) -> None:
        """Forget the client when its credentials were refused."""
        if is_credentials(state.outcome.exception() if state.outcome else None):
            with self._lock:
                self._client = None

    def close(self) -> None:
        """Give connections back, and cut waits short; the same again is harmless."""
        self._ended.set()
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _new_client(settings: LedgerSettings) -> DynamoDBClient:
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=POOL_SIZE,
        tcp_keepalive=True,
    )
    session = boto3.session.Session(region_name=settings.region)
    client = session.client("dynamodb", endpoint_url=settings.endpoint_url, config=config)
    insist_on_whole_answers(client)
    return client


def _reasons(error: BaseException) -> frozenset[str]:
    """The error's code; of a cancelled transaction, those of its parts that were at fault."""
    if not isinstance(error, ClientError):
        return frozenset()
    parts = error.response.get("CancellationReasons", [])
    return frozenset({code_of(error)} | {str(part.get("Code")) for part in parts}) - {"None"}


def _may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed later. A condition that failed never does, whatever failed beside it."""
    reasons = _reasons(error)
    return not reasons & _CHANGED and (bool(reasons & _AGAIN) or is_transient(error))


def _raise_ours(what: str, error: Exception) -> NoReturn:
    """Say a botocore failure in our own words."""
    reasons, detail = _reasons(error), f"cannot {what}: {error}"
    if reasons & _CHANGED:
        raise ChangedError(detail) from error
    if reasons & _NO_TABLE:
        advice = "create it with `bulkhead ledger create`, or correct ledger.table and ledger.region"
        raise ResourceError(f"{detail}; {advice}") from error
    if reasons & _DENIED:
        raise TableDeniedError(Cause.STORE_UNAVAILABLE, f"{detail}; allow this role to do it") from error
    if _may_pass(error):
        advice = "the message comes back; look at network, endpoint, credentials and the table's capacity"
        raise WorldError(Cause.STORE_UNAVAILABLE, f"{detail}; {advice}") from error
    raise ConfigurationError(f"{detail}; correct the ledger's settings, or the table") from error
