"""What only the S3 store must do: outlive deaths and rivals between any two requests, and name what S3 answers.

Deaths and rivals come through the SDK's own events, at the n-th request for every n; the requests themselves are real
HTTP.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from daemon.errors import LeaseLostError, ResourceError, WorldError
from daemon.model import ARTEFACTS, MANIFEST, Cause
from daemon.store_s3 import S3Store
from tests.contract.store_contract import ID, attempt_of, publish

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.aws

BUCKET = "results"
#: More requests than any put makes.
MANY = 40


class Died(BaseException):
    """Stands for the end of the process; nothing in the daemon may catch it."""


class Raw:
    """An HTTP body as botocore wants it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        """All at once."""
        yield self._content


def new_client(endpoint: str) -> S3Client:
    """A client that tries once, as the store's own."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 1}, s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=endpoint, config=config)


def new_store(endpoint: str, *, retry_for_s: float = 0.2) -> tuple[S3Store, S3Client]:
    """A store and its client, whose events a test may listen to."""
    client = new_client(endpoint)
    return S3Store(client, BUCKET, "out", retry_for_s=retry_for_s), client


@pytest.fixture
def endpoint(moto_endpoint: str) -> str:
    """An S3 with one empty bucket."""
    new_client(moto_endpoint).create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    return moto_endpoint


@functools.cache
def plain_client(endpoint: str) -> S3Client:
    """A client to whose events nobody listens; making one takes longer than using it."""
    return new_client(endpoint)


def published(endpoint: str, attempt: int) -> None:
    """Another host publishes."""
    publish(S3Store(plain_client(endpoint), BUCKET, "out", retry_for_s=0.2), attempt)


def visible(endpoint: str) -> Mapping[str, bytes]:
    """What a reader finds of the document."""
    client = plain_client(endpoint)
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=f"out/{ID}/").get("Contents", [])
    return {
        each["Key"].rpartition("/")[2]: client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        for each in found
    }


def at_request(client: S3Client, n: int, act: Callable[[], None], *, event: str = "before-send.s3") -> None:
    """Call `act` once, at the n-th request from 0, before it is sent (or on `event`)."""
    left = [n]

    def count(**_: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            act()

    client.meta.events.register(event, count)


def answer(client: S3Client, status: int, code: str, *, times: int = MANY, operation: str = "") -> list[str]:
    """Let the first `times` requests (of `operation`, if given) be answered by an error; returns a log of them."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    seen: list[str] = []

    def reply(event_name: str, request: Any, **_: Any) -> AWSResponse | None:
        name = event_name.rpartition(".")[2]
        if len(seen) == times or (operation and name != operation):
            return None
        seen.append(name)
        return AWSResponse(request.url, status, {}, Raw(b"" if name == "HeadObject" else body))  # type: ignore[arg-type]

    # The stubs know only listeners without an answer; this event takes one as the response.
    client.meta.events.register("before-send.s3", reply)  # type: ignore[arg-type]
    return seen


def die() -> None:
    """End the process, as far as the store can tell."""
    raise Died


@pytest.mark.parametrize(
    ("before", "possible", "event"),
    [
        (None, {None, 2}, "before-send.s3"),
        (1, {1, None, 2}, "before-send.s3"),
        (1, {1, None, 2}, "response-received.s3"),
    ],
    ids=["fresh, unsent", "republish, unsent", "republish, unanswered"],
)
def test_death_at_every_request(endpoint: str, before: int | None, possible: set[int | None], event: str) -> None:
    """A writer that dies anywhere leaves the old publication, none, or the new one; the next attempt succeeds."""
    found: set[int | None] = set()
    for n in range(MANY):
        if before is not None:
            published(endpoint, before)
        store, client = new_store(endpoint)
        at_request(client, n, die, event=event)
        try:
            publish(store, 2, preview=False)
        except Died:
            found.add(attempt_of(visible(endpoint)))
        else:
            found.add(attempt_of(visible(endpoint)))
            break
        published(endpoint, 3)
        assert attempt_of(visible(endpoint)) == 3
        empty(endpoint)
    else:
        pytest.fail("the put never came to its end")
    assert found == possible


def empty(endpoint: str) -> None:
    """Remove the document."""
    for name in (*ARTEFACTS, MANIFEST):
        plain_client(endpoint).delete_object(Bucket=BUCKET, Key=f"out/{ID}/{name}")


