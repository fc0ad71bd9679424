"""Where settings come from, read into one flat shape: path of a setting → what was given, and by whom.

Edge. Reads one TOML file, one folder of credentials and the environment; knows nothing of what a setting
means. Every value carries its origin, so that a message can say which line of which place to change. A value
from the credentials directory is never shown.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from daemon.errors import ConfigurationError
from daemon.redact import scrub_text

PREFIX = "BULKHEAD_"
#: Between the section and the name, in variables and names of credentials.
SEPARATOR = "__"
#: Names the TOML file, so it is no setting.
CONFIG_VARIABLE = "BULKHEAD_CONFIG"
#: A settings file or credential beyond this was named by mistake.
MAX_FILE_BYTES = 2**20

#: `("drain_s",)` or `("queue", "wait_s")`.
Name = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value as it was found."""

    value: Any
    #: For a message: "variable BULKHEAD_QUEUE__URL", "/etc/bulkhead/bulkhead.toml".
    origin: str
    #: Never show the value.
    secret: bool = False


def from_toml(file: Path) -> dict[Name, Given]:
    """Every value of `file`. Raises ConfigurationError when it is missing, unreadable or no TOML."""
    try:
        table = tomllib.loads(_read(file))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"cannot read the settings: {file} is not TOML: {error}; correct that line") from error
    return {name: Given(value=value, origin=str(file)) for name, value in _flat(table)}


def from_credentials(directory: Path, sections: Iterable[str]) -> dict[Name, Given]:
    """Files named after a setting, for instance `sentry__dsn`; their trailing line end is no part of the value.

    The folder is systemd's and may hold other programs' credentials, so a file that names none of our
    `sections` is left alone. Raises ConfigurationError when the folder or a file cannot be read.
    """
    try:
        files = sorted(directory.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the settings: $CREDENTIALS_DIRECTORY is {directory}: {error.strerror}; unset it or correct it"
        ) from error
    ours = frozenset(sections)
    found: dict[Name, Given] = {}
    for file in files:
        name = tuple(file.name.lower().split(SEPARATOR))
        if len(name) > 1 and name[0] in ours:
            found[name] = Given(value=_read(file).rstrip("\r\n"), origin=f"credential {file.name}", secret=True)
    return found


def from_environment(environ: Mapping[str, str]) -> dict[Name, Given]:
    """Every `BULKHEAD_…` but the one that names the file."""
    return {
        tuple(variable.removeprefix(PREFIX).lower().split(SEPARATOR)): Given(value=text, origin=f"variable {variable}")
        for variable, text in sorted(environ.items())
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE
    }


def from_code(values: Mapping[str, Any]) -> dict[Name, Given]:
    """A command's options: `queue__url=…` or `queue={"url": …}`; None means that the option was not given."""
    split = [
        ((*key.split(SEPARATOR), *rest), value)
        for key, given in values.items()
        for rest, value in (_flat(given) if isinstance(given, Mapping) else [((), given)])
    ]
    return {name: Given(value=value, origin="the command line") for name, value in split if value is not None}


def unknown(given: Mapping[Name, Given], known: Iterable[Name]) -> list[str]:
    """One sentence per name that is no setting, with the likeliest one that is."""
    names = {".".join(name): name for name in known}
    problems = []
    for name, found in given.items():
        dotted = ".".join(name)
        if dotted not in names:
            near = get_close_matches(dotted, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "docs/reference.md lists them all"
            problems.append(f"{dotted} ({found.origin}) is no setting; {hint}")
    return problems


def nested(given: Mapping[Name, Given]) -> dict[str, Any]:
    """Values only, in the shape of the settings' model."""
    shaped: dict[str, Any] = {}
    for name, found in given.items():
        *sections, last = name
        place = shaped
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = found.value
    return shaped


def refusal(problems: Iterable[str]) -> ConfigurationError:
    """One error for all problems, one line each."""
    return ConfigurationError("cannot read the settings: " + "\n  ".join(problems))


def explained(
    error: ValidationError, given: Mapping[Name, Given], known: Mapping[Name, str], secrets: frozenset[Name]
) -> list[str]:
    """Pydantic's findings as sentences: which setting, from where, what it must be, and what it is for."""
    reasons: dict[Name, list[str]] = {}
    for finding in error.errors(include_url=False, include_context=False):
        path = tuple(str(part) for part in finding["loc"])
        name = next((path[:length] for length in (2, 1) if path[:length] in known), ())
        reason = finding["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        reasons.setdefault(name, []).append(reason)
    sentences = []
    for name, why in reasons.items():
        found = given.get(name)
        if found is None:
            sentences.extend(why)
            continue
        shown = "" if found.secret or name in secrets else f" is {scrub_text(repr(found.value), limit=100)}"
        sentences.append(f"{'.'.join(name)} ({found.origin}){shown}: {' or '.join(why)}. It means: {known[name]}")
    return sentences


def _flat(table: Mapping[str, Any]) -> list[tuple[Name, Any]]:
    """One level of sections unfolded; a deeper table stays a value, and is refused as one."""
    pairs: list[tuple[Name, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs.extend(((key, inner), deep) for inner, deep in value.items())
        else:
            pairs.append(((key,), value))
    return pairs


def _read(file: Path) -> str:
    """The text of a small file. Raises ConfigurationError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigurationError(
                f"cannot read the settings: {file} has more than {MAX_FILE_BYTES} bytes; is it the right file?"
            )
        return data.decode("utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the settings: {file}: {error.strerror}; create it, or let this user read it"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"cannot read the settings: {file} is not UTF-8; save it as UTF-8") from error
