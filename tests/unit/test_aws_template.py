"""The CloudFormation template allows what the code calls, and nothing else."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
from botocore import xform_name
from cfnlint.decode import cfn_yaml

from daemon import dynamodb_table

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "deploy" / "aws" / "bulkhead.yaml"
#: Its AWS is its own, and a person's `demo` needs no policy.
NOT_DEPLOYED = {"emulator.py", "demo.py"}
#: What IAM calls an operation, where that is not its own name. S3 answers a HEAD, and a listing, by other actions.
#: A transaction is allowed by what is in it (`TRANSACTED` finds that).
ACTIONS = {
    ("dynamodb", "transact_write_items"): frozenset[str](),
    ("s3", "head_object"): {"s3:GetObject"},
    ("s3", "list_objects_v2"): {"s3:ListBucket"},
    ("s3", "list_object_versions"): {"s3:ListBucketVersions"},
    ("s3", "get_object"): {"s3:GetObject", "s3:GetObjectVersion"},
}
#: The parts of a transaction, as they are written in the code.
TRANSACTED = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
#: `bulkhead ledger create` is a person's, with that person's rights; the template makes the table as well.
BY_PERSONS = {"dynamodb:CreateTable", "dynamodb:UpdateTimeToLive"}
#: Where the client's method is an argument.
CALLED_THROUGH = {"get_paginator", "get_waiter"}


@functools.cache
def operations(service: str) -> dict[str, str]:
    """Every operation of a service: the client's method → IAM's action."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): f"{service}:{name}" for name in model.operation_names}


def calls(file: Path) -> Iterator[str]:
    """IAM's action for every call of a client in one file; its name and the stubs that it imports name the services."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    services = {module.split(".")[0].removeprefix("mypy_boto3_") for module in modules if "mypy_boto3_" in module}
    services |= {"dynamodb"} & set(re.split(r"[_.]", file.name))
    for node in ast.walk(tree):
        if "dynamodb" in services and isinstance(node, ast.Constant) and node.value in TRANSACTED:
            yield TRANSACTED[str(node.value)]
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        if name in CALLED_THROUGH and node.args and isinstance(node.args[0], ast.Constant):
            name = str(node.args[0].value)
        for service in services:
            if name in operations(service):
                yield from ACTIONS.get((service, name), {operations(service)[name]})


@functools.cache
def called() -> frozenset[str]:
    """IAM's actions for everything that the daemon and its commands call."""
    files = [file for file in sorted((ROOT / "daemon").rglob("*.py")) if file.name not in NOT_DEPLOYED]
    return frozenset(action for file in files for action in calls(file)) - BY_PERSONS


@functools.cache
def resources() -> dict[str, Any]:
    """The template's resources, with its short forms (`!Ref`) spelt out."""
    found = cfn_yaml.load(str(TEMPLATE))["Resources"]
    assert isinstance(found, dict)
    return found


def statements() -> list[dict[str, Any]]:
    """The worker's policy, conditional statements included."""
    document = resources()["WorkerPolicy"]["Properties"]["PolicyDocument"]
    return [each["Fn::If"][1] if "Fn::If" in each else each for each in document["Statement"]]


def allowed() -> set[str]:
    """Every action of the policy."""
    given = [each["Action"] for each in statements()]
    return {action for each in given for action in ([each] if isinstance(each, str) else each)}


def test_every_call_is_allowed() -> None:
    """A call that nobody allowed fails on the first real AWS, and on no emulator."""
    assert called() - allowed() == frozenset()


def test_nothing_is_allowed_that_is_not_called() -> None:
    """A host that is taken over can do no more than the daemon does."""
    assert allowed() - called() == set()


def test_the_calls_are_found() -> None:
    """The two tests above mean something only while this one finds the calls."""
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage", "s3:PutObject", "s3:ListBucket"} <= called()


def test_the_table_is_the_one_that_a_start_asks_for() -> None:
    """A table that lacks something is a refused start."""
    made = dict(resources()["LedgerTable"]["Properties"])
    assert made.pop("TimeToLiveSpecification") == {"AttributeName": dynamodb_table.TTL, "Enabled": True}
    assert made.pop("PointInTimeRecoverySpecification")
    assert made.pop("SSESpecification")
    assert made == dynamodb_table.definition(made["TableName"])


def test_no_statement_is_for_everything() -> None:
    """Each is for the resources of this stack, by name."""
    for statement in statements():
        assert statement["Effect"] == "Allow"
        assert "*" not in str(statement["Action"])
        assert statement["Resource"] != "*"


def test_the_template_is_valid() -> None:
    """AWS's own linter finds no error and no warning, in one region: for all of them it takes minutes."""
    from cfnlint.api import lint  # noqa: PLC0415 - slow to load, and only here

    text = TEMPLATE.read_text(encoding="utf-8")
    assert lint(text, regions=["us-east-1"]) == []
    assert lint(text.replace("MessageRetentionPeriod:", "MessageRetention:"), regions=["us-east-1"]) != []
