"""What a publication is, whichever store takes it: its names, its media types, its manifest, who may replace it.

Core. Values and checks only. A manifest bears `fencing_token`, the number of the attempt that made it; one with a
higher number is never replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from daemon.errors import LeaseLostError
from daemon.model import ARTEFACTS, MANIFEST

#: A document's id is a folder's name; see `model.Document`.
DOCUMENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
FENCING_TOKEN = "fencing_token"  # noqa: S105 - a name, not a secret
MEDIA_TYPES: Mapping[str, str] = {
    "document.md": "text/markdown; charset=utf-8",
    "document.json": "application/json",
    "preview.webp": "image/webp",
    MANIFEST: "application/json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What one `put` writes, checked."""

    document_id: str
    #: Number of the attempt that publishes; from 1.
    fence: int
    #: In the order in which they are written.
    artefacts: Mapping[str, bytes]
    #: The manifest as UTF-8 JSON.
    manifest: bytes

    @property
    def stale(self) -> tuple[str, ...]:
        """Names that an earlier publication may have left and this one does not have."""
        return tuple(name for name in ARTEFACTS if name not in self.artefacts)


def publication(
    document_id: str, *, fence: int, artefacts: Mapping[str, bytes], manifest: Mapping[str, object]
) -> Publication:
    """Check what a caller wants to publish.

    Raises `ValueError` for an unsafe id. Unknown names, a missing Markdown or JSON, and a manifest that bears another
    fencing token are bugs of the caller, and assertions.
    """
    unknown = set(artefacts) - set(ARTEFACTS)
    assert not unknown, f"no artefacts: {sorted(unknown)}"
    assert {"document.md", "document.json"} <= set(artefacts), "Markdown and JSON are never missing"
    assert manifest.get(FENCING_TOKEN) == fence, "the manifest bears another fencing token"
    return Publication(
        document_id=safe_id(document_id),
        fence=fence,
        artefacts={name: artefacts[name] for name in ARTEFACTS if name in artefacts},
        manifest=(json.dumps(manifest, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode("utf-8", "replace"),
    )


def safe_id(document_id: str) -> str:
    """`document_id`, if it can only name a folder directly below the root; raises `ValueError` otherwise."""
    if DOCUMENT_ID.fullmatch(document_id) is None:
        raise ValueError(f"cannot use {document_id!r} as a document's id: it must match {DOCUMENT_ID.pattern}")
    return document_id


def safe_name(name: str) -> str:
    """`name`, if it is an artefact's or the manifest's; raises `ValueError` otherwise."""
    if name not in MEDIA_TYPES:
        raise ValueError(f"cannot use {name!r}: a publication has {', '.join(MEDIA_TYPES)}")
    return name


def read_manifest(content: bytes) -> Mapping[str, object] | None:
    """The manifest's object; None when the bytes are no JSON object: nothing that a reader takes for a result."""
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else None


def token(manifest: Mapping[str, object] | None) -> int:
    """A manifest's fencing token; 0, which everyone may replace, when there is none."""
    number = (manifest or {}).get(FENCING_TOKEN)
    return number if isinstance(number, int) else 0


def refuse_stale(document_id: str, *, fence: int, found: int) -> None:
    """Raise `LeaseLostError` when `found`, a token in the store, is newer than `fence`."""
    if found > fence:
        raise LeaseLostError(
            f"cannot publish {document_id} as attempt {fence}: attempt {found} has published. Its result stays."
        )
