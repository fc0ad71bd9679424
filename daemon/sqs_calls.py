"""One call to SQS: made, retried within a bound, and its failure said in our own words.

Edge. Rules: there is one retry policy, this one; botocore's is off. Retried with full jitter is what waiting may
cure: throttling, 5xx, broken connections, expired or missing credentials, for which the client is built anew from
the provider chain, since a profile's file is read only once. Every wait ends at once when the given event is set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar
from urllib.parse import urlsplit

import boto3
import structlog
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
from daemon.config_queue import QueueSettings
from daemon.errors import ConfigurationError, LeaseLostError, ResourceError, WorldError
from daemon.model import Cause

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

log = structlog.get_logger()

#: A connection to a queue on the same continent takes 0.1 s; a dead route should not eat a heartbeat.
CONNECT_TIMEOUT_S = 5.0
#: The first wait is anywhere up to this, each next window twice as wide.
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 5.0
#: Connections kept open: as many as threads can call at once (slots, heartbeat, receiver).
POOL_SIZE = 32

#: Of a call with a receipt: someone else's now. Of any other: a call that can never succeed.
_REFUSED = frozenset({
    "InvalidParameterValue", "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidIdFormat", "MissingParameter",
    "InvalidMessageContents", "UnsupportedOperation", "InvalidAttributeName", "InvalidAttributeValue",
})  # fmt: skip
_NO_QUEUE = frozenset({"NonExistentQueue", "QueueDoesNotExist", "InvalidAddress"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "KmsAccessDenied", "OptInRequired"})

T = TypeVar("T")


class Calls:
    """A client of SQS that is made when it is needed and made anew when its credentials are refused."""

    def __init__(self, settings: QueueSettings, *, read_timeout_s: float) -> None:
        self._settings = settings
        self._read_timeout_s = read_timeout_s
        self._lock = threading.Lock()
        self._client: SQSClient | None = None

    def call(
        self,
        what: str,
        request: Callable[[SQSClient], T],
        *,
        retry_for_s: float,
        ended: threading.Event,
        receipt: bool = False,
    ) -> T:
        """What `request` returns; `what` is the verb for messages, `ended` cuts waits short.

        Raises `WorldError` when the world did not answer, `ResourceError` when there is no such queue. A call that
        SQS refuses raises `LeaseLostError` when it bears a `receipt`, else `ConfigurationError`.
        """
        retrying = Retrying(
            retry=retry_if_exception(is_transient),
            wait=wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S),
            stop=stop_before_delay(retry_for_s) | stop_when_event_set(ended),
            sleep=sleep_using_event(ended),
            before_sleep=partial(self._before_retry, what),
            reraise=True,
        )
        try:
            return retrying(lambda: request(self.client()))
        except FIRST_CALL_ERRORS as error:
            _raise_ours(what, error, receipt=receipt)

    def client(self) -> SQSClient:
        """The client in use; boto3's clients may be shared by threads, their making may not."""
        with self._lock:
            if self._client is None:
                self._client = _new_client(self._settings, self._read_timeout_s)
            return self._client

    def _before_retry(self, what: str, state: RetryCallState) -> None:
        """Say so, and forget the client when its credentials were refused."""
        error = state.outcome.exception() if state.outcome else None
        code = code_of(error) if isinstance(error, ClientError) else type(error).__name__
        log.info("queue.retried", call=what, tries=state.attempt_number, code=code)
        if is_credentials(error):
            with self._lock:
                self._client = None

    def close(self) -> None:
        """Give connections back."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _new_client(settings: QueueSettings, read_timeout_s: float) -> SQSClient:
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=POOL_SIZE,
        tcp_keepalive=True,
    )
    session = boto3.session.Session(region_name=settings.region or _region_in(settings.url))
    client = session.client("sqs", endpoint_url=settings.endpoint_url, config=config)
    insist_on_whole_answers(client)
    return client


def _region_in(url: str) -> str | None:
    """The region that AWS's own queue URLs bear; None for any other, where the SDK chooses."""
    match (urlsplit(url).hostname or "").split("."):
        case ["sqs", region, "amazonaws", *_]:
            return region
    return None


def _raise_ours(what: str, error: Exception, *, receipt: bool) -> NoReturn:
    """Say a botocore failure in our own words."""
    if not isinstance(error, ClientError):
        if is_transient(error):
            advice = "the message comes back; look at network, endpoint and credentials"
            raise WorldError(Cause.QUEUE_UNAVAILABLE, f"cannot {what}: {error}; {advice}") from error
        raise ConfigurationError(f"cannot {what}: {error}; correct the queue's settings") from error
    code, detail = code_of(error), f"cannot {what}: {error}"
    if code in _NO_QUEUE:
        raise ResourceError(f"{detail}; create the queue or correct queue.url and queue.region") from error
    if code in _DENIED:
        raise QueueDeniedError(f"{detail}; allow this role to do it") from error
    if code in _REFUSED and not is_transient(error):
        raise (LeaseLostError(detail) if receipt else ConfigurationError(detail)) from error
    raise WorldError(Cause.QUEUE_UNAVAILABLE, detail) from error


class QueueDeniedError(WorldError):
    """SQS refuses us. In mid-run a policy may be on its way, so it is the world's; at start it is the operator's."""

    def __init__(self, detail: str) -> None:
        super().__init__(Cause.QUEUE_UNAVAILABLE, detail)
