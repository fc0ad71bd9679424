"""All settings, from one TOML file, `BULKHEAD_…` in the environment, and the credentials directory.

Edge. Read once, at the start of a command, and passed in; nothing else reads the environment. In order
of strength: a value given in code (a command's options), the environment (`BULKHEAD_QUEUE__URL`), files
in `$CREDENTIALS_DIRECTORY` (`queue__url`), the TOML file, the default. Unknown names are refused. Suffixes
carry units: `_s` seconds, `_bytes`, `_px` pixels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from daemon.errors import ConfigurationError

PREFIX = "BULKHEAD_"
#: Read when neither `--config` nor `BULKHEAD_CONFIG` names another, and only if it exists.
DEFAULT_FILE = Path("/etc/bulkhead/bulkhead.toml")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bytes = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A group of settings; frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class QueueSettings(Section):
    """Where messages come from and dead letters go."""

    url: str = ""
    """URL of the SQS queue. Required by `run` and `submit`."""
    dead_letter_url: str = ""
    """URL of the dead-letter queue. Required by `run`."""
    region: str | None = None
    """AWS region of the queues; the SDK's own choice when unset."""
    endpoint_url: str | None = None
    """Another SQS endpoint, for instance an emulator on loopback."""
    wait_s: Annotated[int, Field(ge=0, le=20)] = 20
    """Long polling; SQS allows 20 s at most."""
    visibility_s: Annotated[int, Field(ge=10, le=43_200)] = 60
    """How long a message stays hidden after each heartbeat; a dead daemon's message returns within this."""
    retry_for_s: Seconds = 60.0
    """How long one call is retried, with jitter, before the world is called unavailable."""

    @property
    def heartbeat_s(self) -> float:
        """Interval of heartbeats: a third of the visibility, so that two may fail."""
        return self.visibility_s / 3


class StoreSettings(Section):
    """Where results go."""

    url: str = ""
    """`s3://bucket/prefix` or a directory. Required by `run`."""
    region: str | None = None
    """AWS region of the bucket; the SDK's own choice when unset."""
    endpoint_url: str | None = None
    """Another S3 endpoint; also used to fetch `s3://` sources."""


class FetchSettings(Section):
    """What may be fetched."""

    max_bytes: Bytes = 256 * 2**20
    """A larger document is dead-lettered as `too_large`."""
    timeout_s: Seconds = 120.0
    """Deadline of one fetch, redirects included."""
    file_roots: tuple[Path, ...] = ()
    """Folders below which `file://` is allowed; none by default."""
    allow_private_addresses: bool = False
    """Let `https://` sources be on private, loopback and link-local addresses."""
    allow_http: bool = False
    """Let sources be plain `http://`."""


class ChildSettings(Section):
    """The processes that open documents."""

    start: Literal["zygote", "spawn"] = "zygote"
    """`zygote`: forked from one warm process; `spawn`: a fresh interpreter each, seconds slower."""
    document_timeout_s: Seconds = 900.0
    """Deadline of one document's conversion, all its children together; then SIGKILL and the dead-letter queue."""
    start_timeout_s: Seconds = 60.0
    """Deadline for the zygote to be warm, and for a spawned child to say hello."""
    linger_s: Seconds = 5.0
    """How long a child may take to leave after its result."""
    memory_bytes: Annotated[int, Field(ge=512 * 2**20)] | None = None
    """Limit of one child; unset: what the host or cgroup has, less a reserve, divided by the workers."""
    max_output_bytes: Bytes = 512 * 2**20
    """Sum of all frames that one child may send."""
    max_stderr_bytes: Bytes = 64 * 2**10
    """How much of a child's stdout and stderr is kept; the rest is counted and dropped."""
    max_scratch_bytes: Bytes = 2 * 2**30
    """Largest file that a child may write in its scratch folder."""


