"""A prefix of a bucket as a listing.

Edge. Rules: objects are listed with their versions, since the events of a versioned bucket name them; only the latest
one of a key counts; one request a page, and the cursor is S3's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from daemon.aws_errors import SDK_ERRORS, code_of
from daemon.errors import ResourceError, WorldError
from daemon.listing import PAGE, Entry, Gathered, Page, Wanted
from daemon.model import Cause

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_MARKERS = frozenset({"KeyMarker", "VersionIdMarker"})
_MISSING = frozenset({"NoSuchBucket", "InvalidBucketName", "NoSuchKey", "404"})
_REFUSED = frozenset({"AccessDenied", "AllAccessDisabled", "403"})


class S3Prefix:
    """`daemon.listing.Listing` of `s3://bucket/prefix`."""

    def __init__(self, client: S3Client, url: str, *, wanted: Wanted) -> None:
        self._client = client
        self._url = url
        self._bucket, _, self._prefix = url.removeprefix("s3://").partition("/")
        self._wanted = wanted

    @property
    def name(self) -> str:
        """See `Listing.name`."""
        return self._url

    def pages(self, cursor: str, *, before: datetime) -> Iterator[Page]:
        """See `Listing.pages`."""
        markers: Mapping[str, Any] = _markers(cursor)
        more = True
        while more:
            with translated(f"list {self._url}", right="s3:ListBucketVersions"):
                answer = self._client.list_object_versions(
                    Bucket=self._bucket, Prefix=self._prefix, MaxKeys=PAGE, **markers
                )
            gathered = Gathered()
            for version in answer.get("Versions", []):
                entry = Entry(
                    bucket=self._bucket,
                    key=version["Key"],
                    version_id=version.get("VersionId"),
                    etag=version.get("ETag", "").strip('"'),
                    modified_at=version["LastModified"],
                    latest=version.get("IsLatest", True),
                )
                gathered.add(entry, self._wanted, before=before)
            next_markers = {name: answer[f"Next{name}"] for name in _MARKERS if answer.get(f"Next{name}")}  # type: ignore[literal-required]  # the two names above
            more = bool(answer.get("IsTruncated")) and next_markers != markers
            markers = next_markers
            yield gathered.page(json.dumps(markers) if more else "")


def _markers(cursor: str) -> dict[str, str]:
    """S3's own markers out of a cursor of ours; none where it is damaged."""
    try:
        markers = json.loads(cursor or "{}")
    except ValueError:
        return {}
    sound = (
        isinstance(markers, dict) and markers.keys() <= _MARKERS and all(isinstance(v, str) for v in markers.values())
    )
    return markers if sound else {}


@contextmanager
def translated(what: str, *, right: str) -> Iterator[None]:
    """Say a failure of S3 in our own words."""
    try:
        yield
    except ClientError as error:
        code, detail = code_of(error), f"cannot {what}: {error}"
        if code in _MISSING:
            raise ResourceError(f"{detail}; correct sweep.prefixes or sweep.inventory") from error
        if code in _REFUSED:
            raise ResourceError(f"{detail}; allow {right}") from error
        raise WorldError(Cause.SOURCE_UNAVAILABLE, detail) from error
    except SDK_ERRORS as error:
        raise WorldError(Cause.SOURCE_UNAVAILABLE, f"cannot {what}: {error}") from error
