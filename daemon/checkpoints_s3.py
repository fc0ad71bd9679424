"""Checkpoints in a bucket, so that another host can go on where this one stopped; and the choice between the two.

Edge. One object a page, sealed with its digest: `<prefix>/<document id>/<fingerprint>/<page>.page`. Writes are not
conditional: whoever converts the same page of the same bytes with the same engine writes the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from daemon.aws_errors import CALL_ERRORS, insist_on_whole_answers
from daemon.checkpoints import Checkpoints, DirectoryCheckpoints, sealed, unsealed
from daemon.config import StoreSettings
from daemon.errors import WorldError
from daemon.model import Cause, PageRecord

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5, 30
#: The SDK's own retries, with its own back-off and jitter: a page that cannot be kept costs time, not text.
_TRIES = 4


class S3Checkpoints:
    """`daemon.checkpoints.Checkpoints` in a bucket."""

    def __init__(self, client: S3Client, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.strip("/")

    def put(self, document_id: str, fingerprint: str, record: PageRecord) -> None:
        """See `Checkpoints.put`."""
        key = f"{self._below(document_id)}{fingerprint}/{record.page:07d}.page"
        with _translated(f"keep page {record.page} of {document_id}"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=sealed(record.blob))

    def each(self, document_id: str, fingerprint: str) -> Iterator[tuple[int, bytes]]:
        """See `Checkpoints.each`."""
        with _translated(f"read the finished pages of {document_id}"):
            for key in self._keys(f"{self._below(document_id)}{fingerprint}/"):
                page = key.rpartition("/")[2].removesuffix(".page")
                blob = unsealed(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
                if blob is not None and page.isdecimal():
                    yield int(page), blob

    def drop(self, document_id: str) -> None:
        """See `Checkpoints.drop`."""
        with _translated(f"forget the finished pages of {document_id}"):
            for key in self._keys(self._below(document_id)):
                self._client.delete_object(Bucket=self._bucket, Key=key)

    def documents(self) -> Sequence[str]:
        """See `Checkpoints.documents`."""
        below = f"{self._prefix}/" if self._prefix else ""
        with _translated("list the documents that have finished pages"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=below, Delimiter="/"
            )
            folders = [found["Prefix"] for page in pages for found in page.get("CommonPrefixes", [])]
        return sorted(folder.removeprefix(below).rstrip("/") for folder in folders)

    def holds(self, document_id: str) -> bool:
        """See `Checkpoints.holds`."""
        with _translated(f"look for finished pages of {document_id}"):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._below(document_id), MaxKeys=1)
            return answer["KeyCount"] > 0

    def _below(self, document_id: str) -> str:
        return "/".join(part for part in (self._prefix, document_id) if part) + "/"

    def _keys(self, prefix: str) -> list[str]:
        """All keys below `prefix`, in order of their pages."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", []))


def open_checkpoints(settings: StoreSettings, *, state_dir: Path) -> Checkpoints:
    """Where the settings want finished pages; talks to nobody yet."""
    if not settings.checkpoints_url:
        return DirectoryCheckpoints(state_dir / "checkpoints")
    bucket, _, prefix = settings.checkpoints_url.removeprefix("s3://").partition("/")
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _TRIES},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        s3={"addressing_style": "path"} if settings.endpoint_url else {},
    )
    client = boto3.client("s3", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config)
    insist_on_whole_answers(client)
    return S3Checkpoints(client, bucket, prefix)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except CALL_ERRORS as error:
        raise WorldError(Cause.STORE_UNAVAILABLE, f"cannot {what}: {error}") from error
