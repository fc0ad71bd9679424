"""What every store must do; `test_store.py` runs it on the real ones and on the fake.

Rules: a test knows `daemon.store.Store` and what a reader would find, nothing else. `story` makes publications whose
manifest names the digest of each file, so that `is_whole` can tell one publication from a mixture of two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

import pytest

from daemon.errors import LeaseLostError
from daemon.model import MANIFEST
from daemon.store import Store

ID = "report-1"
#: What a reader finds under an id: content by name; hidden files left out.
Read = Callable[[str], Mapping[str, bytes]]

UNSAFE_IDS = ["", ".", "..", "../x", "a/b", "a\\b", "-x", ".lock", "_x", "a" * 129, "a\n", "a\0b", "ä", "a b"]


def story(attempt: int, *, preview: bool = True, word: str = "") -> dict[str, bytes]:
    """Artefacts that say which attempt made them."""
    text = f"attempt {attempt} {word}"
    files = {"document.md": f"# {text}\n".encode(), "document.json": json.dumps({"text": text}).encode()}
    return {**files, "preview.webp": f"RIFF {text}".encode()} if preview else files


def manifest_of(attempt: int, artefacts: Mapping[str, bytes]) -> dict[str, object]:
    """A manifest with each artefact's digest."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in artefacts.items()}
    return {"fencing_token": attempt, "document_id": ID, "artefacts": digests}


def publish(store: Store, attempt: int, *, preview: bool = True, word: str = "") -> str:
    """Put the attempt's story."""
    artefacts = story(attempt, preview=preview, word=word)
    return store.put(ID, fence=attempt, artefacts=artefacts, manifest=manifest_of(attempt, artefacts))


def is_whole(files: Mapping[str, bytes]) -> bool:
    """Whether what a reader finds is exactly one publication."""
    named = json.loads(files[MANIFEST])["artefacts"]
    rest = {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != MANIFEST}
    return bool(named == rest)


def attempt_of(files: Mapping[str, bytes]) -> int | None:
    """The attempt that a reader finds published; None without a manifest. A mixture of two is an error."""
    if MANIFEST not in files:
        return None
    assert is_whole(files), "a manifest beside files of another publication"
    token = json.loads(files[MANIFEST])["fencing_token"]
    assert isinstance(token, int)
    return token


class StoreContract:
    """Subclasses give the fixtures `store`, an empty one, and `read`."""

    def test_put(self, store: Store, read: Read) -> None:
        """What was published is what a reader finds, and the answer says where the manifest lies."""
        location = publish(store, 1)
        assert location == store.location(ID, MANIFEST)
        assert {name: content for name, content in read(ID).items() if name != MANIFEST} == story(1)
        assert store.manifest(ID) == manifest_of(1, story(1))
        assert list(store.lacking(ID, story(1))) == []
        assert json.loads(read(ID)[MANIFEST]) == store.manifest(ID)

    def test_what_is_lacking(self, store: Store) -> None:
        """An audit learns which files of a manifest are not there."""
        assert list(store.lacking(ID, ["document.md", "document.json"])) == ["document.json", "document.md"]
        publish(store, 1, preview=False)
        assert list(store.lacking(ID, ["document.md", "preview.webp"])) == ["preview.webp"]

    def test_nothing_published(self, store: Store, read: Read) -> None:
        """A document without a publication has no manifest."""
        assert store.manifest(ID) is None
        assert read(ID) == {}

    def test_put_twice(self, store: Store, read: Read) -> None:
        """Publishing the same twice is harmless."""
        publish(store, 3)
        before = read(ID)
        publish(store, 3)
        assert read(ID) == before

    def test_put_again_by_the_same_attempt(self, store: Store, read: Read) -> None:
        """An attempt that publishes again has its last word, whole."""
        publish(store, 3, word="first")
        publish(store, 3, word="second", preview=False)
        assert attempt_of(read(ID)) == 3
        assert b"second" in read(ID)["document.md"]

    def test_newer_attempt(self, store: Store, read: Read) -> None:
        """A later attempt replaces an earlier one's publication, whole."""
        publish(store, 1)
        publish(store, 2)
        assert attempt_of(read(ID)) == 2

    def test_stale_attempt(self, store: Store, read: Read) -> None:
        """A holder that slept through its lease cannot publish, and disturbs nothing."""
        publish(store, 2)
        before = read(ID)
        with pytest.raises(LeaseLostError, match=rf"cannot publish {ID} as attempt 1: attempt 2 has published"):
            publish(store, 1, preview=False)
        assert read(ID) == before

    def test_preview_that_is_no_more(self, store: Store, read: Read) -> None:
        """A preview of an earlier publication does not stay beside a later one that has none."""
        publish(store, 1)
        publish(store, 2, preview=False)
        assert set(read(ID)) == {"document.md", "document.json", MANIFEST}

    def test_documents_are_apart(self, store: Store, read: Read) -> None:
        """One document's publication does not touch another's, even where one id begins with the other."""
        publish(store, 1)
        before = read(ID)
        other = f"{ID}-0"
        store.put(other, fence=7, artefacts=story(7, preview=False), manifest={"fencing_token": 7})
        assert read(ID) == before
        assert set(read(other)) == {"document.md", "document.json", MANIFEST}

    def test_unsafe_id(self, store: Store) -> None:
        """No id can name anything outside a folder directly below the root."""
        for document_id in UNSAFE_IDS:
            with pytest.raises(ValueError, match="must match"):
                store.put(document_id, fence=1, artefacts=story(1), manifest={"fencing_token": 1})
            with pytest.raises(ValueError, match="must match"):
                store.manifest(document_id)
            with pytest.raises(ValueError, match="must match"):
                store.location(document_id, MANIFEST)

    def test_unknown_name(self, store: Store) -> None:
        """Only the names of a publication have a location."""
        with pytest.raises(ValueError, match="document\\.md, document\\.json"):
            store.location(ID, "../other/document.md")

    @pytest.mark.parametrize(
        ("artefacts", "token"),
        [(story(1), 2), ({"document.md": b""}, 1), ({**story(1), "evil.sh": b""}, 1)],
        ids=["another token", "without json", "unknown name"],
    )
    def test_callers_bug(self, store: Store, read: Read, artefacts: dict[str, bytes], token: int) -> None:
        """A publication that cannot be right is a bug, and is stopped before anything is written."""
        with pytest.raises(AssertionError):
            store.put(ID, fence=1, artefacts=artefacts, manifest={"fencing_token": token})
        assert read(ID) == {}

    def test_manifest_with_odd_text(self, store: Store) -> None:
        """A lone surrogate out of a hostile document must not make it impossible to publish; other text stays."""
        manifest = {"fencing_token": 1, "title": "Größe \u2028 \ud800 \x00"}
        store.put(ID, fence=1, artefacts=story(1), manifest=manifest)
        assert store.manifest(ID) == {"fencing_token": 1, "title": "Größe \u2028 ? \x00"}

    def test_check(self, store: Store, read: Read) -> None:
        """A store that would work says nothing, and nothing is left of the trial."""
        store.check()
        assert read("") == {}
