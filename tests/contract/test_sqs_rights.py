"""What the doctor says of rights and clocks, on an SQS that answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from daemon.config_queue import QueueSettings
from daemon.sqs_rights import Rights
from tests.fakes.clock import FakeClock
from tests.fakes.sqs_stage import Stage


@pytest.fixture
def stage(aws_environment: None) -> Iterator[Stage]:
    """A server that is gone afterwards."""
    server = Stage()
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def clock() -> FakeClock:
    """Set to the machine's own time, which the stage's answers bear."""
    return FakeClock(now=datetime.now(UTC))


@pytest.fixture
def rights(stage: Stage, clock: FakeClock) -> Iterator[Rights]:
    """What is asked of that server."""
    settings = QueueSettings(
        url=f"{stage.url}/1/source", dead_letter_url=f"{stage.url}/1/dead", endpoint_url=stage.url, retry_for_s=1.0
    )
    made = Rights(settings, clock=clock)
    yield made
    made.close()


def test_a_receipt_that_was_never_given_is_refused_for_the_receipt(rights: Rights, stage: Stage) -> None:
    """The call was allowed, and no message was touched."""
    for code in ("ReceiptHandleIsInvalid", "InvalidParameterValue", "ReceiptHandleIsInvalid"):
        stage.script.put((400, code, {}))
    assert list(rights.missing(empty=False)) == []
    calls = [stage.called() for _ in range(3)]
    assert [(name, parameters["QueueUrl"].rpartition("/")[2]) for name, parameters, _ in calls] == [
        ("ChangeMessageVisibility", "source"),
        ("DeleteMessage", "source"),
        ("DeleteMessage", "dead"),  # and no more: nobody extends a dead letter, so no host needs the right
    ]
    assert {parameters["ReceiptHandle"] for _, parameters, _ in calls} == {"bulkhead-doctor"}


def test_a_right_that_is_missing_is_named(rights: Rights, stage: Stage) -> None:
    """By its name in a policy, and for which of the two queues."""
    stage.script.put((400, "ReceiptHandleIsInvalid", {}))
    stage.fail(1, 403, "AccessDeniedException")
    stage.fail(1, 403, "AccessDenied")
    missing = list(rights.missing(empty=False))
    assert [sentence.split(" is ")[0] for sentence in missing] == [
        "sqs:DeleteMessage on the queue",
        "sqs:DeleteMessage on the dead-letter queue",
    ]


def test_only_an_empty_queue_is_received_from(rights: Rights, stage: Stage) -> None:
    """Each delivery counts against maxReceiveCount, so looking must not become one; and it hides nothing."""
    list(rights.missing(empty=True))
    received = [call for call in (stage.called() for _ in range(4)) if call[0] == "ReceiveMessage"]
    ((_, parameters, _),) = received
    assert parameters["QueueUrl"].endswith("/source")
    assert (parameters["VisibilityTimeout"], parameters["WaitTimeSeconds"]) == (0, 0)


@pytest.mark.parametrize("ahead_s", [-400.0, 0.0, 400.0])
def test_a_clock_that_is_off_is_measured(rights: Rights, clock: FakeClock, ahead_s: float) -> None:
    """Against the date of SQS's own answer."""
    clock.jump(ahead_s)
    skew_s = rights.skew_s()
    assert skew_s is not None
    assert abs(skew_s - ahead_s) < 20
