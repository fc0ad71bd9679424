"""A message's body, whatever it is, becomes documents, reasons for the sender, or a line in the log."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.intake import MAX_BODY_BYTES, MAX_FRAGMENT_CHARS, Intake, read
from daemon.model import Document, Options
from daemon.uri import DOCUMENT_ID, slug


def record(key: str = "in/a.pdf", *, name: str = "ObjectCreated:Put", **thing: Any) -> dict[str, Any]:
    """One record as S3 sends it."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventName": name,
        "s3": {"bucket": {"name": "scans"}, "object": {"key": key, "size": 10, "eTag": "e1", **thing}},
    }


def event(*records: Any) -> str:
    """An S3 event, direct."""
    return json.dumps({"Records": list(records)})


def wrapped(body: str, times: int = 1) -> str:
    """What SNS makes of a body."""
    for _ in range(times):
        body = json.dumps({"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": body})
    return body


def bridged(key: str = "in/a.pdf", **top: Any) -> str:
    """An event of EventBridge."""
    thing = {"key": key, "size": 10, "etag": "e1", "version-id": "v1"}
    detail = {"bucket": {"name": "scans"}, "object": thing}
    return json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": detail, **top})


def one(body: str, message_id: str = "m1") -> Document:
    """The only document of a body that holds nothing else."""
    intake = read(body, message_id=message_id)
    assert not intake.malformed
    assert not intake.dropped
    (document,) = intake.documents
    return document


def reason(body: str) -> str:
    """Why a body is malformed."""
    intake = read(body, message_id="m1")
    assert not intake.documents
    (malformed,) = intake.malformed
    assert len(malformed.fragment) <= MAX_FRAGMENT_CHARS
    return malformed.reason


@pytest.mark.parametrize(
    ("body", "uri"),
    [
        ("s3://scans/in/a b+c%20d.pdf", "s3://scans/in/a b+c%20d.pdf"),
        ("  https://example.org/a%20b.pdf?x=1\n", "https://example.org/a%20b.pdf?x=1"),
        ("\ufefffile:///data/a.pdf", "file:///data/a.pdf"),
        ("S3://scans/A.pdf", "s3://scans/A.pdf"),
        ('{"uri": "s3://scans/a?b#c.pdf"}', "s3://scans/a?b#c.pdf"),
        (event(record("a+b%2Bc%2520d/%C3%A9.pdf")), "s3://scans/a b+c%20d/é.pdf"),
        (wrapped(event(record("in/a+b.pdf"))), "s3://scans/in/a b.pdf"),
        (wrapped("s3://scans/a+b.pdf", 2), "s3://scans/a+b.pdf"),
        (bridged("in/a+b%20c.pdf"), "s3://scans/in/a+b%20c.pdf"),
        (wrapped(bridged()), "s3://scans/in/a.pdf"),
        (event({"s3": {"bucket": {"name": "scans"}, "object": {"key": "a.pdf"}}}), "s3://scans/a.pdf"),
    ],
)
def test_every_known_form_is_read(body: str, uri: str) -> None:
    """The key of an S3 event is decoded exactly once; what people and EventBridge send is never decoded."""
    assert one(body).uri == uri


def test_own_json_carries_everything() -> None:
    """Id, options, version and ETag arrive as they were sent."""
    body = {"uri": "s3://scans/a.pdf", "id": "A.b_c-1", "options": {"ocr": False}, "version_id": "v", "etag": "e"}
    assert one(json.dumps(body)) == Document(
        id="A.b_c-1", uri="s3://scans/a.pdf", version_id="v", etag="e", options=Options(ocr=False)
    )


def test_a_version_in_the_uri_is_taken_off() -> None:
    """`?versionId=` at the end of an s3 URI names the version, not a part of the key."""
    document = one("s3://scans/a.pdf?versionId=3.xY")
    assert (document.uri, document.version_id) == ("s3://scans/a.pdf", "3.xY")


def test_an_event_keeps_what_looks_like_a_version_in_its_key() -> None:
    """Only people write versions into URIs; in an event it is a part of the key."""
    document = one(event(record("a.pdf%3FversionId%3D1")))
    assert (document.uri, document.version_id) == ("s3://scans/a.pdf?versionId=1", None)