class EngineSettings(Section):
    """What a child converts with; checked at start, written into every manifest."""

    ocr_backend: Literal["rapidocr-onnxruntime"] = "rapidocr-onnxruntime"
    """The declared OCR engine; a start is refused when the installed one is another."""
    languages: tuple[str, ...] = ("zh", "en")
    """Languages that OCR must be able to read; a start is refused when the models cannot."""
    max_pages: Annotated[int, Field(gt=0)] = 5_000
    """A document with more pages (or frames) is dead-lettered as `too_large`."""
    page_budget_px: Annotated[int, Field(ge=100_000)] = 4_000_000
    """Most pixels of a page's picture for layout and OCR, whatever the page's size on paper."""
    image_budget_px: Annotated[int, Field(ge=1_000_000)] = 64_000_000
    """Most pixels of an image document's frame as it is decoded; a larger one is scaled while decoding or refused."""
    preview_budget_px: Annotated[int, Field(ge=100)] = 800
    """Long edge at which the first page is rendered for `preview.webp`."""


class RetrySettings(Section):
    """When a document is given up."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Counted attempts of one document, over all hosts; then the dead-letter queue."""
    release_delay_s: Annotated[float, Field(ge=0, le=43_200)] = 30.0
    """How long a released message stays hidden after the first world's failure; doubled each time, up to 15 min."""


class SentrySettings(Section):
    """Alerts; off without a DSN."""

    dsn: SecretStr = SecretStr("")
    """Where alerts go; empty: nowhere. Events carry no document content and no credentials."""
    environment: str = "production"
    """Shown beside each alert."""


class LogSettings(Section):
    """Logs, always on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
    format: Literal["auto", "json", "console"] = "auto"
    """`auto`: readable on a terminal, JSON lines elsewhere."""


class Settings(BaseSettings):
    """Everything that an operator may set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        secrets_nested_delimiter="__",
    )

    state_dir: Path = Path("/var/lib/bulkhead")
    """The ledger, the instance lock and scratch folders lie here."""
    workers: Literal["auto"] | Annotated[int, Field(ge=1, le=1_024)] = "auto"
    """Documents converted at the same time; clamped to the CPUs that this process may use."""
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    """Threads of one child's inference; workers × threads never exceeds the CPUs."""
    drain_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0
    """How long documents in flight may go on after SIGTERM."""
    allow_failpoints: bool = False
    """Let `BULKHEAD_FAILPOINTS` kill children and this process on purpose. For tests and drills."""
    failpoints: str = ""
    """`POINT[@SELECTOR]=ACTION;…`; refused unless `allow_failpoints`."""

    queue: QueueSettings = QueueSettings()
    store: StoreSettings = StoreSettings()
    fetch: FetchSettings = FetchSettings()
    child: ChildSettings = ChildSettings()
    engine: EngineSettings = EngineSettings()
    retry: RetrySettings = RetrySettings()
    sentry: SentrySettings = SentrySettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Refuse combinations that can only end badly."""
        if self.failpoints and not self.allow_failpoints:
            message = (
                "BULKHEAD_FAILPOINTS is set, and allow_failpoints is not: this process would kill itself. "
                "Unset the variable, or set BULKHEAD_ALLOW_FAILPOINTS=true for a drill."
            )
            raise ValueError(message)
        if self.child.document_timeout_s > 11 * 3600:
            message = "child.document_timeout_s must stay below 11 h: SQS hides a message for 12 h at most"
            raise ValueError(message)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order of strength; `.env` files are not read."""
        del dotenv_settings
        sources: list[PydanticBaseSettingsSource] = [init_settings, env_settings, file_secret_settings]
        toml_file = cls.model_config.get("toml_file")
        if toml_file:
            sources.append(TomlConfigSettingsSource(settings_cls, toml_file=toml_file))
        return tuple(sources)


__all__ = ["EnvSettingsSource", "InitSettingsSource", "SecretsSettingsSource", "Settings", "ValidationError", "os", "ConfigurationError"]
