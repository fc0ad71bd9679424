"""Single values of settings: what a text means, and what cannot be meant.

Core. Each function takes and returns one value and raises ValueError with a sentence that says what to write
instead; `config.py` adds the setting's name and where it was found.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr


def listed(value: object) -> object:
    """A text as a list: JSON when it starts with `[`, else split at commas. Anything else stays."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError('write a list as `a,b` or as JSON, `["a", "b"]`') from error
    return [part.strip() for part in value.split(",") if part.strip()]


def none_when_empty(value: object) -> object:
    """An empty text as None: how a variable takes back what a file sets."""
    return None if value == "" else value


def absolute(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Paths that mean the same in whatever folder the daemon is started."""
    for path in paths:
        if not path.is_absolute():
            raise ValueError(f"must be absolute paths, and {path} is not")
    return paths


def endpoint(url: str | None) -> str | None:
    """An `http(s)://host` of a service."""
    if url is not None and not _is_web(url):
        raise ValueError("must be a URL such as http://127.0.0.1:5000")
    return url


def queue_url(url: str) -> str:
    """A queue's URL; its ARN and its bare name are common mistakes."""
    if url and not _is_web(url):
        raise ValueError("must be the queue's URL, https://sqs.REGION.amazonaws.com/ACCOUNT/NAME, not its ARN or name")
    return url


def destination(name: str) -> str:
    """A queue's URL or a topic's ARN; a queue's ARN and bare names are common mistakes."""
    if name.startswith("arn:"):
        parts = name.split(":")
        if len(parts) != 6 or parts[2] != "sns" or not all(parts[3:]):  # noqa: PLR2004 - arn:aws:sns:REGION:ACCOUNT:NAME
            raise ValueError("must be a queue's URL or a topic's ARN, arn:aws:sns:REGION:ACCOUNT:NAME")
    elif name and not _is_web(name):
        raise ValueError("must be a queue's URL, https://sqs.REGION.amazonaws.com/ACCOUNT/NAME, or a topic's ARN")
    return name


def store_url(url: str) -> str:
    """`s3://bucket/prefix`, or a folder."""
    if "://" in url or url.startswith(("s3:", "arn:")):
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("must be s3://BUCKET/PREFIX or a folder")
    return url


def bucket_url(url: str) -> str:
    """`s3://bucket/prefix`, or nothing."""
    if url and not store_url(url).startswith("s3://"):
        raise ValueError("must be empty or s3://BUCKET/PREFIX")
    return url


def prefixes(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Each an `s3://bucket/prefix`."""
    for url in urls:
        if not bucket_url(url):
            raise ValueError("must be a list of s3://BUCKET/PREFIX")
    return urls


def inventory(place: str) -> str:
    """`s3://bucket/key`, a path, or nothing."""
    if place.startswith("s3:"):
        if not urlsplit(bucket_url(place)).path.strip("/"):
            raise ValueError("must name an object: s3://BUCKET/KEY")
    elif place and not Path(place).is_absolute():
        raise ValueError("must be s3://BUCKET/KEY or an absolute path")
    return place


def listen_address(text: str) -> str:
    """`HOST:PORT`, the host being an address; `[::1]:9464` for IPv6."""
    if text:
        host, _, port = text.rpartition(":")
        try:
            ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError as error:
            raise ValueError("must be an address and a port, such as 127.0.0.1:9464") from error
        if not (port.isascii() and port.isdigit() and 0 <= int(port) < 2**16):  # 0: any free one
            raise ValueError("must end with a port, such as 127.0.0.1:9464")
    return text


def absolute_folder(text: str) -> str:
    """A folder's absolute path, or nothing."""
    if text and not Path(text).is_absolute():
        raise ValueError("must be an absolute path")
    return text


def dsn(secret: SecretStr) -> SecretStr:
    """`https://KEY@HOST/PROJECT`, as Sentry shows it; the value is in no message."""
    text = secret.get_secret_value()
    parts = urlsplit(text)
    if text and not (_is_web(text) and parts.username and parts.path.rstrip("/").rsplit("/", 1)[-1].isdigit()):
        raise ValueError("must be empty or look like https://KEY@HOST/PROJECT, with a number as project")
    return secret


def _is_web(url: str) -> bool:
    """Whether `url` is `http(s)://host…`."""
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


#: A day at most: more was meant as milliseconds.
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
#: 1 KiB at least: less was meant as MiB.
Bytes = Annotated[int, Field(ge=1_024)]
#: 512 MiB at least: the engine alone takes nearly that.
MemoryLimit = Annotated[Annotated[int, Field(ge=512 * 2**20)] | None, BeforeValidator(none_when_empty)]
Names = Annotated[tuple[str, ...], BeforeValidator(listed)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(listed), AfterValidator(absolute)]
OptionalText = Annotated[str | None, BeforeValidator(none_when_empty)]
Endpoint = Annotated[str | None, BeforeValidator(none_when_empty), AfterValidator(endpoint)]
Destination = Annotated[str, AfterValidator(destination)]
QueueUrl = Annotated[str, AfterValidator(queue_url)]
StoreUrl = Annotated[str, AfterValidator(store_url)]
BucketUrl = Annotated[str, AfterValidator(bucket_url)]
Prefixes = Annotated[tuple[str, ...], BeforeValidator(listed), AfterValidator(prefixes)]
Inventory = Annotated[str, AfterValidator(inventory)]
ListenAddress = Annotated[str, AfterValidator(listen_address)]
TextFile = Annotated[str, AfterValidator(absolute_folder)]
Dsn = Annotated[SecretStr, AfterValidator(dsn)]
