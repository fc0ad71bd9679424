"""s3:// as a source: one object, in the version that the message named.

Edge. Rules: the key is used as it is; a missing object, version or bucket is the document's problem, a refusal (403)
the world's, since roles and policies change. The endpoint is the operator's, so it is trusted not to be hostile:
its deadline is looked at between reads, each of which ends after `READ_TIMEOUT_S` without a byte.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from urllib3.exceptions import HTTPError

from daemon.aws_errors import code_of, is_credentials
from daemon.config import StoreSettings
from daemon.errors import DocumentError, WorldError
from daemon.model import Cause, Document
from daemon.spool import Spool

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CHUNK_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
#: A fetch that fails is released and comes back; this only saves the trip for a hiccup.
ATTEMPTS = 3
#: Connections kept open, one per slot.
POOL_SIZE = 32
# MethodNotAllowed: the named version is a delete marker. InvalidArgument: the version id is none.
_MISSING = frozenset({
    "NoSuchKey", "NoSuchVersion", "NoSuchBucket", "404", "MethodNotAllowed", "InvalidBucketName", "KeyTooLongError",
})  # fmt: skip


class S3Source:
    """Fetches objects; safe to use from several threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: S3Client | None = None

    def fetch_into(self, spool: Spool, document: Document) -> None:
        """Stream the object into `spool`.

        Raises `DocumentError(SOURCE_MISSING | SOURCE_REFUSED | TOO_LARGE)` or `WorldError(SOURCE_UNAVAILABLE)`.
        """
        bucket, _, key = document.uri.removeprefix("s3://").partition("/")
        version: dict[str, Any] = {"VersionId": document.version_id} if document.version_id else {}
        try:
            answer = self._made().get_object(Bucket=bucket, Key=key, **version)
            # `read1` gives what is there; `read` would wait for a full chunk, however slowly it comes.
            body: Any = answer["Body"]
            stream = body._raw_stream  # noqa: SLF001 - the public reader has no `read1`
            try:
                spool.expect(answer.get("ContentLength"))
                while chunk := stream.read1(CHUNK_BYTES):
                    spool.write(chunk)
                _check_whole(answer.get("ContentLength"), stream)
            finally:
                stream.close()
        except ParamValidationError as error:
            raise DocumentError(Cause.SOURCE_REFUSED, f"cannot fetch {document.uri}: {error}") from error
        except ClientError as error:
            raise self._ours(document, error) from error
        except (BotoCoreError, HTTPError, ValueError) as error:
            self._forget(error)
            raise WorldError(Cause.SOURCE_UNAVAILABLE, f"cannot fetch {document.uri}: {error}") from error

    def _made(self) -> S3Client:
        """The client; its making is not safe in threads, its use is."""
        with self._lock:
            if self._client is None:
                self._client = new_client(self._settings)
            return self._client

    def _forget(self, error: BaseException) -> None:
        """Look credentials up again next time when they were refused."""
        if is_credentials(error):
            with self._lock:
                self._client = None

    def _ours(self, document: Document, error: ClientError) -> DocumentError | WorldError:
        code = code_of(error)
        detail = f"cannot fetch {document.uri}: {error}"
        if document.version_id:
            detail += f" (version {document.version_id})"
        if code in _MISSING or (code == "InvalidArgument" and document.version_id):
            return DocumentError(Cause.SOURCE_MISSING, detail)
        self._forget(error)
        if code in {"AccessDenied", "403"}:
            detail += (
                "; allow s3:GetObject, and s3:ListBucket so that a missing object can be told from a forbidden one"
            )
        return WorldError(Cause.SOURCE_UNAVAILABLE, detail)


def _check_whole(declared_bytes: int | None, stream: Any) -> None:
    """urllib3 raises on a short body only when it is read by `read`."""
    if declared_bytes is not None and stream.tell() < declared_bytes:
        raise HTTPError(f"the connection ended after {stream.tell()} of {declared_bytes} bytes")


def new_client(settings: StoreSettings) -> S3Client:
    """A client that reads sources, with the SDK's own retries. Raises `BotoCoreError`, `ValueError` of its set-up."""
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=POOL_SIZE,
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if settings.endpoint_url else "auto"},
    )
    session = boto3.session.Session(region_name=settings.region)
    return session.client("s3", endpoint_url=settings.endpoint_url, config=config)
