"""The store in an S3 bucket: `s3://bucket/prefix/<id>/`.

Edge. Rules: no object is ever written or removed unconditionally. Each bears its attempt's number as metadata, and is
put only where nothing is, or over exactly the object that was seen and is not newer (`If-None-Match: *`, `If-Match:
ETag`), so a holder that was asleep cannot overwrite what a newer one wrote. An old manifest is withdrawn before the
first artefact, and the new one is put last. One policy of retries, tenacity's: the SDK itself tries once.

What conditions cannot tell apart: an object that was replaced by one of the same bytes has the same ETag.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from daemon.aws_errors import BROKEN_CONNECTIONS, SDK_ERRORS, insist_on_whole_answers
from daemon.errors import ConfigurationError, ResourceError, WorldError
from daemon.model import MANIFEST, Cause
from daemon.publication import MEDIA_TYPES, publication, read_manifest, refuse_stale, safe_id, safe_name

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import PutObjectRequestTypeDef

T = TypeVar("T")

#: Shorter than the drain and the visibility: a store that stays away longer is answered by a release.
RETRY_FOR_S = 20.0
RETRY_PAUSE_MAX_S = 5.0
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
#: One connection per slot thread; more slots than that wait for each other.
CONNECTIONS = 64
#: How often an object may change under our hands; two holders of one document are rare, three are a fault.
ROUNDS = 5
TOKEN_METADATA = "fencing-token"  # noqa: S105 - a name, not a secret

_THROTTLED = frozenset({"SlowDown", "Throttling", "ThrottlingException", "RequestTimeout", "TooManyRequestsException"})
#: Credentials that were good, and will be again once whoever issues them has: no refused start, no document's fault.
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object as a HEAD request found it."""

    etag: str
    #: 0, which everyone may replace, where another tool put it.
    token: int


