"""The CloudFormation template allows what the code calls, and nothing else."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from cfnlint.decode import cfn_yaml

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "deploy" / "aws" / "bulkhead.yaml"
#: Its AWS is its own, and a person's `demo` needs no policy.
NOT_DEPLOYED = {"emulator.py", "demo.py"}
#: What IAM calls an operation, where that is not its own name. S3 answers a HEAD, and a listing, by other actions.
ACTIONS = {
    ("s3", "head_object"): {"s3:GetObject"},
    ("s3", "list_objects_v2"): {"s3:ListBucket"},
    ("s3", "get_object"): {"s3:GetObject", "s3:GetObjectVersion"},
}
#: Reserved for what is called by another name than the operation's.
CALLED_THROUGH = {"get_paginator", "get_waiter"}


@functools.cache
def operations(service: str) -> dict[str, str]:
    """Every operation of a service: the client's method → IAM's action."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): f"{service}:{name}" for name in model.operation_names}


def calls(file: Path) -> Iterator[tuple[str, str]]:
    """(service, method) of every call of a client in one file; the stubs that it imports name the services."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    services = {module.split(".")[0].removeprefix("mypy_boto3_") for module in modules if "mypy_boto3_" in module}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        if name in CALLED_THROUGH and node.args and isinstance(node.args[0], ast.Constant):
            name = str(node.args[0].value)
        yield from ((service, name) for service in services if name in operations(service))


@functools.cache
def called() -> frozenset[str]:
    """IAM's actions for everything that the daemon and its commands call."""
    found: set[str] = set()
    for file in sorted((ROOT / "daemon").rglob("*.py")):
        if file.name not in NOT_DEPLOYED:
            for service, method in calls(file):
                found |= ACTIONS.get((service, method), {operations(service)[method]})
    return frozenset(found)


@functools.cache
def statements() -> list[dict[str, Any]]:
    """The worker's policy, conditional statements included."""
    document = cfn_yaml.load(str(TEMPLATE))["Resources"]["WorkerPolicy"]["Properties"]["PolicyDocument"]
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


def test_no_statement_is_for_everything() -> None:
    """Each is for the resources of this stack, by name."""
    for statement in statements():
        assert statement["Effect"] == "Allow"
        assert "*" not in str(statement["Action"])
        assert statement["Resource"] != "*"


@pytest.mark.aws  # for its seconds: the linter loads every resource type there is
def test_the_template_is_valid() -> None:
    """AWS's own linter finds no error and no warning; its advice on style is left aside."""
    from cfnlint.api import lint_all  # noqa: PLC0415 - slow to load, and only here

    found = lint_all(TEMPLATE.read_text(encoding="utf-8"))
    assert [str(match) for match in found if not match.rule.id.startswith("I")] == []
