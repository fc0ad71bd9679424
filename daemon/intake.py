"""A message's body → the documents it points to, or the reason why none can be read.

Core. `read` is total: it answers for every text, raises nothing, and looks nowhere but at its arguments. Rules:

- Understood: own JSON (`{"uri", "id"?, "options"?, "version_id"?, "etag"?}`), a bare URI, S3 events as S3 sends them
  (`Records`), the same wrapped by SNS (at most twice), and S3 events of EventBridge.
- Keys in `Records` are form-encoded (`a+b` is "a b", `%2B` is "+") and decoded exactly once; EventBridge sends keys
  as they are, and so do people: those are never decoded.
- What is no work is `dropped` with its reason (`s3:TestEvent`, removed objects, folder markers). What cannot be
  read is `malformed`. Each record stands alone: a bad one takes no neighbour with it.
- Our own JSON is strict: an unknown name is a mistake that someone wants to hear of. Others may send what they like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote_plus

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from daemon.model import Document, Options
from daemon.uri import UnreadableError, identified, s3_uri, sender_uri

#: SQS's own limit of a message since 2025.
MAX_BODY_BYTES = 2**20
#: S3 sends one record per message; this bounds what one hostile message can make us claim.
MAX_RECORDS = 1_000
#: SNS in SNS: two wrappers are known from practice (a fan-out behind a topic); more is a loop.
MAX_WRAPPERS = 2
#: How much of an unreadable record is shown beside its reason, and the longest part of it within a reason.
MAX_FRAGMENT_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A message, or one record of it, from which no document can be read."""

    #: One sentence that tells the sender what to change.
    reason: str
    #: The start of what was read, at most `MAX_FRAGMENT_CHARS`.
    fragment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What one message came to; at least one of the three is not empty."""

    #: In the order of the records, each id once.
    documents: tuple[Document, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    #: Why a message or record was no work; the caller logs it and dead-letters nothing.
    dropped: tuple[str, ...] = ()


class _NoWorkError(ValueError):
    """The text is a reason for `dropped`; never leaves this module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """What was seen to be unreadable, or no work, before it was split into records."""

    error: UnreadableError | _NoWorkError
    text: str


#: A bare URI, an own message or a single record, or a refusal.
_Piece = str | Mapping[str, Any] | _Refused


class _OwnOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    ocr: bool = True


class _OwnMessage(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    uri: str
    id: str | None = None
    options: _OwnOptions = _OwnOptions()
    version_id: str | None = None
    etag: str | None = None


class _Bucket(BaseModel):
    name: str


class _Object(BaseModel):
    model_config = ConfigDict(strict=True, populate_by_name=True)
    key: Annotated[str, Field(min_length=1)]
    size: int | None = None
    etag: Annotated[str | None, Field(alias="eTag")] = None
    version_id: Annotated[str | None, Field(alias="versionId")] = None
    sequencer: str | None = None


class _Entity(BaseModel):
    bucket: _Bucket
    object: _Object


def read(body: str, *, message_id: str) -> Intake:
    """Read a message's body; `message_id` tells an unversioned URI's redelivery from a new message about it."""
    documents: dict[str, Document] = {}
    malformed: list[Malformed] = []
    dropped: list[str] = []
    for piece in _pieces(body):
        try:
            document = _document(piece, message_id)
        except _NoWorkError as no_work:
            dropped.append(str(no_work))
        except UnreadableError as unreadable:
            malformed.append(Malformed(reason=str(unreadable), fragment=_fragment(piece)))
        else:
            documents.setdefault(document.id, document)
    return Intake(documents=tuple(documents.values()), malformed=tuple(malformed), dropped=tuple(dropped))


def _pieces(body: str, *, wrappers: int = 0) -> Iterator[_Piece]:
    """Unwrap `body` to bare URIs, own messages and single records; raises nothing."""
    try:
        content = _decoded(body)
        inner = None if isinstance(content, str) else _unwrapped(content, wrappers=wrappers)
    except (UnreadableError, _NoWorkError) as refused:
        yield _Refused(error=refused, text=body)
        return
    if inner is not None:
        yield from _pieces(inner, wrappers=wrappers + 1)
    elif isinstance(content, str) or "Records" not in content:
        yield content
    else:
        yield from _records(content["Records"])


def _decoded(body: str) -> str | dict[str, Any]:
    """A JSON object, or the text itself when it is no JSON."""
    size_bytes = len(body.encode(errors="surrogatepass"))
    if size_bytes > MAX_BODY_BYTES:
        raise UnreadableError(f"the message has {size_bytes} bytes, more than {MAX_BODY_BYTES}: send a URI instead")
    text = body.removeprefix("\ufeff").strip()
    if not text:
        raise UnreadableError('the message is empty: send a URI, {"uri": …} or an S3 event')
    if text[0] == "[":
        raise UnreadableError("the message is a list: send one message per document")
    if text[0] != "{":
        return text
    try:
        content = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise UnreadableError(f"the message is no valid JSON ({_short(str(error))})") from error
    assert isinstance(content, dict), "JSON that starts with a brace is an object"
    return content


def _unwrapped(content: Mapping[str, Any], *, wrappers: int) -> str | None:
    """SNS's inner text, or None when `content` is no envelope."""
    kind = content.get("Type")
    if content.get("Event") == "s3:TestEvent":
        raise _NoWorkError(f"s3:TestEvent of bucket {_short(str(content.get('Bucket')))}")
    if kind in ("SubscriptionConfirmation", "UnsubscribeConfirmation") and "TopicArn" in content:
        raise _NoWorkError(
            f"SNS {kind} of {_short(str(content['TopicArn']))}: a person confirms it by its SubscribeURL"
        )
    if kind != "Notification" or "Message" not in content:
        return None
    if wrappers >= MAX_WRAPPERS:
        raise UnreadableError(
            f"the message is wrapped by SNS more than {MAX_WRAPPERS} times: is there a loop of topics?"
        )
    inner = content["Message"]
    if not isinstance(inner, str):
        raise UnreadableError("Message of the SNS notification is no text")
    return inner


def _records(records: Any) -> Iterator[_Piece]:
    """The records of an S3 event, each for itself."""
    if not isinstance(records, list) or not records:
        empty = UnreadableError("Records is no list, or an empty one: nothing names an object")
        yield _Refused(error=empty, text=repr(records))
    elif len(records) > MAX_RECORDS:
        yield _Refused(error=UnreadableError(f"the event has {len(records)} records, more than {MAX_RECORDS}"), text="")
    else:
        for record in records:
            if isinstance(record, dict) and "s3" in record:
                yield record
            else:
                foreign = UnreadableError("the record has no s3 part: only events of S3 are understood")
                yield _Refused(error=foreign, text=repr(record))


def _document(piece: _Piece, message_id: str) -> Document:
    """One piece as a document. Raises `_NoWorkError` or `UnreadableError`."""
    if isinstance(piece, _Refused):
        raise piece.error
    if isinstance(piece, str):
        return _own({"uri": piece}, message_id)
    if "s3" in piece:
        return _notified(piece, message_id)
    if "detail-type" in piece:
        return _bridged(piece, message_id)
    if "uri" in piece:
        return _own(piece, message_id)
    names = ", ".join(sorted(piece)[:5]) or "nothing"
    raise UnreadableError(f'the message has no uri, Records or detail-type, only {_short(names)}: send {{"uri": …}}')


def _own(piece: Mapping[str, Any], message_id: str) -> Document:
    """What a person or our own `submit` wrote."""
    message = _checked(_OwnMessage, piece, "")
    uri, version_id = sender_uri(message.uri, message.version_id)
    return identified(
        uri,
        message_id=message_id,
        given_id=message.id,
        version_id=version_id,
        etag=message.etag or None,
        options=Options(ocr=message.options.ocr),
    )


def _notified(record: Mapping[str, Any], message_id: str) -> Document:
    """One record of an S3 event; a sender that leaves `eventName` out means a new object."""
    name = record.get("eventName", "ObjectCreated:")
    if not isinstance(name, str):
        raise UnreadableError("eventName is no text")
    if not name.removeprefix("s3:").startswith("ObjectCreated:"):
        raise _NoWorkError(f"{_short(name)} is no new object")
    entity = _checked(_Entity, record["s3"], "s3.")
    try:
        key = unquote_plus(entity.object.key, errors="strict")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"the key {_short(entity.object.key)!r} is no form-encoded UTF-8") from error
    return _stored(entity.bucket.name, key, entity.object, message_id)


