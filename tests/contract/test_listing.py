"""What lies in a source is listed under the ids that its events give, from any cursor, whatever else lies there."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from daemon import listing, listing_inventory, listing_s3
from daemon.config import Settings, StoreSettings
from daemon.config_recovery import SweepSettings
from daemon.errors import ConfigurationError, ResourceError, WorldError
from daemon.intake import read
from daemon.listing import Listing, Wanted
from daemon.listing_inventory import MAX_LINE_BYTES, Inventory, on_disk
from daemon.listing_open import open_listings
from daemon.listing_s3 import S3Prefix
from tests.aws import REGION

LATER = datetime(2100, 1, 1, tzinfo=UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
COLUMNS = SweepSettings().inventory_columns
WANTED = Wanted(suffixes=(".pdf",))


def ids(found: Listing, cursor: str = "", *, before: datetime = LATER) -> list[str]:
    """All ids from a cursor to the end."""
    return [each.document.id for page in found.pages(cursor, before=before) for each in page.listed]


def event_id(bucket: str, key: str, put: Any) -> str:
    """The id that S3's own event about a put gives."""
    encoded = key.replace("%", "%25").replace("+", "%2B").replace(" ", "+")
    thing = {"key": encoded, "size": 3, "eTag": put["ETag"].strip('"')}
    if "VersionId" in put:
        thing["versionId"] = put["VersionId"]
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": thing}}
    return read(json.dumps({"Records": [record]}), message_id="m").documents[0].id


