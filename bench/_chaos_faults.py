"""What the proxy of a chaos run does to one request, and how each service says it.

Values and draws only; `_chaos_proxy.py` carries them out. Rules: a fault is drawn by the proxy's own seeded generator,
in the order in which requests come; error bodies are those of the real services, so that the daemon's own clients
read them.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Service(StrEnum):
    """Whose request it is."""

    SQS = "sqs"
    S3 = "s3"
    DYNAMODB = "dynamodb"


class Fault(StrEnum):
    """What happens to a request."""

    NONE = "none"
    #: Refused: too many requests.
    THROTTLED = "throttled"
    #: Refused: 500.
    FAILED = "failed"
    #: Refused: the token has expired.
    EXPIRED = "expired"
    #: Carried out, after a while.
    LATE = "late"
    #: Not carried out, and the connection is reset.
    RESET = "reset"
    #: Carried out; half of the answer, then the end of the connection.
    HALF_ANSWERED = "half_answered"
    #: Carried out, and answered by a 500.
    DONE_AND_FAILED = "done_and_failed"
    #: Carried out, and the connection is reset instead of an answer.
    DONE_AND_RESET = "done_and_reset"
    #: A receive whose messages are visible again at once: somebody else gets them too.
    DELIVERED_TWICE = "delivered_twice"


#: Relative frequency of faults of any request.
_WEIGHTS: Mapping[Fault, int] = {
    Fault.THROTTLED: 4,
    Fault.FAILED: 4,
    Fault.EXPIRED: 2,
    Fault.LATE: 6,
    Fault.RESET: 3,
    Fault.HALF_ANSWERED: 2,
    Fault.DONE_AND_FAILED: 3,
    Fault.DONE_AND_RESET: 2,
}
#: Deletions and receives, the two calls on which "once" hangs, are hit this much more often.
_HARDER = 3.0
#: What a late answer waits, at most.
_LATEST_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One fault, with what it needs to know."""

    fault: Fault
    #: How long a late one waits.
    wait_s: float = 0.0


class Faults:
    """Draws a fault for each request; may be calmed, and made to refuse one service for a while."""

    def __init__(self, *, seed: int, share: float, now: Callable[[], float]) -> None:
        """`share` of all requests is hit; `now` is monotonic seconds."""
        self._random = random.Random(seed)  # noqa: S311 - seeded randomness is the point
        self._share = share
        self._now = now
        self._lock = threading.Lock()
        self._refused_until: dict[Service, float] = {}
        self.done: Counter[str] = Counter()

    def calm(self) -> None:
        """No faults from now on."""
        with self._lock:
            self._share = 0.0
            self._refused_until.clear()

    def refuse(self, service: Service, seconds: float) -> None:
        """An outage: every request of `service` fails for so long."""
        with self._lock:
            if self._share:
                self._refused_until[service] = self._now() + seconds
                self.done["outage"] += 1

    def draw(self, service: Service, operation: str) -> Drawn:
        """What happens to this request."""
        with self._lock:
            if self._now() < self._refused_until.get(service, 0.0):
                drawn = Drawn(fault=Fault.FAILED)
            else:
                drawn = self._drawn(operation)
            if drawn.fault is not Fault.NONE:
                self.done[drawn.fault] += 1
            return drawn

    def _drawn(self, operation: str) -> Drawn:
        receives = operation == "ReceiveMessage"
        share = self._share * (_HARDER if receives or operation == "DeleteMessage" else 1.0)
        if self._random.random() >= share:
            return Drawn(fault=Fault.NONE)
        if receives and self._random.random() < 0.5:
            return Drawn(fault=Fault.DELIVERED_TWICE)
        (fault,) = self._random.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))
        wait_s = self._random.uniform(0.05, _LATEST_S) if fault is Fault.LATE else 0.0
        return Drawn(fault=fault, wait_s=wait_s)


#: HTTP status, and the code by service.
_REFUSALS: Mapping[Fault, Mapping[Service, tuple[int, str]]] = {
    Fault.THROTTLED: {
        Service.SQS: (400, "RequestThrottled"),
        Service.S3: (503, "SlowDown"),
        Service.DYNAMODB: (400, "ProvisionedThroughputExceededException"),
    },
    Fault.EXPIRED: {
        Service.SQS: (403, "ExpiredToken"),
        Service.S3: (400, "ExpiredToken"),
        Service.DYNAMODB: (400, "ExpiredTokenException"),
    },
}
_FAILURES: Mapping[Service, tuple[int, str]] = {
    Service.SQS: (500, "InternalFailure"),
    Service.S3: (500, "InternalError"),
    Service.DYNAMODB: (500, "InternalServerError"),
}
_NAMESPACES: Mapping[Service, str] = {
    Service.SQS: "com.amazonaws.sqs",
    Service.DYNAMODB: "com.amazonaws.dynamodb.v20120810",
}


def refusal(service: Service, fault: Fault) -> tuple[int, str, bytes]:
    """Status, content type and body with which `service` says `fault`."""
    status, code = _REFUSALS.get(fault, {}).get(service) or _FAILURES[service]
    message = f"injected: {fault}"
    if service is Service.S3:
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
        return status, "application/xml", body.encode()
    content = {"__type": f"{_NAMESPACES[service]}#{code}", "message": message}
    return status, "application/x-amz-json-1.0", json.dumps(content).encode()