@pytest.mark.parametrize(
    ("before", "preview"), [(None, True), (1, False)], ids=["fresh, with preview", "republish, without"]
)
def test_stale_holder_wakes_at_every_request(endpoint: str, *, before: int | None, preview: bool) -> None:
    """A holder that was asleep while a newer one published cannot change one byte, wherever it stopped."""
    refused = 0
    for n in range(MANY):
        empty(endpoint)
        if before is not None:
            published(endpoint, before)
        store, client = new_store(endpoint)
        at_request(client, n, lambda: published(endpoint, 3))
        try:
            publish(store, 2, preview=preview)
        except LeaseLostError:
            refused += 1
            assert attempt_of(visible(endpoint)) == 3
        else:
            break
    assert refused >= 4
    assert attempt_of(visible(endpoint)) == 2  # it had ended before the rival could come


@pytest.mark.parametrize("before", [None, 1], ids=["fresh", "republish"])
def test_stale_rival_at_every_request(endpoint: str, before: int | None) -> None:
    """A stale holder that writes in between any two of our requests does not keep us from publishing."""
    for n in range(MANY):
        empty(endpoint)
        if before is not None:
            published(endpoint, before)
        store, client = new_store(endpoint)
        came: list[int] = []

        def rival(came: list[int] = came) -> None:
            came.append(1)
            try:
                published(endpoint, 2)
            except LeaseLostError:
                came.append(2)

        at_request(client, n, rival)
        publish(store, 3, preview=False)
        assert attempt_of(visible(endpoint)) == 3
        if not came:
            return
    pytest.fail("the put never came to its end")


def test_conditions_of_the_emulator(endpoint: str) -> None:
    """What the tests above lean on: conditional writes and deletes are refused as S3 refuses them."""
    client = new_client(endpoint)

    def code(call: Callable[[], object]) -> str:
        with pytest.raises(ClientError) as caught:
            call()
        return str(caught.value.response["Error"]["Code"])

    absent = code(lambda: client.put_object(Bucket=BUCKET, Key="k", Body=b"1", IfMatch='"0"'))
    etag = client.put_object(Bucket=BUCKET, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    again = code(lambda: client.put_object(Bucket=BUCKET, Key="k", Body=b"2", IfNoneMatch="*"))
    other = code(lambda: client.put_object(Bucket=BUCKET, Key="k", Body=b"2", IfMatch='"0"'))
    delete = code(lambda: client.delete_object(Bucket=BUCKET, Key="k", IfMatch='"0"'))
    assert (absent, again, other, delete) == ("NoSuchKey", *["PreconditionFailed"] * 3)
    client.put_object(Bucket=BUCKET, Key="k", Body=b"2", IfMatch=etag)


def test_bucket_without_a_prefix(endpoint: str) -> None:
    """Results may lie at the bucket's root; no key begins with a slash, which would be another folder."""
    store = S3Store(plain_client(endpoint), BUCKET)
    publish(store, 1)
    store.check()
    found = plain_client(endpoint).list_objects_v2(Bucket=BUCKET)["Contents"]
    assert {each["Key"] for each in found} == {f"{ID}/{name}" for name in (*ARTEFACTS, MANIFEST)}


def test_content_types(endpoint: str) -> None:
    """A browser shows what a reader opens, in UTF-8."""
    publish(new_store(endpoint)[0], 1)
    client = new_client(endpoint)
    types = {
        name: client.head_object(Bucket=BUCKET, Key=f"out/{ID}/{name}")["ContentType"] for name in visible(endpoint)
    }
    assert types == {
        "document.md": "text/markdown; charset=utf-8",
        "document.json": "application/json",
        "preview.webp": "image/webp",
        "manifest.json": "application/json",
    }


def test_requests_of_an_ordinary_put(endpoint: str) -> None:
    """A first publication costs one look and one request per file."""
    store, client = new_store(endpoint)
    sent: list[str] = []
    client.meta.events.register("before-send.s3", lambda event_name, **_: sent.append(event_name.rpartition(".")[2]))
    publish(store, 1)
    assert sent == ["HeadObject", "PutObject", "PutObject", "PutObject", "PutObject"]


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests"), (400, "RequestTimeout")]
)
def test_world_that_recovers(endpoint: str, status: int, code: str) -> None:
    """Throttling and server errors that pass cost some time and nothing else."""
    store, client = new_store(endpoint, retry_for_s=20)
    seen = answer(client, status, code, times=2, operation="PutObject")
    publish(store, 1)
    assert len(seen) == 2
    assert attempt_of(visible(endpoint)) == 1


def test_answer_that_was_lost(endpoint: str) -> None:
    """A put that S3 took although its answer was an error is repeated without harm."""
    store, client = new_store(endpoint, retry_for_s=20)
    lost: list[str] = []

    def lose(parsed: dict[str, Any], operation_name: str = "", **_: Any) -> None:
        del parsed
        if not lost:
            lost.append(operation_name)
            raise EndpointConnectionError(endpoint_url=endpoint)

    client.meta.events.register("after-call.s3.PutObject", lose)
    publish(store, 1)
    assert lost
    assert attempt_of(visible(endpoint)) == 1


