"""The files that `bulkhead convert` and `bulkhead calibrate` were asked for, each as the message of one document.

Shell. Folders are walked, bytes are hashed, nothing is opened as a document: what a file is, a child finds out.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.errors import ConfigurationError
from daemon.intake import read
from daemon.model import Options

#: Taken from a folder; a file that is named itself is always tried, whatever its name.
SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file that was asked for."""

    path: Path
    id: str
    body: str
    size_bytes: int


def gather(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Every file to convert, each once, in the order asked for; folders are walked, hidden names left out.

    Raises `ConfigurationError` when a path does not exist or nothing is left to convert.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = (entry for entry in sorted(path.rglob("*")) if _is_wanted(entry.relative_to(path)))
            found.update(dict.fromkeys(entry for entry in inside if entry.is_file()))
        elif path.exists():
            found[path] = None
        else:
            message = f"cannot convert {path}: there is no such file or folder"
            raise ConfigurationError(message)
    if not found:
        message = f"cannot find anything to convert: the folders hold no file named {', '.join(sorted(SUFFIXES))}"
        raise ConfigurationError(message)
    return tuple(found)


def _is_wanted(relative: Path) -> bool:
    hidden = any(part.startswith(".") for part in relative.parts)
    return not hidden and relative.suffix.lower() in SUFFIXES


def describe(path: Path, options: Options) -> Input:
    """The message for one file; its id changes with the bytes and the options, so a changed file is a new document.

    Raises `ConfigurationError` when the file cannot be read.
    """
    try:
        resolved = path.resolve(strict=True)
        with resolved.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size_bytes = file.tell()
        uri = resolved.as_uri()
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}; check that it is there and readable"
        raise ConfigurationError(message) from error
    version = f"{uri}\0{digest}\0{options.ocr}".encode()
    identity = f"{_slug(path.name)}-{hashlib.sha256(version).hexdigest()[:20]}"
    fields = {"uri": uri, "id": identity, "etag": f"sha256:{digest}", "options": {"ocr": options.ocr}}
    body = json.dumps(fields)
    if malformed := read(body, message_id=identity).malformed:
        message = f"cannot convert {path}: {malformed[0].reason}"
        raise ConfigurationError(message)
    return Input(path=path, id=identity, body=body, size_bytes=size_bytes)


def _slug(name: str) -> str:
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9._-]+", "-", ascii_name.lower()).strip("-._")[:60] or "document"
