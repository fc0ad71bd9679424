"""An inventory file as a listing: one URI a line, or CSV as S3 Inventory writes it; plain or gzip, on disk or in S3.

Edge. Rules: the file is streamed, and a line is bounded; the cursor names the file's version and the next line, so a
file that was written anew is read from its beginning, and one that was read to its end is not read again. A line that
is no document costs itself; a first row of other columns than the settings say is the operator's.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from botocore.exceptions import BotoCoreError
from urllib3.exceptions import HTTPError

from daemon.errors import ConfigurationError, ResourceError, WorldError
from daemon.listing import ORIGIN, PAGE, Entry, Gathered, Page, Wanted
from daemon.listing_s3 import translated
from daemon.model import Cause
from daemon.recovery import Listed
from daemon.uri import MAX_URI_BYTES, UnreadableError, identified, sender_uri

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

#: A percent-encoded key is three times as long, and a row has other columns too.
MAX_LINE_BYTES = 4 * MAX_URI_BYTES
_GZIP = b"\x1f\x8b"
#: A line without an instant of its own: whenever such a URI was asked for, it was this document.
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An inventory that can be read, once."""

    stream: io.BufferedReader
    #: Another one when the file is written anew.
    version: str
    modified_at: datetime


class Inventory:
    """`daemon.listing.Listing` of one file."""

    def __init__(self, name: str, opened: Callable[[], Opened], *, columns: tuple[str, ...], wanted: Wanted) -> None:
        self._name = name
        self._opened = opened
        self._columns = columns
        self._wanted = wanted

    @property
    def name(self) -> str:
        """See `Listing.name`."""
        return self._name

    def pages(self, cursor: str, *, before: datetime) -> Iterator[Page]:
        """See `Listing.pages`; a file that is younger than `before` has no pages yet."""
        opened = self._opened()
        with closing(opened.stream):
            begin = _begin(cursor, opened.version)
            if opened.modified_at >= before or begin is None:
                return
            with _reading(self._name):
                yield from self._pages(opened, begin, before)

    def _pages(self, opened: Opened, begin: int, before: datetime) -> Iterator[Page]:
        gathered = Gathered()
        for number, line in enumerate(_lines(opened.stream), start=1):
            if number == 1:
                self._check(line)
            if number <= begin:
                continue
            self._take(line, gathered, before)
            if gathered.read >= PAGE:
                yield gathered.page(_cursor(opened.version, number))
                gathered = Gathered()
        yield gathered.page(_cursor(opened.version, None))

    def _check(self, line: bytes) -> None:
        """Raise `ConfigurationError` when the first row has other columns than the settings say."""
        row = _row(line)
        if row is not None and len(row) != len(self._columns):
            raise ConfigurationError(
                f"cannot read {self._name}: its rows have {len(row)} columns and sweep.inventory_columns names "
                f"{len(self._columns)}; copy fileSchema from the inventory's manifest.json"
            )

    def _take(self, line: bytes, gathered: Gathered, before: datetime) -> None:
        row = _row(line)
        try:
            if row is not None:
                gathered.add(_entry(dict(zip(self._columns, row, strict=True))), self._wanted, before=before)
                return
            gathered.read += 1
            text = line.decode().strip()
            if text and not text.startswith("#"):
                uri, version_id = sender_uri(text, None)
                document = identified(uri, message_id=ORIGIN, version_id=version_id)
                gathered.listed.append(Listed(document=document, modified_at=_EVER))
        except (UnreadableError, ValueError) as error:  # UnicodeDecodeError is one; so is a row of another length
            gathered.refuse(f"{line[:80]!r}: {error}")


def _begin(cursor: str, version: str) -> int | None:
    """Lines that were read before; None: all of them."""
    try:
        place = json.loads(cursor or "{}")
        if place.get("version") != version:
            return 0
        line = place["line"]
    except (ValueError, AttributeError, KeyError):
        return 0
    return line if line is None or isinstance(line, int) else 0


def _cursor(version: str, line: int | None) -> str:
    return json.dumps({"version": version, "line": line})


def _lines(stream: io.BufferedReader) -> Iterator[bytes]:
    """Each line without its end; of one that is too long, its beginning and a byte that is no text."""
    packed = stream.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
    source = gzip.GzipFile(fileobj=stream) if packed else stream
    mark = codecs.BOM_UTF8
    while line := source.readline(MAX_LINE_BYTES):
        line, mark = line.removeprefix(mark), b""
        whole = line.endswith(b"\n") or len(line) < MAX_LINE_BYTES
        while not whole:
            rest = source.readline(MAX_LINE_BYTES)
            whole = rest.endswith(b"\n") or len(rest) < MAX_LINE_BYTES
            line = line[:200] + b"\xff"
        yield line.rstrip(b"\r\n")


def _row(line: bytes) -> list[str] | None:
    """A row of CSV; None for what is a URI, a comment, empty or no text."""
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        return None
    if not text or text.startswith("#") or "://" in text.partition(",")[0]:
        return None
    return next(csv.reader([text]), None)


def _entry(row: Mapping[str, str]) -> Entry:
    """An object of S3 Inventory, whose keys are percent-encoded. Raises `ValueError`."""
    if not row.get("Bucket") or not row.get("Key"):
        raise ValueError("the row has no Bucket or no Key")
    modified = row.get("LastModifiedDate")
    return Entry(
        bucket=row["Bucket"],
        key=unquote_plus(row["Key"], errors="strict"),
        version_id=row.get("VersionId"),
        etag=row.get("ETag", "").strip('"'),
        modified_at=_EVER if not modified else _aware(modified),
        latest=row.get("IsLatest", "true") != "false" and row.get("IsDeleteMarker", "false") != "true",
    )


def _aware(text: str) -> datetime:
    """An instant as S3 writes it. Raises `ValueError`."""
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def on_disk(path: Path) -> Opened:
    """An inventory in a file. Raises `ResourceError`."""
    try:
        stream = path.open("rb")
        status = path.stat()
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}; correct sweep.inventory"
        raise ResourceError(message) from error
    modified_at = datetime.fromtimestamp(status.st_mtime, tz=UTC)
    return Opened(stream=stream, version=f"{status.st_mtime_ns}-{status.st_size}", modified_at=modified_at)


def in_bucket(client: S3Client, url: str) -> Opened:
    """An inventory in an object. Raises like `Listing.pages`."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    with translated(f"read {url}", right="s3:GetObject"):
        answer = client.get_object(Bucket=bucket, Key=key)
    return Opened(
        stream=io.BufferedReader(_Body(answer["Body"])), version=answer["ETag"], modified_at=answer["LastModified"]
    )


class _Body(io.RawIOBase):
    """A body of botocore's, which has no `readinto`, as a stream."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there is something."""
        chunk = self._body.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Give the connection back."""
        self._body.close()
        super().close()


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Say in our own words what reading raises."""
    try:
        yield
    except (BotoCoreError, HTTPError) as error:
        raise WorldError(Cause.SOURCE_UNAVAILABLE, f"cannot read {name}: {error}") from error
    except (EOFError, OSError, zlib.error) as error:
        message = f"cannot read {name}: {error}; it is damaged or was cut short, write it anew"
        raise ResourceError(message) from error