@pytest.fixture
def s3(moto_endpoint: str) -> Any:
    """A client with an empty bucket."""
    client = boto3.client("s3", endpoint_url=moto_endpoint, region_name=REGION)
    client.create_bucket(Bucket="inbox", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    return client


def put(s3: Any, key: str, body: bytes = b"pdf") -> str:
    """Put an object; the id of its event."""
    return event_id("inbox", key, s3.put_object(Bucket="inbox", Key=key, Body=body))


@pytest.mark.aws
@pytest.mark.parametrize("versioned", [False, True])
def test_the_ids_of_a_prefix_are_those_of_its_events(s3: Any, versioned: bool) -> None:  # noqa: FBT001
    """A late event finds what the sweep found, with versions and without; only the latest version counts."""
    if versioned:
        s3.put_bucket_versioning(Bucket="inbox", VersioningConfiguration={"Status": "Enabled"})
    put(s3, "in/b.pdf", b"old")
    wanted = [put(s3, key) for key in ("in/a b+c%20é.PDF", "in/b.pdf", "in/x/c.pdf")]
    for key in ("in/gone.pdf", "in/folder.pdf/", "in/notes.txt", "other/a.pdf", "in/out/d/preview.pdf"):
        put(s3, key)
    s3.delete_object(Bucket="inbox", Key="in/gone.pdf")
    prefix = S3Prefix(s3, "s3://inbox/in/", wanted=Wanted(suffixes=(".pdf",), ours=("s3://inbox/in/out/",)))
    assert ids(prefix) == wanted
    assert ids(prefix, before=LONG_AGO) == []


@pytest.mark.aws
@pytest.mark.parametrize("versioned", [False, True])
def test_a_prefix_goes_on_at_any_cursor(s3: Any, monkeypatch: pytest.MonkeyPatch, versioned: bool) -> None:  # noqa: FBT001
    """A bucket of any size is covered over many sweeps: before the cursor and after it lies everything, once."""
    monkeypatch.setattr(listing_s3, "PAGE", 2)
    if versioned:
        s3.put_bucket_versioning(Bucket="inbox", VersioningConfiguration={"Status": "Enabled"})
        for _ in range(3):
            put(s3, "in/2.pdf", b"old")
    wanted = [put(s3, f"in/{number}.pdf") for number in range(5)]
    prefix = S3Prefix(s3, "s3://inbox/in/", wanted=WANTED)
    pages = list(prefix.pages("", before=LATER))
    assert [each.document.id for page in pages for each in page.listed] == wanted
    assert pages[-1].cursor == ""
    assert all(page.read <= 2 for page in pages)
    before: list[str] = []
    for page in pages[:-1]:
        before += [each.document.id for each in page.listed]
        assert before + ids(prefix, page.cursor) == wanted
    for damaged in ("{", "[]", '{"Bucket": "x"}', '{"KeyMarker": 1}'):
        assert ids(prefix, damaged) == wanted


@pytest.mark.aws
def test_a_prefix_that_is_empty_or_missing(s3: Any) -> None:
    """Nothing is a page without entries; a missing bucket is the operator's."""
    (page,) = S3Prefix(s3, "s3://inbox/none/", wanted=WANTED).pages("", before=LATER)
    assert (page.listed, page.read, page.cursor) == ([], 0, "")
    with pytest.raises(ResourceError, match=r"correct sweep\.prefixes"):
        ids(S3Prefix(s3, "s3://nowhere/in/", wanted=WANTED))


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [("AccessDenied", ResourceError, "allow s3:ListBucketVersions"), ("SlowDown", WorldError, "cannot list s3://b/p")],
)
def test_a_refusal_names_the_right(code: str, error: type[Exception], match: str) -> None:
    """A policy is a person's; throttling passes."""

    class Refusing:
        def list_object_versions(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": code, "Message": ""}}, "ListObjectVersions")

    with pytest.raises(error, match=match):
        ids(S3Prefix(Refusing(), "s3://b/p", wanted=WANTED))  # type: ignore[arg-type]  # what is called of it


def test_a_key_that_is_no_uri_costs_itself() -> None:
    """A hostile key must not end the listing."""
    versions = [
        {"Key": key, "ETag": '"e"', "LastModified": LONG_AGO} for key in ("a\x01.pdf", "b" * 9000 + ".pdf", "c.pdf")
    ]

    class Full:
        def list_object_versions(self, **_: object) -> dict[str, object]:
            return {"Versions": versions, "IsTruncated": False}

    (page,) = S3Prefix(Full(), "s3://bucket/", wanted=WANTED).pages("", before=LATER)  # type: ignore[arg-type]
    assert [each.document.uri for each in page.listed] == ["s3://bucket/c.pdf"]
    assert (page.read, len(page.unreadable)) == (3, 2)


def inventory(path: Path, content: bytes | str, *, columns: Sequence[str] = COLUMNS, packed: bool = False) -> Inventory:
    """A file with this content, some hours old."""
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if packed else raw)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return Inventory(str(path), lambda: on_disk(path), columns=tuple(columns), wanted=WANTED)


def uris(found: Listing, cursor: str = "") -> list[str]:
    """As `ids`, by URI."""
    return [each.document.uri for page in found.pages(cursor, before=LATER) for each in page.listed]


