"""The store in a folder: `<root>/<id>/`, for readers who look for `manifest.json`.

Edge. Rules: everything is written and fsynced under hidden temporary names first; then, under the document's lock,
an old manifest goes, the files are renamed into place, and the new manifest is renamed last. So a writer killed at
any instant leaves the old publication, or none, or the new one; never a manifest beside another attempt's files.
The root is never created here: a folder that was not mounted must not be written to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from daemon.errors import ResourceError, WorldError
from daemon.model import MANIFEST, Cause
from daemon.publication import Publication, publication, read_manifest, refuse_stale, safe_id, safe_name, token

#: Hidden, so that no reader takes them for results; both stay within the document's folder.
LOCK = ".lock"
TEMPORARY = ".new-"
#: How long another process may hold a document's lock before we give up: it only writes a few files.
LOCK_TRIES = 200
LOCK_PAUSE_S = 0.05

#: A file that may not grow is as good as a full disk: nothing is at fault but the room there is.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DirectoryStore:
    """`daemon.store.Store` on a file system; several processes and hosts may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def put(
        self, document_id: str, *, fence: int, artefacts: Mapping[str, bytes], manifest: Mapping[str, object]
    ) -> str:
        """See `Store.put`."""
        new = publication(document_id, fence=fence, artefacts=artefacts, manifest=manifest)
        folder = self.root / new.document_id
        with _translated(folder):
            if not folder.exists():
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                _sync_folder(self.root)
            with _locked(folder):
                refuse_stale(document_id, fence=fence, found=token(_read(folder)))
                _publish(folder, new)
        return str(folder / MANIFEST)

    def manifest(self, document_id: str) -> Mapping[str, object] | None:
        """See `Store.manifest`."""
        folder = self.root / safe_id(document_id)
        with _translated(folder):
            return _read(folder)

    def lacking(self, document_id: str, names: Collection[str]) -> Sequence[str]:
        """See `Store.lacking`."""
        folder = self.root / safe_id(document_id)
        with _translated(folder):
            return sorted(name for name in names if not (folder / safe_name(name)).exists())

    def location(self, document_id: str, name: str) -> str:
        """See `Store.location`."""
        return str(self.root / safe_id(document_id) / safe_name(name))

    def check(self) -> None:
        """See `Store.check`."""
        if not self.root.is_dir():
            raise ResourceError(f"cannot publish to {self.root}: there is no such folder. Create it, or mount it.")
        probe = self.root / f".probe-{os.getpid()}"
        try:
            probe.write_bytes(b"bulkhead")
            probe.unlink()
        except OSError as error:
            raise ResourceError(
                f"cannot publish to {self.root}: {error.strerror}. Give this user the right to write there, and room."
            ) from error


def _publish(folder: Path, new: Publication) -> None:
    """Replace what `folder` holds by `new`; the caller holds the lock."""
    for entry in folder.iterdir():
        if entry.name.startswith(TEMPORARY):
            entry.unlink()
    written = {**new.artefacts, MANIFEST: new.manifest}
    try:
        for name, content in written.items():
            _write(folder / f"{TEMPORARY}{name}", content)
        _remove(folder, MANIFEST)
        for name in new.artefacts:
            (folder / f"{TEMPORARY}{name}").replace(folder / name)
        for name in new.stale:
            _remove(folder, name)
        _sync_folder(folder)
        (folder / f"{TEMPORARY}{MANIFEST}").replace(folder / MANIFEST)
        _sync_folder(folder)
    except OSError:
        for name in written:
            with contextlib.suppress(OSError):  # the first error is the one to show; the next put cleans up again
                (folder / f"{TEMPORARY}{name}").unlink()
        raise


def _remove(folder: Path, name: str) -> None:
    """Remove a file durably, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        (folder / name).unlink()
        _sync_folder(folder)


def _write(path: Path, content: bytes) -> None:
    """Write a new file and put it on the medium."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(folder: Path) -> Mapping[str, object] | None:
    try:
        return read_manifest((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the document's lock; a killed holder's is free at once. Raises `WorldError` when it stays held."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                threading.Event().wait(LOCK_PAUSE_S)
                continue
            yield
            return
        raise WorldError(Cause.STORE_UNAVAILABLE, f"cannot publish to {folder}: another process keeps it locked")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Whatever a file system refuses is the world's problem while the daemon runs; `check` is for its start."""
    try:
        yield
    except OSError as error:
        cause = Cause.DISK_FULL if error.errno in _FULL else Cause.STORE_UNAVAILABLE
        raise WorldError(cause, f"cannot use the store at {folder}: {error.strerror}") from error
