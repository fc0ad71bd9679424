"""A document's bytes, from where its URI says, within the limits of the settings.

Edge. This file dispatches by scheme and owns the limits; each scheme has its file (`fetch_s3.py`, `fetch_http.py`,
`fetch_file.py`), `spool.py` counts, hashes and judges the bytes. Rules: 404 is permanent and the document's; 403, 5xx,
DNS, TLS and slowness are the world's; a URI that the settings do not allow is refused for good.
"""

from __future__ import annotations

import threading
from pathlib import Path

from daemon import fetch_file
from daemon.clock import Clock
from daemon.config import FetchSettings, StoreSettings
from daemon.errors import DocumentError
from daemon.fetch_http import HttpSource, Resolve, resolve
from daemon.fetch_s3 import S3Source
from daemon.model import Cause, Document
from daemon.quota import Part
from daemon.spool import Budget, Fetched, Flag, Spool, sniff

__all__ = ["Fetched", "Fetcher", "sniff"]


class Fetcher:
    """Fetches from every scheme; safe to use from several threads."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        store_settings: StoreSettings,
        scratch: Path,
        clock: Clock,
        resolve: Resolve = resolve,
    ) -> None:
        """`scratch` is where the bytes are kept; it is made when it is missing. `resolve` finds addresses."""
        self._settings = settings
        self._scratch = scratch
        self._clock = clock
        self._s3 = S3Source(store_settings)
        self._http = HttpSource(settings, resolve=resolve)
        scratch.mkdir(parents=True, exist_ok=True)

    def fetch(self, document: Document, *, cancelled: Flag | None = None, part: Part | None = None) -> Fetched:
        """Fetch `document` within `fetch.timeout_s`; setting `cancelled` ends it within a second.

        `part` bounds what is fetched before its turn. Raises `DocumentError(SOURCE_MISSING | SOURCE_REFUSED |
        TOO_LARGE | NOT_A_DOCUMENT)`, `WorldError(SOURCE_UNAVAILABLE | DISK_FULL | DRAINED)`, or like `Part.reach`.
        """
        budget = Budget(
            deadline=self._clock.monotonic() + self._settings.timeout_s,
            timeout_s=self._settings.timeout_s,
            clock=self._clock,
            cancelled=cancelled or threading.Event(),
            part=part,
        )
        budget.left_s()
        with Spool(self._scratch, max_bytes=self._settings.max_bytes, budget=budget) as spool:
            self._into(spool, document)
            return spool.finish()

    def _into(self, spool: Spool, document: Document) -> None:
        match document.uri.partition("://")[0]:
            case "s3":
                self._s3.fetch_into(spool, document)
            case "https" | "http":
                self._http.fetch_into(spool, document.uri)
            case "file":
                fetch_file.fetch_into(spool, document.uri, roots=self._settings.file_roots)
            case scheme:
                raise DocumentError(
                    Cause.SOURCE_REFUSED, f"cannot fetch {scheme}://: only s3, https and file are known"
                )