@pytest.mark.parametrize("packed", [False, True])
def test_a_list_of_uris(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """One a line, whoever wrote the file and wherever; what is none costs itself and is told."""
    lines = [
        b"\xef\xbb\xbfs3://inbox/a b.pdf\r",
        b"# a comment",
        b"",
        b"https://b.example/x.pdf",
        b"ftp://b.example/x.pdf",
        b"https://user:password@b.example/x.pdf",
        b"s3://inbox/" + b"x" * (3 * MAX_LINE_BYTES),
        b"\xff\xfe://",
        b"s3://inbox/v.pdf?versionId=7",
        b"file:///data/last.pdf",
    ]
    found = inventory(tmp_path / "list", b"\n".join(lines), packed=packed)
    (page,) = found.pages("", before=LATER)
    documents = [each.document for each in page.listed]
    assert [each.uri for each in documents] == [
        "s3://inbox/a b.pdf", "https://b.example/x.pdf", "s3://inbox/v.pdf", "file:///data/last.pdf",
    ]  # fmt: skip
    assert documents[2].version_id == "7"
    assert (page.read, len(page.unreadable)) == (10, 3)
    assert "password" not in str(page.unreadable[1])[80:]
    assert ids(found) == ids(found), "the same ids each time"


ROWS = """\
"inbox","a+b%2Bc%25.pdf","v2","true","false","3","2024-01-01T00:00:00.000Z","e2"
"inbox","a+b%2Bc%25.pdf","v1","false","false","3","2024-01-01T00:00:00.000Z","e1"
"inbox","gone.pdf","v3","true","true","","2024-01-01T00:00:00.000Z",""
"inbox","plain.pdf","","true","false","3","2024-01-01T00:00:00.000Z","e4"
"inbox","young.pdf","","true","false","3","2101-01-01T00:00:00.000Z","e5"
"inbox","notes.txt","","true","false","3","2024-01-01T00:00:00.000Z","e6"
"inbox","%ff.pdf","","true","false","3","2024-01-01T00:00:00.000Z","e7"
"inbox","when.pdf","","true","false","3","yesterday","e8"
"inbox","short.pdf"
"""


@pytest.mark.parametrize("packed", [False, True])
def test_an_inventory_of_s3(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """Latest versions under the ids of their events; a damaged row costs itself."""
    found = inventory(tmp_path / "rows", ROWS, packed=packed)
    (page,) = found.pages("", before=LATER)
    assert [each.document.id for each in page.listed] == [
        event_id("inbox", "a b+c%.pdf", {"ETag": "e2", "VersionId": "v2"}),
        event_id("inbox", "plain.pdf", {"ETag": "e4"}),
    ]
    assert len(page.unreadable) == 3


def test_an_inventory_of_other_columns(tmp_path: Path) -> None:
    """A size in the place of a version would make ids that nobody else makes: refused, with what to copy."""
    with pytest.raises(ConfigurationError, match=r"have 8 columns and .* names 2; copy fileSchema"):
        ids(inventory(tmp_path / "rows", ROWS, columns=("Bucket", "Key")))
    with pytest.raises(ConfigurationError, match="have 1 columns"):
        ids(inventory(tmp_path / "rows", bytes(range(128)) * 100))
    row = '"inbox","a.pdf","9","2024-01-01T00:00:00.000Z","e"\n'
    current = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
    assert ids(inventory(tmp_path / "rows", row, columns=current)) == [event_id("inbox", "a.pdf", {"ETag": "e"})]


def test_an_inventory_goes_on_at_any_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page after page, once; written anew: from its beginning; read to its end: not again."""
    monkeypatch.setattr(listing_inventory, "PAGE", 2)
    wanted = [f"s3://inbox/{number}.pdf" for number in range(6)]
    found = inventory(tmp_path / "list", "\n".join(wanted))
    pages = list(found.pages("", before=LATER))
    before: list[str] = []
    for page in pages[:-1]:
        before += [each.document.uri for each in page.listed]
        assert before + uris(found, page.cursor) == wanted
    assert uris(found, pages[-1].cursor) == []
    for damaged in ("{", "[]", "1", '{"version": 1}', '{"line": 3}'):
        assert uris(found, damaged) == wanted
    again = inventory(tmp_path / "list", "\n".join(wanted[:5]))
    assert uris(again, pages[-1].cursor) == uris(again, pages[0].cursor) == wanted[:5]


def test_a_young_inventory_waits(tmp_path: Path) -> None:
    """Its URIs have no dates of their own, and their messages may be on their way."""
    path = tmp_path / "list"
    found = inventory(path, "s3://inbox/a.pdf")
    now = datetime.now(UTC)
    path.touch()
    assert ids(found, before=now - timedelta(hours=6)) == []
    assert len(ids(found, before=now + timedelta(hours=6))) == 1


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (gzip.compress(b"s3://inbox/a.pdf\n" * 9_000)[:-20], "was cut short, write it anew"),
        (gzip.compress(b"s3://inbox/a.pdf\n")[:12] + b"garbage", "cannot read"),
        (b"\x1f\x8b", "cannot read"),
    ],
)
def test_a_damaged_inventory(tmp_path: Path, content: bytes, match: str) -> None:
    """Half of one is not the whole: a person is told."""
    with pytest.raises(ResourceError, match=match):
        ids(inventory(tmp_path / "list", content))


@pytest.mark.parametrize("content", [b"", b"\n\n", bytes(range(128, 256)) * 100])
def test_an_inventory_of_nothing(tmp_path: Path, content: bytes) -> None:
    """Empty, or no text at all."""
    assert ids(inventory(tmp_path / "list", content)) == []


def test_no_inventory(tmp_path: Path) -> None:
    """A wrong path is the operator's."""
    path = tmp_path / "none"
    with pytest.raises(ResourceError, match=r"No such file or directory; correct sweep\.inventory"):
        ids(Inventory(str(path), lambda: on_disk(path), columns=COLUMNS, wanted=WANTED))
    with pytest.raises(ResourceError, match="cannot read"):
        ids(Inventory(str(tmp_path), lambda: on_disk(tmp_path), columns=COLUMNS, wanted=WANTED))


def settings(endpoint: str | None = None, **sweep: Any) -> Settings:
    """Settings of a sweep."""
    store = StoreSettings(url="s3://inbox/results", endpoint_url=endpoint, region=REGION)
    return Settings(store=store, sweep=SweepSettings(**sweep))


@pytest.mark.aws
def test_what_the_settings_name(s3: Any, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes and an inventory in a bucket, by the store's endpoint; results are no sources."""
    monkeypatch.setattr(listing_inventory, "PAGE", 2)
    wanted = put(s3, "in/a.pdf")
    put(s3, "results/a/preview.pdf")
    packed = gzip.compress("\n".join(f"https://b.example/{n}.pdf" for n in range(5)).encode())
    s3.put_object(Bucket="inbox", Key="list.gz", Body=packed)
    prefix, listed = open_listings(
        settings(moto_endpoint, prefixes=("s3://inbox/",), inventory="s3://inbox/list.gz", suffixes=(".PDF",))
    )
    assert ids(prefix) == [wanted]
    assert uris(listed) == [f"https://b.example/{n}.pdf" for n in range(5)]
    missing = open_listings(settings(moto_endpoint, inventory="s3://inbox/none.gz"))
    with pytest.raises(ResourceError, match=r"cannot read s3://inbox/none\.gz"):
        ids(missing[0])


def test_settings_that_name_nothing_or_ourselves(aws_environment: None) -> None:
    """Nothing is listed where nothing is named; what we wrote is never listed."""
    assert open_listings(settings()) == ()
    with pytest.raises(ConfigurationError, match="results are written there"):
        open_listings(settings(prefixes=("s3://inbox/results/x",)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefixes": "s3://"},
        {"prefixes": ("inbox/a",)},
        {"prefixes": ("",)},
        {"inventory": "list"},
        {"inventory": "s3://b"},
    ],
)
def test_settings_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    """Refused before anything is listed."""
    with pytest.raises(ValueError, match="must"):
        SweepSettings(**wrong)


def test_a_page_is_bounded() -> None:
    """However many reasons there are, a page tells a few."""
    gathered = listing.Gathered()
    for number in range(100):
        gathered.refuse(str(number))
    assert gathered.page("").unreadable == ["0", "1", "2"]


def test_a_body_is_a_stream() -> None:
    """Botocore's bodies have no `readinto`; nothing of them is read ahead."""
    raw = io.BytesIO(b"s3://inbox/a.pdf\n" * 3)
    opened: Callable[[], Any] = lambda: listing_inventory.Opened(  # noqa: E731 - one value
        stream=io.BufferedReader(listing_inventory._Body(raw)), version="1", modified_at=LONG_AGO
    )
    assert uris(Inventory("x", opened, columns=COLUMNS, wanted=WANTED)) == ["s3://inbox/a.pdf"] * 3
    assert raw.closed
