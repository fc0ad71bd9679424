"""Where results go, as the parent sees it.

Edge (the interface, and the choice by the setting's form; `store_directory.py` and `store_s3.py` are the real ones).
Readers look for `manifest.json`: it is written last, and where it is, everything that it speaks of is. One contract
suite, `tests/contract/store_contract.py`, holds for every implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from daemon.config import StoreSettings
from daemon.errors import ConfigurationError
from daemon.store_directory import DirectoryStore
from daemon.store_s3 import S3Store


class Store(Protocol):
    """Publications by document id; safe to use from several threads, processes and hosts."""

    def put(
        self, document_id: str, *, fence: int, artefacts: Mapping[str, bytes], manifest: Mapping[str, object]
    ) -> str:
        """Publish a document and return its manifest's location.

        `artefacts` by name out of `model.ARTEFACTS`; `manifest["fencing_token"]` must be `fence`, the attempt's
        number. Artefacts first, manifest last; the same again is harmless; an older attempt's publication is replaced
        whole. Raises `LeaseLostError` when a newer attempt has published, `WorldError(STORE_UNAVAILABLE | DISK_FULL)`
        when the store does not take it (then the same put may be tried again), `ResourceError` when the bucket does
        not exist, `ValueError` for an unsafe id.
        """
        ...

    def manifest(self, document_id: str) -> Mapping[str, object] | None:
        """The published manifest; None where nothing is published. Raises `WorldError` like `put`."""
        ...

    def lacking(self, document_id: str, names: Collection[str]) -> Sequence[str]:
        """Those of `names` that are not there, in order. Raises `WorldError` like `put`."""
        ...

    def location(self, document_id: str, name: str) -> str:
        """Where `name` lies or would lie: `s3://…` or a path."""
        ...

    def check(self) -> None:
        """Try what `put` needs, with an object that is removed again.

        Raises `ResourceError` naming the bucket or folder, and the right that is missing.
        """
        ...


def open_store(settings: StoreSettings) -> Store:
    """The store that `settings.url` names, whose form the settings have checked; talks to nobody yet.

    Raises `ConfigurationError` when it names none, or when the SDK's own set-up is wrong.
    """
    url = settings.url
    if not url:
        raise ConfigurationError("cannot publish: store.url is not set. Set it to s3://bucket/prefix or a folder.")
    if url.startswith("s3://"):
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return S3Store.open(bucket, prefix, region=settings.region, endpoint_url=settings.endpoint_url)
    return DirectoryStore(Path(url))