@pytest.mark.parametrize(
    ("status", "code", "requests"), [(503, "SlowDown", range(2, MANY)), (403, "AccessDenied", range(1, 2))]
)
def test_world_that_does_not_recover(endpoint: str, status: int, code: str, requests: range) -> None:
    """After a bounded time, at once where time cures nothing, the document is released: it was not at fault."""
    store, client = new_store(endpoint, retry_for_s=0.5)
    seen = answer(client, status, code, operation="PutObject")
    with pytest.raises(WorldError, match=rf"PutObject was answered by {code} \({status}\)") as caught:
        publish(store, 1)
    assert caught.value.cause is Cause.STORE_UNAVAILABLE
    assert len(seen) in requests
    assert attempt_of(visible(endpoint)) is None


def test_nobody_listens(aws_environment: None) -> None:
    """An endpoint that refuses connections is the world's, at work and at start: it may come up."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        store, _ = new_store(f"http://127.0.0.1:{closed.getsockname()[1]}")
        for call in (lambda: publish(store, 1), lambda: store.manifest(ID), store.check):
            with pytest.raises(WorldError) as caught:
                call()
            assert caught.value.cause is Cause.STORE_UNAVAILABLE


def test_missing_bucket(endpoint: str) -> None:
    """A bucket that does not exist is the operator's to make, and is named, at start and at work."""
    store = S3Store(new_client(endpoint), "absent", "")
    for call in (lambda: publish(store, 1), lambda: store.manifest(ID), store.check):
        with pytest.raises(ResourceError, match="s3://absent: there is no such bucket"):
            call()


@pytest.mark.parametrize(
    ("operation", "right"),
    [("HeadObject", "s3:ListBucket"), ("PutObject", "s3:PutObject"), ("DeleteObject", "s3:DeleteObject")],
)
def test_check_names_the_missing_right(endpoint: str, operation: str, right: str) -> None:
    """What the credentials may not do is found before the first message is received."""
    store, client = new_store(endpoint)
    answer(client, 403, "AccessDenied", operation=operation)
    with pytest.raises(ResourceError, match=rf"s3://results/out: .*\(403\)\. Give these credentials {right}"):
        store.check()


def test_check_without_credentials(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without credentials is told so."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    store, _ = new_store(endpoint)
    with pytest.raises(ResourceError, match=r"(?i)credentials"):
        store.check()


@pytest.mark.parametrize("operation", ["PutObject", "DeleteObject"])
def test_check_whose_answer_is_lost(endpoint: str, operation: str) -> None:
    """A probe that was written or removed although the answer never came: a hiccup at start is no refused start."""
    store, client = new_store(endpoint, retry_for_s=5.0)
    lost: list[str] = []

    def lose(**_: Any) -> None:
        if not lost:
            lost.append(operation)
            raise EndpointConnectionError(endpoint_url=endpoint)

    client.meta.events.register(f"response-received.s3.{operation}", lose)
    store.check()
    assert lost == [operation]
    assert plain_client(endpoint).list_objects_v2(Bucket=BUCKET).get("Contents", []) == []


def test_check_with_expired_credentials(endpoint: str) -> None:
    """They are renewed by whoever issued them: systemd starts the daemon again, which it would not after a refusal."""
    store, client = new_store(endpoint)
    answer(client, 400, "ExpiredToken")
    with pytest.raises(WorldError, match="ExpiredToken") as caught:
        store.check()
    assert caught.value.cause is Cause.STORE_UNAVAILABLE


def test_check_of_a_store_without_conditions(endpoint: str) -> None:
    """A store that ignores conditions would let two hosts overwrite each other: refused, and the trial removed."""
    store, client = new_store(endpoint)

    def ignore(params: dict[str, Any], **_: Any) -> None:
        params["headers"].pop("If-None-Match", None)

    client.meta.events.register("before-call.s3.PutObject", ignore)
    with pytest.raises(ResourceError, match="ignores If-None-Match"):
        store.check()
    assert new_client(endpoint).list_objects_v2(Bucket=BUCKET).get("Contents", []) == []


def test_object_without_a_token(endpoint: str) -> None:
    """What another tool has put there is nobody's publication and is replaced."""
    client = new_client(endpoint)
    for name in ("document.md", "manifest.json"):
        client.put_object(Bucket=BUCKET, Key=f"out/{ID}/{name}", Body=b"theirs", Metadata={"fencing-token": "many"})
    publish(new_store(endpoint)[0], 1)
    assert attempt_of(visible(endpoint)) == 1
