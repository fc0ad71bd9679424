"""The table that hosts share: what it must look like, made on request, checked at every start.

Edge. Rules: nothing makes the table but `create`, which a person asks for; a start with a table that lacks something is
refused, and the message names all that it lacks. What more the table has (tags, a key of one's own, streams) is
nobody's business here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.dynamodb_calls import Calls, TableDeniedError
from daemon.dynamodb_documents import DOCUMENTS, STATES, URIS
from daemon.errors import ResourceError

#: Each key's two attributes, all of them texts. Indices hold nothing but keys.
KEY = ("pk", "sk")
INDICES: Mapping[str, tuple[str, str]] = {
    DOCUMENTS: ("registry", "document_id"),
    STATES: ("state", "state_order"),
    URIS: ("uri_digest", "document_id"),
}
TTL = "expires_at"
#: An on-demand table is there within seconds; the poll is the SDK's.
_WAIT: Any = {"Delay": 2, "MaxAttempts": 60}


def definition(table: str) -> dict[str, Any]:
    """What `aws dynamodb create-table --cli-input-json` takes; TTL on `expires_at` is a call of its own."""
    names = sorted({name for key in (KEY, *INDICES.values()) for name in key})
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in names],
        "KeySchema": _schema(KEY),
        "GlobalSecondaryIndexes": [
            {"IndexName": name, "KeySchema": _schema(key), "Projection": {"ProjectionType": "KEYS_ONLY"}}
            for name, key in INDICES.items()
        ],
    }


def create(calls: Calls) -> bool:
    """Make the table, and wait until it can be used; False when it was there already, and is as it must be.

    Raises `ResourceError` when it is there and lacks something, `WorldError` when DynamoDB does not answer.
    """
    made = _description(calls) is None
    if made:
        calls.call("create the table", lambda db: db.create_table(**definition(calls.table)))
        calls.call(
            "create the table", lambda db: db.get_waiter("table_exists").wait(TableName=calls.table, WaiterConfig=_WAIT)
        )
    if _ttl(calls) is None:
        specification: Any = {"AttributeName": TTL, "Enabled": True}
        calls.call(
            "let the table forget",
            lambda db: db.update_time_to_live(TableName=calls.table, TimeToLiveSpecification=specification),
        )
    check(calls)
    return made


def check(calls: Calls) -> None:
    """Raise `ResourceError`, naming all that is wrong, unless the table can be used; `WorldError` like `Calls.call`."""
    try:
        found = _description(calls)
        if found is None:
            raise ResourceError(
                f"cannot use table {calls.table}: there is none. `bulkhead ledger create` makes it; or correct "
                "ledger.table, ledger.region and the credentials' account."
            )
        problems = [*_problems(found), *([] if _ttl(calls) == TTL else [f"TTL is not enabled on {TTL}"])]
    except TableDeniedError as error:
        raise ResourceError(f"cannot check table {calls.table}: {error.detail}") from error
    if problems:
        advice = "docs/operating.md shows the definition; a wrong key or index needs a new table or index"
        raise ResourceError(f"cannot use table {calls.table}: {'; '.join(problems)}. {advice}.")


def _description(calls: Calls) -> Mapping[str, Any] | None:
    """What DynamoDB says of the table; None: there is none."""
    try:
        return calls.call("look at the table", lambda db: db.describe_table(TableName=calls.table))["Table"]
    except ResourceError:
        return None


def _ttl(calls: Calls) -> str | None:
    """The attribute by which items go; None: they do not."""
    response = calls.call("look at the table", lambda db: db.describe_time_to_live(TableName=calls.table))
    described = response["TimeToLiveDescription"]
    on = described.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
    return described.get("AttributeName") if on else None


def _problems(found: Mapping[str, Any]) -> list[str]:
    """How the table differs from what is needed; empty when it does not."""
    types = {each["AttributeName"]: each["AttributeType"] for each in found.get("AttributeDefinitions", [])}
    indices = {each["IndexName"]: each for each in found.get("GlobalSecondaryIndexes", [])}
    problems = [] if found.get("TableStatus") in {"ACTIVE", "UPDATING"} else [f"it is {found.get('TableStatus')}"]
    problems += _wrong_key("its key", found["KeySchema"], KEY, types)
    for name, key in INDICES.items():
        if name not in indices:
            problems.append(f"index {name} ({key[0]}, {key[1]}) is missing")
            continue
        problems += _wrong_key(f"index {name}", indices[name]["KeySchema"], key, types)
        if indices[name].get("IndexStatus", "ACTIVE") not in {"ACTIVE", "UPDATING"}:
            problems.append(f"index {name} is {indices[name]['IndexStatus']}")
    return problems


def _wrong_key(what: str, schema: Any, wanted: tuple[str, str], types: Mapping[str, str]) -> list[str]:
    is_text = all(types.get(name) == "S" for name in wanted)
    if list(schema) == _schema(wanted) and is_text:
        return []
    return [f"{what} must be {wanted[0]} (S, HASH) and {wanted[1]} (S, RANGE)"]


def _schema(key: tuple[str, str]) -> list[dict[str, str]]:
    first, second = key
    return [{"AttributeName": first, "KeyType": "HASH"}, {"AttributeName": second, "KeyType": "RANGE"}]
