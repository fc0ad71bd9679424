"""The Ansible role's files agree with each other and with the daemon; `make test-deploy` tries the role itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from daemon.config import fields, load

ROLE = Path(__file__).parents[2] / "deploy" / "ansible" / "roles" / "bulkhead"


def parsed(name: str) -> dict[str, Any]:
    """One YAML file of the role."""
    content = yaml.safe_load((ROLE / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def toml(settings: dict[str, Any]) -> str:
    """What the role writes for these settings."""
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)  # noqa: S701 - TOML, as Ansible renders it
    environment.filters["to_json"] = json.dumps
    template = environment.from_string((ROLE / "templates" / "bulkhead.toml.j2").read_text(encoding="utf-8"))
    return template.render(bulkhead_all_settings=settings)


def test_every_variable_is_specified_and_has_a_default_or_is_required() -> None:
    """A variable that is in one file only is ignored, or fails half-way through a play."""
    options = parsed("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    required = {name for name, given in options.items() if given.get("required")}
    assert set(options) == set(parsed("defaults/main.yml")) | required
    assert required & set(parsed("defaults/main.yml")) == set()


def test_every_secret_is_kept_out_of_the_log() -> None:
    """Ansible shows the arguments of a role, unless they are declared as secrets."""
    options = parsed("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    secrets = {name for name in options if re.search("dsn|secret|access_key|credentials|index_url", name)}
    assert secrets == {name for name, given in options.items() if given.get("no_log")}
    assert len(secrets) == 5


def test_named_variables_are_settings() -> None:
    """A setting that was renamed must not be found out by the first deployment."""
    named = parsed("vars/main.yml")["bulkhead_named_settings"]
    written: set[tuple[str, ...]] = {(name,) for name, given in named.items() if not isinstance(given, dict)}
    written |= {(section, name) for section, given in named.items() if isinstance(given, dict) for name in given}
    assert written <= set(fields())


@pytest.mark.parametrize("text", ['say "ho"', "a\\b", "Größe 😀", "line\nbreak", "# no comment", "{{ x }}", ""])
def test_any_text_comes_through(tmp_path: Path, text: str) -> None:
    """Whatever an inventory holds is one value of the settings, and never another line of them."""
    file = tmp_path / "bulkhead.toml"
    file.write_text(toml({"workers": 2, "sentry": {"environment": text}}), encoding="utf-8")
    settings = load(file, environ={})
    assert (settings.workers, settings.sentry.environment) == (2, text)


def test_lists_flags_and_what_is_left_out(tmp_path: Path) -> None:
    """Each kind of value that a setting can have; a null takes nothing's place."""
    file = tmp_path / "bulkhead.toml"
    given = {
        "allow_failpoints": True,
        "drain_s": 2.5,
        "child": {"memory_bytes": None, "stall_s": 60},
        "fetch": {"file_roots": ["/srv/a", "/srv/b"]},
    }
    file.write_text(toml(given), encoding="utf-8")
    settings = load(file, environ={})
    assert (settings.allow_failpoints, settings.drain_s, settings.child.stall_s) == (True, 2.5, 60.0)
    assert [str(path) for path in settings.fetch.file_roots] == ["/srv/a", "/srv/b"]
    assert settings.child.memory_bytes is None
