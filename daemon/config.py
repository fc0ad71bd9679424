"""All settings, from one TOML file, `BULKHEAD_…` in the environment, and the credentials directory.

Edge. Read once, at the start of a command, and passed in; nothing else reads the environment. In order
of strength: a value given in code (a command's options), the environment (`BULKHEAD_QUEUE__URL`), files
in `$CREDENTIALS_DIRECTORY` (`queue__url`), the TOML file, the default. Unknown names are refused. Suffixes
carry units: `_s` seconds, `_bytes`, `_px` pixels.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from daemon import config_sources as sources
from daemon.config_engine import ChildSettings, EngineSettings
from daemon.config_queue import QueueSettings, RetrySettings
from daemon.config_recovery import HostSettings, MetricsSettings, NoticesSettings, SentrySettings, SweepSettings
from daemon.config_section import Section
from daemon.config_values import (
    BucketUrl,
    Bytes,
    Endpoint,
    OptionalText,
    Paths,
    Seconds,
    StoreUrl,
)
from daemon.errors import ConfigurationError

#: Read when neither `--config` nor `BULKHEAD_CONFIG` names another, and only if it exists.
DEFAULT_FILE = Path("/etc/bulkhead/bulkhead.toml")
#: Settings whose value is a credential.
SECRETS = frozenset({("sentry", "dsn")})


class StoreSettings(Section):
    """Where results go."""

    url: StoreUrl = ""
    """`s3://bucket/prefix` or a directory. Required by `run`."""
    region: OptionalText = None
    """AWS region of the bucket; the SDK's own choice when unset."""
    endpoint_url: Endpoint = None
    """Another S3 endpoint; also used to fetch `s3://` sources."""
    checkpoints_url: BucketUrl = ""
    """`s3://bucket/prefix` for finished pages, so that another host can go on; unset: below `state_dir`."""


class LedgerSettings(Section):
    """Where is written down what happened to each document."""

    table: Annotated[str, Field(pattern=r"^([A-Za-z0-9_.-]{3,255})?$")] = ""
    """DynamoDB table that all hosts share; unset: a file in `state_dir`, for one host."""
    region: OptionalText = None
    """AWS region of the table; the SDK's own choice when unset."""
    endpoint_url: Endpoint = None
    """Another DynamoDB endpoint, for instance an emulator on loopback."""
    retry_for_s: Seconds = 10.0
    """How long one call to the table is retried, with jitter, before the world is called unavailable."""
    keep_days: Annotated[int, Field(ge=0, le=36_500)] = 365
    """How long the table keeps what was published or dropped, at least 15 days; 0: for ever. What failed stays."""


class FetchSettings(Section):
    """What may be fetched."""

    max_bytes: Bytes = 256 * 2**20
    """A larger document is dead-lettered as `too_large`."""
    timeout_s: Seconds = 120.0
    """Deadline of one fetch, redirects included."""
    ahead_bytes: Annotated[int, Field(ge=0)] = 256 * 2**20
    """What may be fetched for documents that wait for a worker, all together; 0: nothing before its turn."""
    file_roots: Paths = ()
    """Folders below which `file://` is allowed; none by default."""
    allow_private_addresses: bool = False
    """Let `https://` sources be on private, loopback and link-local addresses."""
    allow_http: bool = False
    """Let sources be plain `http://`."""


