"""What must not leave in a log line or an alert: credentials, document content, endless text.

Core. Total over whatever is passed in: never raises, never returns an object of a foreign type, and the
result is JSON. `scrub` is the only road of a value into a log line or an alert.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Any

REDACTED = "[redacted]"

#: A field whose name matches is never shown, whatever it holds.
_SECRET_KEY = re.compile(
    r"secret|token|passw|passphrase|credential|authori[sz]ation|(?:^|_)dsn$|api_?key|access_?key|private_?key|"
    r"signature|cookie|receipt_?handle",
    re.IGNORECASE,
)
#: Names that match the above and hold nothing secret.
_PUBLIC_KEYS = frozenset({"fencing_token"})
#: Fields that would hold a document's, or a sender's, own text.
_CONTENT_KEYS = frozenset({"body", "content", "markdown", "text", "data", "artefacts"})

_TEXT_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A presigned URL is a credential: its query goes, and so does a user and password before the host.
    (re.compile(r"(\b(?:https?|wss?)://)[^\s/@?#\"']+@", re.IGNORECASE), rf"\1{REDACTED}@"),
    (re.compile(r"(\b(?:https?|wss?)://[^\s?#\"'<>]{1,1024}\?)[^\s#\"'<>]+", re.IGNORECASE), rf"\1{REDACTED}"),
    (
        re.compile(
            r"([?&](?:x-amz-|sig|token|key|code|auth|awsaccesskeyid)[\w-]{0,40}=)[^\s&#\"'<>]+",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # An AWS key id, and what follows a telling name: `aws_secret_access_key=…`, `"SessionToken": "…"`.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), REDACTED),
    (re.compile(r"\b((?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1{REDACTED}"),
    (
        re.compile(
            r"((?:secret|token|passw|signature|credential|access_?key)[\w-]{0,40}[\"']?\s{0,4}[=:]\s{0,4}[\"']?)[^\s\"'&,;]{8,}",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
)
#: Every rule needs one of these, and most texts have none.
_TELLTALE = re.compile(
    r"(?:https?|wss?)://|[?&]|AKIA|ASIA|Bearer|Basic|secret|token|passw|signature|credential|access_?key", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a value is kept; a limit on everything, since values may come from a hostile child.

    Texts and members are halved with each level, down to 64 and 4; every pattern has bounded repeats, so the work is
    bounded too.
    """

    #: Characters of one string; the rest is counted.
    text: int = 4_096
    #: Members of one mapping or sequence.
    members: int = 64
    #: Nested mappings and sequences.
    depth: int = 6


def scrub_text(text: str, *, limit: int = Limits().text) -> str:
    """Mask credentials in `text` and keep `limit` characters of it, with the number of those that were dropped."""
    # Cut first, generously: a regular expression never runs over megabytes. What was cut in half is masked to its end.
    cut = text[: limit + 1_024]
    if _TELLTALE.search(cut):
        for pattern, replacement in _TEXT_RULES:
            cut = pattern.sub(replacement, cut)
    # A surrogate out of a file's name cannot be written as UTF-8.
    cut = cut.encode("utf-8", "backslashreplace").decode("utf-8")
    kept = cut[:limit]
    dropped = max(len(text) - limit, len(cut) - limit, 0)
    return f"{kept}… ({dropped} more)" if dropped else kept


def scrub(value: Any, *, key: str = "", limits: Limits = Limits()) -> Any:
    """Turn `value`, the field `key`, into JSON that may leave this process."""
    empty = value is None or (isinstance(value, str) and not value)
    if not empty and _is_secret(key):
        return REDACTED
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if key.lower() in _CONTENT_KEYS and isinstance(value, str | Mapping | list | tuple):
        return f"[{len(value)} of content]"
    return _plain(value, key, limits)


@lru_cache(maxsize=512)  # the same few names in every line
def _is_secret(key: str) -> bool:
    return key not in _PUBLIC_KEYS and _SECRET_KEY.search(key) is not None


def _plain(value: Any, key: str, limits: Limits) -> Any:
    """Values by type; what is none of JSON's becomes its bounded text."""
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str):
        return scrub_text(value, limit=limits.text)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _members(value, key, limits)
    return scrub_text(_text_of(value), limit=limits.text)


def _members(value: Mapping[Any, Any] | Collection[Any], key: str, limits: Limits) -> Any:
    """The first members of a mapping or sequence, one level less deep; their number where that is too deep."""
    if limits.depth <= 0:
        return f"[{len(value)} members]"
    inner = Limits(depth=limits.depth - 1, members=max(limits.members // 2, 4), text=max(limits.text // 2, 64))
    if isinstance(value, Mapping):
        pairs = islice(value.items(), limits.members)
        return {scrub_text(str(k), limit=128): scrub(v, key=str(k), limits=inner) for k, v in pairs}
    return [scrub(member, key=key, limits=inner) for member in islice(value, limits.members)]


def _text_of(value: object) -> str:
    """`str(value)`, or its type's name when even that fails: a log line must not raise."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  (a foreign __str__ may raise anything)
        return f"[{type(value).__name__}, whose text raised {type(error).__name__}]"