def test_a_sequencer_stands_in_for_a_missing_etag() -> None:
    """Some senders leave out size and eTag; two writes of one key are still two documents."""
    first, second = (one(event(record(eTag=None, size=None, sequencer=s))) for s in ("01", "02"))
    assert first.etag == "sequencer:01"
    assert first.id != second.id


def test_the_null_version_identifies_nothing() -> None:
    """On a bucket with suspended versioning every overwrite is version "null": the ETag must tell them apart."""
    first, second = (one(event(record(versionId="null", eTag=tag))) for tag in ("e1", "e2"))
    assert first.version_id is None
    assert first.id != second.id


def test_several_records_are_several_documents_and_a_bad_one_is_alone() -> None:
    """A bad record is a reason, a removed object a log line; their neighbours convert."""
    removed, marker = record(name="ObjectRemoved:Delete"), record("folder/", size=0)
    intake = read(event(record("1.pdf"), {"s3": {}}, removed, marker, 7, record("2.pdf")), message_id="m1")
    assert [d.uri for d in intake.documents] == ["s3://scans/1.pdf", "s3://scans/2.pdf"]
    assert [m.reason.partition(":")[0] for m in intake.malformed] == ["s3.bucket", "the record has no s3 part"]
    assert intake.dropped == ("ObjectRemoved:Delete is no new object", "folder/ is a folder marker")


def test_the_same_object_twice_in_one_message_is_one_document() -> None:
    """Two records of one version must not become two attempts."""
    assert len(read(event(record(), record()), message_id="m1").documents) == 1


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "scans"}),
        wrapped(json.dumps({"Event": "s3:TestEvent"})),
        json.dumps({"Type": "SubscriptionConfirmation", "TopicArn": "t", "SubscribeURL": "https://x"}),
        bridged(**{"detail-type": "Object Deleted"}),
        event(record(name="s3:ObjectRemoved:Delete")),
        event(record("folder/", size=0)),
    ],
)
def test_what_is_no_work_is_dropped(body: str) -> None:
    """`s3:TestEvent` and the like are acknowledged: no dead letter, no document, one reason for the log."""
    intake = read(body, message_id="m1")
    assert intake == Intake(dropped=intake.dropped)
    assert len(intake.dropped) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "empty"),
        ("hello", "no URI that starts with"),
        ("ftp://example.org/a.pdf", "s3://, https://"),
        ("s3://scans", "names no object"),
        ("s3://sc@ns/a", "no bucket's name"),
        ("s3:/scans/a", "comes //"),
        ("https://", "no host"),
        ("https://exa mple.org:port/", "cannot be parsed"),
        ("file://server/share/a.pdf", "three slashes"),
        ("s3://scans/a\nb.pdf", "control character"),
        ("s3://scans/" + "a" * 9000, "longer than"),
        ("{", "no valid JSON"),
        ("[]", "one message per document"),
        ("{}", "no uri, Records or detail-type, only nothing"),
        ('{"Records": []}', "empty one"),
        ('{"Records": "x"}', "no list"),
        ('{"url": "s3://scans/a"}', "only url"),
        ('{"uri": 1}', "uri: "),
        ('{"uri": "s3://scans/a", "option": {}}', "unknown name 'option'"),
        ('{"uri": "s3://scans/a", "options": {"orc": true}}', "unknown name 'options.orc'"),
        ('{"uri": "s3://scans/a", "options": {"ocr": "no"}}', "options.ocr"),
        ('{"uri": "s3://scans/a", "id": "../x"}', "is not of the form"),
        ('{"uri": "s3://scans/a", "id": ""}', "is not of the form"),
        ('{"uri": "s3://scans/a?versionId=1", "version_id": "2"}', "differ"),
        ('{"uri": "https://example.org/a", "version_id": "2"}', "only for s3://"),
        (event(record("%FF.pdf")), "form-encoded"),
        (bridged(source="aws.ec2"), "only aws.s3"),
        (bridged(detail=None), "detail"),
        (wrapped("s3://scans/a.pdf", 3), "more than 2 times"),
        (json.dumps({"Type": "Notification", "Message": {}}), "no text"),
    ],
)
def test_what_cannot_be_read_has_a_reason_to_act_on(body: str, words: str) -> None:
    """The reason names what is wrong and what would be right."""
    assert words in reason(body)