class LogSettings(Section):
    """Logs, always on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
    format: Literal["auto", "json", "console"] = "auto"
    """`auto`: readable on a terminal, JSON lines elsewhere."""


class Settings(Section):
    """Everything that an operator may set."""

    state_dir: Path = Path("/var/lib/bulkhead")
    """The ledger, the instance lock and scratch folders lie here."""
    workers: Literal["auto"] | Annotated[int, Field(ge=1, le=1_024)] = "auto"
    """Documents converted at the same time; clamped to the CPUs that this process may use."""
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    """Threads of one child's inference; times workers never exceeds the CPUs. Above 1 each child is spawned."""
    ahead: Annotated[int, Field(ge=0, le=64)] = 1
    """Messages received before a worker is free: none idles while a result is stored, or the next document comes."""
    drain_s: Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)] = 8.0
    """How long documents in flight may go on after SIGTERM; then they are killed and their messages released."""
    allow_failpoints: bool = False
    """Let `BULKHEAD_FAILPOINTS` kill children and this process on purpose. For tests and drills."""
    failpoints: str = ""
    """`POINT[@SELECTOR]=ACTION;…`; refused unless `allow_failpoints`."""

    queue: QueueSettings = QueueSettings()
    store: StoreSettings = StoreSettings()
    ledger: LedgerSettings = LedgerSettings()
    fetch: FetchSettings = FetchSettings()
    child: ChildSettings = ChildSettings()
    engine: EngineSettings = EngineSettings()
    retry: RetrySettings = RetrySettings()
    host: HostSettings = HostSettings()
    notices: NoticesSettings = NoticesSettings()
    sweep: SweepSettings = SweepSettings()
    sentry: SentrySettings = SentrySettings()
    metrics: MetricsSettings = MetricsSettings()
    log: LogSettings = LogSettings()

    _notes: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Refuse combinations that can only end badly."""
        if self.failpoints and not self.allow_failpoints:
            message = (
                "BULKHEAD_FAILPOINTS is set, and allow_failpoints is not: this process would kill itself. "
                "Unset the variable, or set BULKHEAD_ALLOW_FAILPOINTS=true for a drill."
            )
            raise ValueError(message)
        if max(self.child.document_timeout_s, self.child.longest_document_timeout_s) > 11 * 3600:
            message = (
                "child.document_timeout_s and child.longest_document_timeout_s must stay below 11 h: "
                "SQS hides a message for 12 h at most"
            )
            raise ValueError(message)
        if self.queue.url and self.queue.url == self.queue.dead_letter_url:
            message = "queue.url and queue.dead_letter_url are the same queue: a dead letter would come back for ever"
            raise ValueError(message)
        if 0 < self.ledger.keep_days < 15:  # noqa: PLR2004 - said in the message
            message = (
                "ledger.keep_days must be 0 (for ever) or 15 and more: SQS may deliver a message again after 14 days"
            )
            raise ValueError(message)
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What is allowed and looks like a mistake, one sentence each; the command logs them as `settings.finding`."""
        return self._notes

    def require(self, *names: str, command: str) -> None:
        """Raise ConfigurationError unless every setting of `names` (`queue.url`) has a value."""
        missing = [name for name in names if not self._value(name)]
        if missing:
            variables = ", ".join(f"{sources.PREFIX}{name.upper().replace('.', sources.SEPARATOR)}" for name in missing)
            raise ConfigurationError(
                f"cannot start `{command}`: {' and '.join(missing)} must be set; in the TOML file, or as {variables}"
            )

    def _value(self, name: str) -> Any:
        """The value of a dotted name; a name that is no setting is a bug."""
        value: Any = self
        for part in name.split("."):
            value = getattr(value, part)
        return value


def load(
    config: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Settings:
    """Read all settings once; `overrides` (`queue__url=…`; None: not given) are the strongest.

    `defaults`, written alike, are a command's own and the weakest. `config` or `BULKHEAD_CONFIG` must exist when
    named. Raises ConfigurationError with every problem found, each with the place that it comes from and what to do.
    """
    env = os.environ if environ is None else environ
    known = fields()
    file = _file(config, env)
    in_file = sources.from_toml(file) if file else {}
    read = [sources.from_code(defaults or {}), in_file]
    if env.get("CREDENTIALS_DIRECTORY"):
        sections = {name[0] for name in known if len(name) > 1}
        read.append(sources.from_credentials(Path(env["CREDENTIALS_DIRECTORY"]), sections))
    read += [sources.from_environment(env), sources.from_code(overrides)]
    given: dict[sources.Name, sources.Given] = {}
    problems: list[str] = []
    for source in read:
        problems += sources.unknown(source, known)
        given |= source
    if problems:
        raise sources.refusal(problems)
    try:
        settings = Settings.model_validate(sources.nested(given))
    except ValidationError as error:
        raise sources.refusal(sources.explained(error, given, known, SECRETS)) from None
    settings._notes = _findings(settings, file, in_file)  # noqa: SLF001  (set once, here)
    return settings


def fields() -> dict[sources.Name, str]:
    """Every setting's path, with its documentation."""
    found: dict[sources.Name, str] = {}
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= {(name, inner): deep.description or "" for inner, deep in kind.model_fields.items()}
        else:
            found[(name,)] = field.description or ""
    return found


def _file(config: Path | None, env: Mapping[str, str]) -> Path | None:
    """The TOML file: named, or the default one if it is there."""
    named = config or (Path(env[sources.CONFIG_VARIABLE]) if env.get(sources.CONFIG_VARIABLE) else None)
    return named or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def _findings(settings: Settings, file: Path | None, in_file: Mapping[sources.Name, sources.Given]) -> tuple[str, ...]:
    """What is allowed and looks like a mistake."""
    notes = []
    if file and SECRETS & in_file.keys() and file.stat().st_mode & stat.S_IROTH:
        notes.append(f"{file} holds a credential and everyone on this host can read it: chmod o-r {file}")
    if settings.allow_failpoints:
        notes.append("allow_failpoints is on: whoever sets BULKHEAD_FAILPOINTS can kill this process on purpose")
    if settings.child.sandbox == "off":
        notes.append("child.sandbox is off: a hostile document can do whatever the user of this daemon can")
    if settings.threads > 1 and settings.child.start == "zygote":
        notes.append(
            f"threads is {settings.threads}: a process with more than one must not be forked, so each child is spawned "
            "and loads the engine anew, seconds slower; `bulkhead calibrate` shows whether that pays here"
        )
    if settings.child.document_timeout_s < settings.child.linger_s:
        notes.append(
            "child.document_timeout_s is shorter than child.linger_s: seconds are meant, and documents will time out"
        )
    return tuple(notes)
