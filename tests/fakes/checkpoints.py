"""Checkpoints in memory that keep the contract of `daemon.checkpoints.Checkpoints`.

Fake: nothing outlives the test. `tests/contract/test_checkpoints.py` proves it against the same suite as the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from daemon.checkpoints import sealed, unsealed
from daemon.model import PageRecord


class MemoryCheckpoints:
    """Sealed pages in a dictionary."""

    def __init__(self) -> None:
        #: (document id, fingerprint, page) to sealed bytes; a test may damage them.
        self.kept: dict[tuple[str, str, int], bytes] = {}

    def put(self, document_id: str, fingerprint: str, record: PageRecord) -> None:
        """See `Checkpoints.put`."""
        self.kept[document_id, fingerprint, record.page] = sealed(record.blob)

    def each(self, document_id: str, fingerprint: str) -> Iterator[tuple[int, bytes]]:
        """See `Checkpoints.each`."""
        for (document, print_, page), content in sorted(self.kept.items()):
            if (document, print_) == (document_id, fingerprint) and (blob := unsealed(content)) is not None:
                yield page, blob

    def drop(self, document_id: str) -> None:
        """See `Checkpoints.drop`."""
        self.kept = {key: content for key, content in self.kept.items() if key[0] != document_id}

    def documents(self) -> Sequence[str]:
        """See `Checkpoints.documents`."""
        return sorted({document_id for document_id, _, _ in self.kept})

    def holds(self, document_id: str) -> bool:
        """See `Checkpoints.holds`."""
        return any(key[0] == document_id for key in self.kept)
