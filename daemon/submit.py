"""`bulkhead submit`: checks what a URI would be read as, then enqueues it.

Shell. The message is the one that any other sender would write; nothing here has a way of its own into the daemon.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from daemon.errors import ConfigurationError
from daemon.intake import read
from daemon.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """One message on its way."""

    uri: str
    message_id: str


def submit(uris: Sequence[str], queue: Queue, *, ocr: bool) -> list[Submitted]:
    """Enqueue one message for each URI. Raises `ConfigurationError` before the first when one cannot be read."""
    bodies = [_body(uri, ocr=ocr) for uri in uris]
    return [Submitted(uri=uri, message_id=queue.send(body)) for uri, body in zip(uris, bodies, strict=True)]


def _body(uri: str, *, ocr: bool) -> str:
    body = json.dumps({"uri": uri} if ocr else {"uri": uri, "options": {"ocr": False}}, ensure_ascii=False)
    malformed = read(body, message_id="submit").malformed
    if malformed:
        message = f"cannot submit {uri}: {malformed[0].reason}"
        raise ConfigurationError(message)
    return body
