"""file:// as a source, below the folders that the settings name and nowhere else.

Edge. Rules: symbolic links are resolved first and the result must lie below a root; what was opened is looked at
again through the descriptor, so a path that is exchanged in between gains nothing; only regular files are read. The
bytes are copied: a file that changes while its children read it would be another document each time.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from daemon.errors import DocumentError, WorldError
from daemon.model import Cause
from daemon.spool import Spool

CHUNK_BYTES = 1 << 20
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def fetch_into(spool: Spool, uri: str, *, roots: tuple[Path, ...]) -> None:
    """Copy the file at `uri` into `spool`.

    Raises `DocumentError(SOURCE_MISSING | SOURCE_REFUSED | TOO_LARGE)` or `WorldError(SOURCE_UNAVAILABLE)`.
    """
    path = _path(uri)
    try:
        real = path.resolve()
        roots = tuple(root.resolve() for root in roots)
        if not _below(real, roots):
            raise _refused(path, "it is not below fetch.file_roots")
        descriptor = os.open(real, _FLAGS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DocumentError(Cause.SOURCE_MISSING, f"cannot fetch {path}: it is not there") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise WorldError(Cause.SOURCE_UNAVAILABLE, f"cannot fetch {path}: {error}; look at its permissions") from error
    try:
        _check_opened(descriptor, path, roots)
        spool.expect(os.fstat(descriptor).st_size)
        while chunk := os.read(descriptor, CHUNK_BYTES):
            spool.write(chunk)
    except OSError as error:
        raise WorldError(Cause.SOURCE_UNAVAILABLE, f"cannot read {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _path(uri: str) -> Path:
    """The absolute path that `uri` names, percent-decoded once."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or not path.startswith("/") or "\0" in path:
        raise DocumentError(Cause.SOURCE_REFUSED, f"cannot fetch {uri!r}: it is not of the form file:///folder/name")
    return Path(path)


def _below(path: Path, roots: tuple[Path, ...]) -> bool:
    """Whether `path` lies in one of `roots`; none of them goes through a link."""
    return any(path.is_relative_to(root) for root in roots)


def _check_opened(descriptor: int, path: Path, roots: tuple[Path, ...]) -> None:
    """Refuse what is no regular file below a root, whatever its path was a moment ago."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _refused(path, "it is no regular file")
    if not _below(Path(f"/proc/self/fd/{descriptor}").readlink(), roots):
        raise _refused(path, "it was moved while it was opened")


def _refused(path: Path, reason: str) -> DocumentError:
    return DocumentError(Cause.SOURCE_REFUSED, f"cannot fetch {path}: {reason}")
