"""What the tests of fetching share: a fetcher of ours, and the two ways in which a fetch ends."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from daemon.clock import SystemClock
from daemon.config import FetchSettings, StoreSettings
from daemon.errors import DocumentError, WorldError
from daemon.fetch import Fetcher
from daemon.model import Cause, Document
from tests.fakes.web import NET_S


def fetcher(scratch: Path, *, resolve: Any = None, endpoint: str | None = None, **settings: Any) -> Fetcher:
    """Ours, allowed to talk to loopback unless a test says otherwise."""
    given = {"allow_private_addresses": True, "allow_http": True, "timeout_s": NET_S, "max_bytes": 100_000, **settings}
    more = {} if resolve is None else {"resolve": resolve}
    store = StoreSettings(endpoint_url=endpoint, region="eu-central-1")
    return Fetcher(FetchSettings(**given), store_settings=store, scratch=scratch, clock=SystemClock(), **more)


def at(uri: str, version_id: str | None = None) -> Document:
    """A document somewhere."""
    return Document(id="a", uri=uri, version_id=version_id)


def cause_of(source: Fetcher, uri: str, version_id: str | None = None) -> tuple[Cause, str]:
    """Why a fetch failed; nothing may be left of it."""
    with pytest.raises((DocumentError, WorldError)) as caught:
        source.fetch(at(uri, version_id))
    assert isinstance(caught.value, DocumentError | WorldError)
    return caught.value.cause, caught.value.detail


def content(source: Fetcher, uri: str, version_id: str | None = None) -> bytes:
    """What a fetch brought."""
    fetched = source.fetch(at(uri, version_id))
    with fetched.file as file:
        body = file.read()
    assert (fetched.size_bytes, fetched.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    return body
