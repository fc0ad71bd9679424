"""Where finished pages wait until their document settles.

Edge. A checkpoint is kept under the document's id and a fingerprint of everything that decides its bytes: the
document's digest, its options, the engine's manifest. Another fingerprint never sees it. What is damaged or missing is
simply not there, so its page is converted again; never is a document cut short. Losing checkpoints costs time, never
text: writes are atomic, and only as durable as a killed parent needs.

One contract suite, `tests/contract/checkpoint_contract.py`, holds for every implementation.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from daemon.errors import WorldError
from daemon.model import Cause, Document, PageRecord

#: Digest of the rest, then the bytes that a child sent.
_HEADER = struct.Struct(">32s")
_SUFFIX = ".page"


def fingerprint(document: Document, *, sha256: str, engine: Mapping[str, object]) -> str:
    """What decides a page's bytes, as 64 hexadecimal digits."""
    decisive = {"sha256": sha256, "options": {"ocr": document.options.ocr}, "engine": engine}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()


class Checkpoints(Protocol):
    """Finished pages by document and fingerprint; each method may raise `WorldError`."""

    def put(self, document_id: str, fingerprint: str, record: PageRecord) -> None:
        """Keep one page; the same again replaces it."""
        ...

    def each(self, document_id: str, fingerprint: str) -> Iterator[tuple[int, bytes]]:
        """All sound pages of this fingerprint in ascending order, as they were sent; one in memory at a time."""
        ...

    def drop(self, document_id: str) -> None:
        """Forget everything of this document, whatever its fingerprint; harmless when there is nothing."""
        ...

    def documents(self) -> Sequence[str]:
        """Ids of documents of which anything is kept, in order."""
        ...

    def holds(self, document_id: str) -> bool:
        """Whether anything of this document is kept."""
        ...


class DirectoryCheckpoints:
    """One file a page: `<root>/<document id>/<fingerprint>-<page>.page`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, document_id: str, fingerprint: str, record: PageRecord) -> None:
        """See `Checkpoints.put`."""
        folder = self._root / document_id
        target = folder / f"{fingerprint}-{record.page}{_SUFFIX}"
        temporary = folder / f"{fingerprint}-{record.page}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(sealed(record.blob))
            temporary.replace(target)
        except OSError as error:
            detail = f"cannot keep page {record.page} of {document_id}: {error.strerror or error}"
            raise WorldError(Cause.DISK_FULL, detail) from error

    def each(self, document_id: str, fingerprint: str) -> Iterator[tuple[int, bytes]]:
        """See `Checkpoints.each`."""
        folder = self._root / document_id
        numbers = (path.stem.removeprefix(f"{fingerprint}-") for path in folder.glob(f"{fingerprint}-*{_SUFFIX}"))
        for page in sorted(int(number) for number in numbers if number.isdecimal()):
            try:
                blob = unsealed((folder / f"{fingerprint}-{page}{_SUFFIX}").read_bytes())
            except OSError:  # gone or unreadable: as if it had never been kept
                continue
            if blob is not None:
                yield page, blob

    def drop(self, document_id: str) -> None:
        """See `Checkpoints.drop`."""
        shutil.rmtree(self._root / document_id, ignore_errors=True)

    def documents(self) -> Sequence[str]:
        """See `Checkpoints.documents`."""
        try:
            return sorted(folder.name for folder in self._root.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            detail = f"cannot list the finished pages in {self._root}: {error.strerror or error}"
            raise WorldError(Cause.STORE_UNAVAILABLE, detail) from error

    def holds(self, document_id: str) -> bool:
        """See `Checkpoints.holds`."""
        return (self._root / document_id).exists()


def sealed(blob: bytes) -> bytes:
    """`blob` with its digest before it."""
    return _HEADER.pack(hashlib.sha256(blob).digest()) + blob


def unsealed(content: bytes) -> bytes | None:
    """The blob that was sealed; None when a byte of it is not what it was."""
    if len(content) < _HEADER.size:
        return None
    blob = content[_HEADER.size :]
    (digest,) = _HEADER.unpack_from(content)
    return blob if hashlib.sha256(blob).digest() == digest else None