def _bridged(event: Mapping[str, Any], message_id: str) -> Document:
    """An event of EventBridge; its names are spelt otherwise and its key is raw."""
    kind = f"{event.get('source')} {event['detail-type']}"
    if event.get("source") != "aws.s3":
        raise UnreadableError(f"the event is {_short(kind)!r}: only aws.s3 is understood, narrow the rule's pattern")
    if event["detail-type"] != "Object Created":
        raise _NoWorkError(f"{_short(kind)} is no new object")
    detail = event.get("detail")
    if isinstance(detail, dict) and isinstance(thing := detail.get("object"), dict):
        detail = {**detail, "object": {**thing, "eTag": thing.get("etag"), "versionId": thing.get("version-id")}}
    entity = _checked(_Entity, detail, "detail.")
    return _stored(entity.bucket.name, entity.object.key, entity.object, message_id)


def _stored(bucket: str, key: str, thing: _Object, message_id: str) -> Document:
    """An object that an event speaks of. S3's version "null" is overwritten in place, so it identifies nothing."""
    if key.endswith("/") and not thing.size:
        raise _NoWorkError(f"{_short(key)} is a folder marker")
    version_id = None if thing.version_id in {None, "", "null"} else thing.version_id
    etag = (thing.etag or "").strip('"') or (f"sequencer:{thing.sequencer}" if thing.sequencer else None)
    return identified(s3_uri(bucket, key), message_id=message_id, version_id=version_id, etag=etag)


_Model = TypeVar("_Model", bound=BaseModel)


def _checked(model: type[_Model], value: Any, where: str) -> _Model:
    """Validate, with the first problem named by its place."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = _short(where + ".".join(str(part) for part in first["loc"]))
        if first["type"] == "extra_forbidden":
            known = "known are uri, id, options.ocr, version_id, etag"
            raise UnreadableError(f"unknown name {place!r}: {known}") from error
        raise UnreadableError(f"{place.rstrip('.') or 'the record'}: {_short(first['msg'])}") from error


def _fragment(piece: _Piece) -> str:
    """The start of a piece, without what looks like a password in a URL."""
    text = piece.text if isinstance(piece, _Refused) else piece if isinstance(piece, str) else repr(dict(piece))
    printable = text[:MAX_FRAGMENT_CHARS].encode(errors="replace").decode()
    return re.sub(r"//[^/@\s]*@", "//…@", printable)


def _short(text: str) -> str:
    return text if len(text) <= MAX_FRAGMENT_CHARS else text[: MAX_FRAGMENT_CHARS - 1] + "…"
