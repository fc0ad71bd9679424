"""URIs as senders write them: checked once, spelt one way, and the ids made from them.

Core. Rules:

- `s3://bucket/key` holds the key raw, as the AWS CLI spells it: nothing is percent-decoded, and `?` or `#` belong to
  the key, but for one `?versionId=…` at the very end of what a sender wrote.
- `https://`, `http://` and `file://` are URLs; whether the settings allow them is `fetch.py`'s business, not ours.
- Nothing here repeats a password in a message.
- The same version of the same URI with the same options has the same id, whoever delivers it.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from json import dumps
from urllib.parse import unquote, urlsplit

from daemon.model import Document, Options

#: S3 keys have 1024 bytes at most; the rest is room for presigned URLs with their signatures.
MAX_URI_BYTES = 8 * 2**10
#: Longest readable part of a made-up id; with the dash and 20 hex digits it stays below 128.
MAX_SLUG_CHARS = 60

DOCUMENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SCHEMES = ("s3", "https", "http", "file")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{3,255}")
_VERSION_SUFFIX = re.compile(r"\?versionId=([^?&]+)\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class UnreadableError(ValueError):
    """What a sender wrote cannot be a document's URI; the text says what to change."""


def sender_uri(raw: str, version_id: str | None) -> tuple[str, str | None]:
    """Check a URI that a sender wrote; returns it and the version, which an s3 one may bear as `?versionId=`.

    Raises `UnreadableError`.
    """
    scheme_match = _SCHEME.match(raw)
    scheme = scheme_match[1].lower() if scheme_match else ""
    if scheme not in SCHEMES:
        known = ", ".join(f"{known}://" for known in SCHEMES)
        raise UnreadableError(f"{raw[:40]!r} is no URI that starts with one of {known}")
    uri = scheme + raw[len(scheme) :]
    if not uri.startswith(f"{scheme}://"):
        raise UnreadableError(f"after {scheme}: comes //, not {uri[len(scheme) + 1 :][:10]!r}")
    if scheme == "s3":
        return _sender_s3(uri, version_id or None)
    if version_id:
        raise UnreadableError(f"version_id is only for s3:// and the uri is {scheme}://")
    _check_url(uri)
    return uri, None


def _sender_s3(uri: str, version_id: str | None) -> tuple[str, str | None]:
    if suffix := _VERSION_SUFFIX.search(uri):
        if version_id not in {None, suffix[1]}:
            raise UnreadableError("version_id and the uri's versionId differ: keep one")
        uri, version_id = uri[: suffix.start()], suffix[1]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not key:
        raise UnreadableError(f"{uri[:80]!r} names no object: write s3://bucket/key")
    return s3_uri(bucket, key), version_id


def s3_uri(bucket: str, key: str) -> str:
    """`s3://bucket/key`, the key raw. Raises `UnreadableError`."""
    if not _BUCKET.fullmatch(bucket):
        raise UnreadableError(f"{bucket[:80]!r} is no bucket's name")
    uri = f"s3://{bucket}/{key}"
    _check_text(uri)
    return uri


def _check_url(uri: str) -> None:
    """Refuse what no fetch could use."""
    _check_text(uri)
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UnreadableError("the uri cannot be parsed: look at its host and port") from error
    if parts.username is not None or parts.password is not None:
        raise UnreadableError("the uri holds a user or password, which would be logged and stored: leave it out")
    if parts.scheme != "file" and not host:
        raise UnreadableError("the uri names no host")
    if parts.scheme == "file" and (host not in {None, "localhost"} or not parts.path.startswith("/")):
        raise UnreadableError("a file uri needs three slashes and an absolute path: file:///folder/name.pdf")


def _check_text(uri: str) -> None:
    """Refuse a URI that no log line or header could carry."""
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in uri):
        raise UnreadableError("the uri holds a control character or half a surrogate pair")
    if len(uri.encode()) > MAX_URI_BYTES:
        raise UnreadableError(f"the uri is longer than {MAX_URI_BYTES} bytes")


def identified(
    uri: str,
    *,
    message_id: str,
    given_id: str | None = None,
    version_id: str | None = None,
    etag: str | None = None,
    options: Options | None = None,
) -> Document:
    """The document at `uri`, with the sender's id or one made from URI, version and options.

    Without version and ETag a URI is as new as the message that names it: `message_id` stands in.
    Raises `UnreadableError` when the given id could not name a folder.
    """
    options = options or Options()
    if given_id is not None and not DOCUMENT_ID.fullmatch(given_id):
        raise UnreadableError(f"id {given_id[:40]!r} is not of the form {DOCUMENT_ID.pattern}")
    version = ("message", message_id)
    if version_id or etag:
        version = ("version", version_id) if version_id else ("etag", etag or "")
    identity = dumps([uri, *version, options.ocr]).encode()
    made_up = f"{slug(uri)}-{sha256(identity).hexdigest()[:20]}"
    return Document(id=given_id or made_up, uri=uri, version_id=version_id, etag=etag, options=options)


def slug(uri: str) -> str:
    """The readable part of an id: the URI's last path part in lower-case ASCII, at most `MAX_SLUG_CHARS`."""
    path = uri if uri.startswith("s3://") else unquote(uri.partition("?")[0].partition("#")[0])
    last = path.rstrip("/").rpartition("/")[2]
    folded = unicodedata.normalize("NFKD", last).encode("ascii", "ignore").decode().lower()
    readable = re.sub(r"[^a-z0-9.]+", "-", folded).strip("-.")
    return readable[:MAX_SLUG_CHARS].strip("-.") or "document"
