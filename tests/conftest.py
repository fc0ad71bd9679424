"""Fixtures that every test may ask for."""

from __future__ import annotations

import pytest

from tests.aws import aws_environment, moto_endpoint, moto_server
from tests.corpus_folder import corpus
from tests.samples import samples

pytest.register_assert_rewrite("tests.contract.fetching", "tests.contract.queue_contract")
pytest.register_assert_rewrite("tests.contract.ledger_contract", "tests.contract.store_contract")
pytest.register_assert_rewrite("tests.contract.recovery_contract", "tests.shell.ahead_scene")

__all__ = ["aws_environment", "corpus", "moto_endpoint", "moto_server", "samples"]