@pytest.mark.parametrize("bomb", ['{"a":' * 200_000, '{"a":' + "[" * 500_000, wrapped('{"a":' * 100_000)])
def test_a_nesting_bomb_is_a_reason(bomb: str) -> None:
    """A megabyte of brackets costs one message, not the parent."""
    assert "no valid JSON" in reason(bomb)


def test_a_body_beyond_the_limit_is_not_parsed() -> None:
    """SQS cannot deliver more; whoever calls us with more is told so."""
    assert "more than" in reason("s3://scans/" + "é" * (MAX_BODY_BYTES // 2))


def test_a_password_is_not_repeated() -> None:
    """Reasons and fragments reach logs and the dead-letter queue's attributes."""
    intake = read('{"uri": "https://user:hunter2@example.org/a.pdf"}', message_id="m1")
    assert "leave it out" in intake.malformed[0].reason
    assert "hunter2" not in repr(intake)


def test_the_id_follows_the_version_not_the_delivery() -> None:
    """A duplicate event is recognised; new bytes, other options or another URI are another document."""
    base = one(event(record(versionId="v1")), "m1").id
    assert one(wrapped(event(record(versionId="v1", size=99))), "m2").id == base
    assert one(bridged(), "m3").id == base
    others = {
        one(event(record(versionId="v2"))).id,
        one(event(record("in/b.pdf", versionId="v1"))).id,
        one('{"uri": "s3://scans/in/a.pdf", "version_id": "v1", "options": {"ocr": false}}').id,
        one('{"uri": "s3://scans/in/a.pdf", "etag": "v1"}').id,
    }
    assert len(others | {base}) == 5


def test_an_unversioned_uri_is_as_new_as_its_message() -> None:
    """A redelivery is a duplicate; a second message about the same URL asks for a new conversion."""
    first, again, later = (one("https://example.org/a.pdf", m).id for m in ("m1", "m1", "m2"))
    assert first == again != later


@pytest.mark.parametrize(
    ("uri", "readable"),
    [
        ("s3://b/in/Jahres-Übersicht 2024 (final).PDF", "jahres-ubersicht-2024-final-.pdf"),
        ("s3://b/文書", "document"),
        ("https://example.org/a%20b.pdf?sig=x/y", "a-b.pdf"),
        ("s3://b/.." + "x" * 300, "x" * 60),
        ("https://example.org/", "example.org"),
    ],
)
def test_the_id_starts_with_something_readable(uri: str, readable: str) -> None:
    """A person finds a document's folder by its name."""
    assert slug(uri) == readable


names = st.text(max_size=4) | st.sampled_from([
    "uri", "id", "options", "Records", "s3", "bucket", "object", "key", "name", "Type", "Message", "Event", "detail",
    "detail-type", "source", "size", "eTag", "etag", "versionId", "eventName", "ocr",
])  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
surrogates = st.text(alphabet=st.characters(exclude_categories=()))


def _sound(body: str) -> None:
    intake = read(body, message_id="m")
    assert intake.documents or intake.malformed or intake.dropped
    for document in intake.documents:
        assert DOCUMENT_ID.fullmatch(document.id)
        assert document.uri.encode()
    for malformed in intake.malformed:
        assert (malformed.reason + malformed.fragment).encode()


@given(surrogates | surrogates.map("s3://bucket/".__add__) | surrogates.map("https://".__add__))
def test_any_text_is_answered(body: str) -> None:
    """Total: no text raises, and none vanishes without document, reason or log line."""
    _sound(body)


@given(json_values)
def test_any_json_is_answered(value: Any) -> None:
    """Total over JSON too, wrapped or not, with the names that we look for in all the wrong places."""
    body = json.dumps(value)
    _sound(body)
    _sound(wrapped(body))
    _sound(event(value, record()))
    _sound(json.dumps({"Records": [{"s3": value}], "Type": value}))
    _sound(json.dumps({"uri": "s3://bucket/a", "options": value}))


@given(st.text(min_size=1, alphabet=st.characters(exclude_categories=("Cc", "Cs"))))
def test_every_key_survives_the_event(key: str) -> None:
    """What S3 encodes we decode, to the same bytes: otherwise the fetch says "no such key"."""
    intake = read(event(record(quote_plus(key, safe="/"), size=1)), message_id="m")
    assert intake.documents[0].uri == f"s3://scans/{key}"
