"""Every dangerous combination of queue and settings is said once; a sound set-up is silent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from daemon.config import Settings
from daemon.config_engine import ChildSettings
from daemon.config_queue import QueueSettings, RetrySettings
from daemon.queue_findings import findings

DAY_S = 86_400
DEAD = {"QueueArn": "arn:dead", "MessageRetentionPeriod": str(14 * DAY_S), "MaximumMessageSize": "1048576"}


def redrive(count: int = 100, target: str = "arn:dead") -> str:
    """A redrive policy as SQS returns it."""
    return json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count})


SOURCE = {
    "QueueArn": "arn:source",
    "MessageRetentionPeriod": str(4 * DAY_S),
    "MaximumMessageSize": "1048576",
    "RedrivePolicy": redrive(),
}


def test_a_sound_set_up_is_silent() -> None:
    """A warning that is always there is read by nobody."""
    assert findings(SOURCE, DEAD, Settings()) == ()


@pytest.mark.parametrize(
    ("source", "dead", "settings", "words"),
    [
        ({"RedrivePolicy": ""}, {}, {}, "no redrive policy"),
        ({"RedrivePolicy": "{"}, {}, {}, "no redrive policy"),
        ({"RedrivePolicy": redrive(3)}, {}, {}, "maxReceiveCount is 3 and retry.max_attempts 3"),
        ({"RedrivePolicy": redrive(40)}, {}, {"retry": RetrySettings(max_attempts=5)}, "maxReceiveCount is 40"),
        ({"RedrivePolicy": redrive(100, "arn:other")}, {}, {}, "dead letters lie in two places"),
        ({"MessageRetentionPeriod": "3600"}, {}, {}, "set MessageRetentionPeriod to 4.0 days"),
        ({}, {}, {"child": ChildSettings(document_timeout_s=39_000), "retry": RetrySettings(max_attempts=9)}, "4.1 d"),
        ({"FifoQueue": "true"}, {}, {}, "the queue is FIFO"),
        ({}, {}, {"queue": QueueSettings(visibility_s=10)}, "queue.visibility_s is 10"),
        ({}, {"MessageRetentionPeriod": str(4 * DAY_S)}, {}, "set MessageRetentionPeriod to 14 days"),
        ({}, {"MaximumMessageSize": "262144"}, {}, "set MaximumMessageSize to 1048576"),
        ({}, {"FifoQueue": "true"}, {}, "dead-letter queue is FIFO"),
        ({"QueueArn": "arn:dead"}, {}, {}, "the queue itself"),
    ],
)  # fmt: skip
def test_a_dangerous_combination_is_said(
    source: Mapping[str, str], dead: Mapping[str, str], settings: dict[str, Any], words: str
) -> None:
    """One danger, one sentence: what is so, what comes of it, what to set."""
    said = findings({**SOURCE, **source}, {**DEAD, **dead}, Settings(**settings))
    assert len(said) == 1, said
    assert words in said[0]


def test_no_dead_letter_queue_is_said() -> None:
    """Nothing can be given up without one."""
    (said,) = findings(SOURCE, None, Settings())
    assert "queue.dead_letter_url is not set" in said