class S3Store:
    """`daemon.store.Store` on S3, or on what speaks its protocol and keeps its conditions."""

    def __init__(self, client: S3Client, bucket: str, prefix: str = "", *, retry_for_s: float = RETRY_FOR_S) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._retry_for_s = retry_for_s

    @classmethod
    def open(cls, bucket: str, prefix: str, *, region: str | None, endpoint_url: str | None) -> Self:
        """Make the client; talks to nobody yet. Raises `ConfigurationError` when the SDK's own set-up is wrong."""
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": "path"} if endpoint_url else {},
        )
        try:
            client = boto3.client("s3", region_name=region, endpoint_url=endpoint_url, config=config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigurationError(
                f"cannot publish to s3://{bucket}: {error}. Check the store.* settings."
            ) from error
        insist_on_whole_answers(client)
        return cls(client, bucket, prefix)

    def put(
        self, document_id: str, *, fence: int, artefacts: Mapping[str, bytes], manifest: Mapping[str, object]
    ) -> str:
        """See `Store.put`."""
        new = publication(document_id, fence=fence, artefacts=artefacts, manifest=manifest)
        with self._translated():
            self._remove(document_id, MANIFEST, fence=fence)
            for name, content in new.artefacts.items():
                self._write(document_id, name, content, fence=fence)
            for name in new.stale:
                self._remove(document_id, name, fence=fence)
            self._write(document_id, MANIFEST, new.manifest, fence=fence)
        return self.location(document_id, MANIFEST)

    def manifest(self, document_id: str) -> Mapping[str, object] | None:
        """See `Store.manifest`."""
        with self._translated():
            content = self._read(self._key(document_id, MANIFEST))
        return None if content is None else read_manifest(content)

    def lacking(self, document_id: str, names: Collection[str]) -> Sequence[str]:
        """See `Store.lacking`."""
        with self._translated():
            return sorted(name for name in names if self._seen(self._key(document_id, name)) is None)

    def location(self, document_id: str, name: str) -> str:
        """See `Store.location`."""
        return f"s3://{self._bucket}/{self._key(document_id, name)}"

    def check(self) -> None:
        """See `Store.check`."""
        key = f"{self._prefix}/.probe-{uuid.uuid4()}".removeprefix("/")
        with self._translated(), self._needs("s3:ListBucket and s3:GetObject"):
            # A GET first: the answer to a HEAD has no code, and does not say whose problem it is.
            self._read(key)
            self._seen(key)
        with self._translated(), self._needs("s3:PutObject"), _done_before():
            self._put_object(key, b"bulkhead", fence=0, seen=None)
        kept = self._is_refused_twice(key)
        with self._translated(), self._needs("s3:DeleteObject"), _done_before():
            seen = self._seen(key)
            assert seen is not None, "the probe that was just written"
            self._delete_object(key, seen)
        if not kept:
            raise ResourceError(
                f"cannot publish to s3://{self._bucket}: it ignores If-None-Match, so two hosts could overwrite each "
                "other. Use a store that keeps conditional writes."
            )

    def _is_refused_twice(self, key: str) -> bool:
        """Whether a put that must not overwrite is refused where there is an object."""
        with self._translated():
            try:
                self._put_object(key, b"again", fence=0, seen=None)
            except ClientError as error:
                if _code(error) not in _CHANGED:
                    raise
                return True
            return False

    def _write(self, document_id: str, name: str, content: bytes, *, fence: int) -> None:
        """Put an object unless a newer attempt's is there; the first try assumes that none is."""
        key = self._key(document_id, name)
        seen: Seen | None = None
        for _ in range(ROUNDS):
            try:
                self._put_object(key, content, fence=fence, seen=seen)
            except ClientError as error:
                if _code(error) not in _CHANGED:
                    raise
            else:
                return
            seen = self._seen(key)
            refuse_stale(document_id, fence=fence, found=seen.token if seen else 0)
        raise self._restless(key)

    def _remove(self, document_id: str, name: str, *, fence: int) -> None:
        """Remove an object, if there is one and it is not a newer attempt's."""
        key = self._key(document_id, name)
        for _ in range(ROUNDS):
            seen = self._seen(key)
            if seen is None:
                return
            refuse_stale(document_id, fence=fence, found=seen.token)
            try:
                self._delete_object(key, seen)
            except ClientError as error:
                if _code(error) not in _CHANGED:
                    raise
            else:
                return
        raise self._restless(key)

    def _restless(self, key: str) -> WorldError:
        detail = f"cannot publish s3://{self._bucket}/{key}: it changed {ROUNDS} times while we wrote it"
        return WorldError(Cause.STORE_UNAVAILABLE, detail)

    def _put_object(self, key: str, content: bytes, *, fence: int, seen: Seen | None) -> None:
        """Put where nothing is (`seen` is None) or over what was seen; else raises `ClientError` of `_CHANGED`."""
        request: PutObjectRequestTypeDef = {
            "Bucket": self._bucket,
            "Key": key,
            "Body": content,
            "ContentType": MEDIA_TYPES.get(key.rpartition("/")[2], "application/octet-stream"),
            "Metadata": {TOKEN_METADATA: str(fence)},
        }
        if seen is None:
            request["IfNoneMatch"] = "*"
        else:
            request["IfMatch"] = seen.etag
        self._call(lambda: self._client.put_object(**request))

    def _delete_object(self, key: str, seen: Seen) -> None:
        """Remove what was seen; raises `ClientError` of `_CHANGED` when something else is there."""
        self._call(lambda: self._client.delete_object(Bucket=self._bucket, Key=key, IfMatch=seen.etag))

    def _read(self, key: str) -> bytes | None:
        def read() -> bytes:
            return self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()

        try:
            return self._call(read)
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            raise

    def _seen(self, key: str) -> Seen | None:
        try:
            head = self._call(lambda: self._client.head_object(Bucket=self._bucket, Key=key))
        except ClientError as error:
            if _status(error) == 404:  # noqa: PLR2004 - a HEAD answer has no other code
                return None
            raise
        number = head["Metadata"].get(TOKEN_METADATA, "")
        return Seen(etag=head["ETag"], token=int(number) if number.isdecimal() else 0)

    def _key(self, document_id: str, name: str) -> str:
        return f"{self._prefix}/{safe_id(document_id)}/{safe_name(name)}".removeprefix("/")

    def _call(self, operation: Callable[[], T]) -> T:
        """Run one call to S3, again while the world is at fault, for `retry_for_s` and one call's timeouts at most."""
        retrying = Retrying(
            retry=retry_if_exception(_is_transient),
            wait=wait_random_exponential(multiplier=0.1, max=RETRY_PAUSE_MAX_S),
            stop=stop_after_delay(self._retry_for_s),
            reraise=True,
        )
        return retrying(operation)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Name the SDK's errors for whose problem they are."""
        where = f"cannot use s3://{self._bucket}"
        try:
            yield
        except ClientError as error:
            if _code(error) == "NoSuchBucket":
                raise ResourceError(f"{where}: there is no such bucket. Create it, or correct store.url.") from error
            detail = f"{where}: {error.operation_name} was answered by {_code(error)} ({_status(error)})"
            raise WorldError(Cause.STORE_UNAVAILABLE, detail) from error
        except SDK_ERRORS as error:
            raise WorldError(Cause.STORE_UNAVAILABLE, f"{where}: {error}") from error

    @contextlib.contextmanager
    def _needs(self, right: str) -> Iterator[None]:
        """At start, what S3 refuses for good is the operator's problem; what passes stays the world's."""
        where = f"cannot publish to s3://{self._bucket}/{self._prefix}"
        try:
            yield
        except ClientError as error:
            if _is_transient(error) or _code(error) == "NoSuchBucket":
                raise
            raise ResourceError(
                f"{where}: {_code(error)} ({_status(error)}). Give these credentials {right}."
            ) from error
        except SDK_ERRORS as error:
            if _is_transient(error):
                raise
            raise ResourceError(f"{where}: {error}. Check the credentials and the store.* settings.") from error


@contextlib.contextmanager
def _done_before() -> Iterator[None]:
    """A call about our own probe, which nobody else changes: a refusal is the echo of a try whose answer was lost."""
    try:
        yield
    except ClientError as error:
        if _code(error) not in _CHANGED:
            raise


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "?")


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later; 501 says that it never will."""
    if isinstance(error, ClientError):
        status = _status(error)
        if status == 400 and error.operation_name == "HeadObject":  # noqa: PLR2004 - HTTP
            return True  # an expired token, said without a code
        return (status >= 500 and status != 501) or status == 429 or _code(error) in _THROTTLED | _EXPIRED  # noqa: PLR2004 - HTTP
    return isinstance(error, BROKEN_CONNECTIONS)
