"""The store's contract on a folder, on S3 over real HTTP and on the fake; and how a setting chooses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import boto3
import pytest

from daemon.config import StoreSettings
from daemon.errors import ConfigurationError
from daemon.store import Store, open_store
from daemon.store_directory import DirectoryStore
from daemon.store_s3 import S3Store
from tests.contract.store_contract import Read, StoreContract
from tests.fakes.store import MemoryStore

BUCKET = "results"
PREFIX = "deep/er"


class TestMemoryStore(StoreContract):
    """The fake keeps the contract."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """An empty fake."""
        return MemoryStore()

    @pytest.fixture
    def read(self, store: MemoryStore) -> Read:
        """What is in the fake's folder."""
        return lambda document_id: dict(store.folders.get(document_id, {}))


class TestDirectoryStore(StoreContract):
    """A folder keeps the contract."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> DirectoryStore:
        """An empty folder."""
        return DirectoryStore(tmp_path)

    @pytest.fixture
    def read(self, tmp_path: Path) -> Read:
        """The files in a document's folder; for the id "" the files of the root."""

        def files(document_id: str) -> Mapping[str, bytes]:
            folder = tmp_path / document_id
            found = sorted(folder.iterdir()) if folder.exists() else []
            return {path.name: path.read_bytes() for path in found if path.is_file() and path.name != ".lock"}

        return files


@pytest.mark.aws
class TestS3Store(StoreContract):
    """S3 keeps the contract below a prefix."""

    @pytest.fixture
    def store(self, moto_endpoint: str) -> Store:
        """An empty bucket, opened as the settings open it."""
        boto3.client("s3", endpoint_url=moto_endpoint).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        return open_store(StoreSettings(url=f"s3://{BUCKET}/{PREFIX}", endpoint_url=moto_endpoint))

    @pytest.fixture
    def read(self, moto_endpoint: str) -> Read:
        """The objects of a document; for the id "" all of the bucket."""
        client = boto3.client("s3", endpoint_url=moto_endpoint)

        def objects(document_id: str) -> Mapping[str, bytes]:
            folder = "/".join(part for part in (PREFIX, document_id) if part)
            found = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/" if document_id else "").get(
                "Contents", []
            )
            return {
                each["Key"].removeprefix(f"{folder}/"): client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
                for each in found
            }

        return objects


def test_folder_by_setting(tmp_path: Path) -> None:
    """A path is a folder, relative ones too."""
    store = open_store(StoreSettings(url=str(tmp_path)))
    assert isinstance(store, DirectoryStore)
    assert store.location("a", "document.md") == f"{tmp_path}/a/document.md"
    assert open_store(StoreSettings(url="out")).location("a", "document.md") == str(Path.cwd() / "out/a/document.md")


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/p/q", "s3://bucket/p/q/"])
def test_bucket_by_setting(url: str, aws_environment: None) -> None:
    """A bucket with or without a prefix; no doubled slash, which would be another key."""
    store = open_store(StoreSettings(url=url))
    assert isinstance(store, S3Store)
    assert store.location("a", "document.md") == f"{url.rstrip('/')}/a/document.md"


def test_no_store_is_set() -> None:
    """Without a setting nothing can be published; the message says which one and its two forms."""
    with pytest.raises(ConfigurationError, match=r"store\.url is not set.*s3://bucket/prefix or a folder"):
        open_store(StoreSettings())
