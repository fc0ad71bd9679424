"""A store in memory that keeps the contract of `daemon.store.Store`.

Fake: nothing is durable, everything else holds. `published` counts, per document, how often a manifest was written,
so that a test can say that nothing was published twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from daemon.model import MANIFEST
from daemon.publication import publication, read_manifest, refuse_stale, safe_id, safe_name, token


class MemoryStore:
    """Folders of bytes in a dictionary."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By document id, then by name; what a reader would see.
        self.folders: dict[str, dict[str, bytes]] = {}
        self.published: Counter[str] = Counter()

    def put(
        self, document_id: str, *, fence: int, artefacts: Mapping[str, bytes], manifest: Mapping[str, object]
    ) -> str:
        """See `Store.put`."""
        new = publication(document_id, fence=fence, artefacts=artefacts, manifest=manifest)
        with self._lock:
            before = read_manifest(self.folders.get(document_id, {}).get(MANIFEST, b""))
            refuse_stale(document_id, fence=fence, found=token(before))
            self.folders[document_id] = {**new.artefacts, MANIFEST: new.manifest}
            self.published[document_id] += 1
        return self.location(document_id, MANIFEST)

    def manifest(self, document_id: str) -> Mapping[str, object] | None:
        """See `Store.manifest`."""
        with self._lock:
            return read_manifest(self.folders.get(safe_id(document_id), {}).get(MANIFEST, b""))

    def lacking(self, document_id: str, names: Collection[str]) -> Sequence[str]:
        """See `Store.lacking`."""
        with self._lock:
            return sorted(set(names) - set(self.folders.get(safe_id(document_id), {})))

    def location(self, document_id: str, name: str) -> str:
        """See `Store.location`."""
        return f"memory://{safe_id(document_id)}/{safe_name(name)}"

    def check(self) -> None:
        """See `Store.check`; memory is always there."""
