"""Settings: which place wins, and what a person reads when something is wrong."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from daemon import config
from daemon.config import Settings, load
from daemon.errors import ConfigurationError, ExitStatus

SOURCES = Path(__file__).parents[2] / "daemon"


@pytest.fixture(autouse=True)
def _no_default_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine's own settings have no say here."""
    monkeypatch.setattr(config, "DEFAULT_FILE", tmp_path / "absent.toml")


def toml(tmp_path: Path, text: str) -> Path:
    """A settings file."""
    file = tmp_path / "bulkhead.toml"
    file.write_text(text, encoding="utf-8")
    return file


def credentials(tmp_path: Path, **files: str) -> str:
    """A credentials directory, as systemd makes it."""
    directory = tmp_path / "credentials"
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return str(directory)


def refusal(config_file: Path | None = None, *, environ: dict[str, str] | None = None, **overrides: Any) -> str:
    """The message of a refused load."""
    with pytest.raises(ConfigurationError) as caught:
        load(config_file, environ=environ or {}, **overrides)
    assert caught.value.status is ExitStatus.CONFIGURATION
    return str(caught.value)


def test_nothing_given_gives_the_defaults() -> None:
    """A host without any setting starts with what the reference says."""
    assert load(environ={}) == Settings()


@pytest.mark.parametrize(
    ("strongest", "expected"),
    [("toml", 1), ("credential", 2), ("variable", 3), ("code", 4)],
)
def test_the_stronger_place_wins(tmp_path: Path, strongest: str, expected: int) -> None:
    """TOML, credentials, environment, command line: each beats all before it."""
    places = ("toml", "credential", "variable", "code")
    given = places[: places.index(strongest) + 1]
    environ = {}
    if "credential" in given:
        environ["CREDENTIALS_DIRECTORY"] = credentials(tmp_path, queue__wait_s="2\n")
    if "variable" in given:
        environ["BULKHEAD_QUEUE__WAIT_S"] = "3"
    overrides: dict[str, Any] = {"queue__wait_s": 4} if "code" in given else {}
    settings = load(toml(tmp_path, "[queue]\nwait_s = 1\n"), environ=environ, **overrides)
    assert settings.queue.wait_s == expected


def test_places_complement_each_other_within_a_section(tmp_path: Path) -> None:
    """One variable must not wipe out the rest of its section."""
    file = toml(tmp_path, 'drain_s = 3\n[queue]\nurl = "https://sqs.example/1/q"\nwait_s = 5\n')
    settings = load(file, environ={"BULKHEAD_QUEUE__WAIT_S": "6", "BULKHEAD_WORKERS": "auto"})
    assert (settings.queue.url, settings.queue.wait_s, settings.drain_s) == ("https://sqs.example/1/q", 6, 3)


def test_option_that_was_not_given_changes_nothing() -> None:
    """A command passes all its options on; None is no value."""
    assert load(environ={}, workers=None, store={"url": "/out"}).store.url == "/out"


def test_default_of_a_command_is_weaker_than_any_place(tmp_path: Path) -> None:
    """`convert` may be quiet by itself, and must not overrule an operator."""
    quiet = {"log__level": "error"}
    assert load(environ={}, defaults=quiet).log.level == "error"
    assert load(toml(tmp_path, '[log]\nlevel = "debug"\n'), environ={}, defaults=quiet).log.level == "debug"


def test_file_named_by_the_environment(tmp_path: Path) -> None:
    """BULKHEAD_CONFIG names the file, and is no setting itself."""
    file = toml(tmp_path, "workers = 3\n")
    assert load(environ={"BULKHEAD_CONFIG": str(file)}).workers == 3


def test_default_file_is_read_when_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installed host needs no option."""
    monkeypatch.setattr(config, "DEFAULT_FILE", toml(tmp_path, "workers = 3\n"))
    assert load(environ={}).workers == 3


def test_named_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    """A typing error in the file's name must not start a daemon with defaults."""
    assert "nowhere.toml: No such file" in refusal(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("text", ["a = \n", "[queue\n"])
def test_file_that_is_no_toml_names_the_line(tmp_path: Path, text: str) -> None:
    """The operator is told where to look."""
    assert "line 1" in refusal(toml(tmp_path, text))


def test_unknown_names_are_refused_with_the_likely_one(tmp_path: Path) -> None:
    """A misspelt setting must not be ignored, wherever it stands, and all are named at once."""
    file = toml(tmp_path, "[queue]\nwiat_s = 1\n[chidl]\nlinger_s = 1\n")
    directory = credentials(tmp_path, sentry__dns="x", other__keys="another program's")
    message = refusal(file, environ={"BULKHEAD_WORKER": "2", "CREDENTIALS_DIRECTORY": directory}, stroe__url="/x")
    assert f"queue.wiat_s ({file}) is no setting; did you mean queue.wait_s?" in message
    assert "chidl.linger_s" in message
    assert "worker (variable BULKHEAD_WORKER) is no setting; did you mean workers?" in message
    assert "sentry.dns (credential sentry__dns)" in message
    assert "stroe.url (the command line)" in message
    assert "other" not in message


def test_value_out_of_range_names_setting_place_value_and_meaning() -> None:
    """The message is a sentence for a person, not a validator's dump."""
    message = refusal(environ={"BULKHEAD_QUEUE__WAIT_S": "30"})
    assert message == (
        "cannot read the settings: queue.wait_s (variable BULKHEAD_QUEUE__WAIT_S) is '30': must be less than or equal "
        "to 20. It means: Long polling; SQS allows 20 s at most."
    )


def test_all_wrong_values_are_named_at_once() -> None:
    """An operator should need one round, not five."""
    message = refusal(environ={"BULKHEAD_WORKERS": "many", "BULKHEAD_LOG__LEVEL": "loud"})
    assert "workers (variable BULKHEAD_WORKERS) is 'many'" in message
    assert "log.level (variable BULKHEAD_LOG__LEVEL) is 'loud'" in message


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("QUEUE__URL", "arn:aws:sqs:eu-west-1:1:q", "not its ARN"),
        ("QUEUE__ENDPOINT_URL", "localhost:5000", "must be a URL"),
        ("STORE__URL", "https://bucket.s3.amazonaws.com", "s3://BUCKET/PREFIX"),
        ("STORE__URL", "s3:/bucket", "s3://BUCKET/PREFIX"),
        ("FETCH__FILE_ROOTS", "relative/folder", "absolute"),
        ("FETCH__MAX_BYTES", "256", "greater than or equal to 1024"),
        ("CHILD__DOCUMENT_TIMEOUT_S", "900000", "less than or equal to 86400"),
        ("CHILD__DOCUMENT_TIMEOUT_S", "43200", "below 11 h"),
        ("CHILD__MEMORY_BYTES", "2048", "greater than or equal to 536870912"),
        ("DRAIN_S", "30000", "less than or equal to 3600"),
        ("FETCH__FILE_ROOTS", "[oops", "as JSON"),
    ],
)
def test_implausible_unit_or_kind_is_refused(variable: str, text: str, said: str) -> None:
    """Milliseconds for seconds, MiB for bytes, an ARN for a URL: caught before the first document."""
    assert said in refusal(environ={f"BULKHEAD_{variable}": text})


def test_same_queue_twice_is_refused() -> None:
    """A dead letter in its own queue would go round for ever."""
    url = "https://sqs.example/1/q"
    assert "same queue" in refusal(environ={"BULKHEAD_QUEUE__URL": url, "BULKHEAD_QUEUE__DEAD_LETTER_URL": url})


@pytest.mark.parametrize("text", ["/a,/b", '["/a", "/b"]', " /a , /b "])
def test_list_in_a_variable(text: str) -> None:
    """A list can be written in one line, with commas or as JSON."""
    assert load(environ={"BULKHEAD_FETCH__FILE_ROOTS": text}).fetch.file_roots == (Path("/a"), Path("/b"))


def test_empty_variable_takes_back_what_the_file_sets(tmp_path: Path) -> None:
    """Turning something off for one run must not need another file."""
    file = toml(tmp_path, '[queue]\nregion = "eu-west-1"\n[sentry]\ndsn = "https://k@sentry.example/1"\n')
    settings = load(file, environ={"BULKHEAD_QUEUE__REGION": "", "BULKHEAD_SENTRY__DSN": ""})
    assert settings.queue.region is None
    assert settings.sentry.dsn.get_secret_value() == ""


def test_line_end_of_a_credential_is_no_part_of_it(tmp_path: Path) -> None:
    """Whoever writes the file with an editor must not need to think of its last byte."""
    directory = credentials(tmp_path, sentry__dsn="https://k@sentry.example/1\n", store__url="/results\n")
    settings = load(environ={"CREDENTIALS_DIRECTORY": directory})
    assert settings.sentry.dsn.get_secret_value() == "https://k@sentry.example/1"
    assert settings.store.url == "/results"


@pytest.mark.parametrize("place", ["variable", "credential"])
def test_credential_is_never_shown(tmp_path: Path, place: str) -> None:
    """A refused start is logged; the secret that was mistyped must not be in it."""
    if place == "variable":
        message = refusal(environ={"BULKHEAD_SENTRY__DSN": "canary"})
    else:
        directory = credentials(tmp_path, sentry__dsn="canary", queue__wait_s="canary")
        message = refusal(environ={"CREDENTIALS_DIRECTORY": directory})
    assert "sentry.dsn" in message
    assert "canary" not in message
    assert "canary@" not in repr(load(environ={}, sentry__dsn="https://canary@sentry.example/1"))


@pytest.mark.parametrize(("mode", "said"), [(0o644, True), (0o640, False)])
def test_credential_in_a_file_that_all_can_read_is_said(tmp_path: Path, mode: int, said: bool) -> None:  # noqa: FBT001
    """It works, and the operator is told."""
    file = toml(tmp_path, '[sentry]\ndsn = "https://k@sentry.example/1"\n')
    file.chmod(mode)
    assert any("chmod o-r" in note for note in load(file, environ={}).notes) is said


def test_failpoints_without_permission_are_a_refused_start() -> None:
    """A variable left over from a drill must not kill production."""
    assert "allow_failpoints is not" in refusal(environ={"BULKHEAD_FAILPOINTS": "child.ocr=segv"})
    drill = {"BULKHEAD_FAILPOINTS": "child.ocr=segv", "BULKHEAD_ALLOW_FAILPOINTS": "true"}
    assert load(environ=drill).failpoints == "child.ocr=segv"
    assert any("allow_failpoints is on" in note for note in load(environ=drill).notes)


@pytest.mark.parametrize(
    ("threads", "start", "said"), [("1", "zygote", False), ("2", "zygote", True), ("2", "spawn", False)]
)
def test_threads_that_forbid_forking_are_said(threads: str, start: str, said: bool) -> None:  # noqa: FBT001
    """Whoever asks for threads must not find out from the figures that every child is spawned."""
    notes = load(environ={"BULKHEAD_THREADS": threads, "BULKHEAD_CHILD__START": start}).notes
    assert any("each child is spawned" in note for note in notes) is said


def test_missing_setting_names_all_ways_to_set_it() -> None:
    """`run` without a queue must say what to write, and where."""
    settings = load(environ={}, queue__url="https://sqs.example/1/q")
    with pytest.raises(ConfigurationError, match=r"store\.url must be set.*BULKHEAD_STORE__URL"):
        settings.require("queue.url", "store.url", command="bulkhead run")
    settings.require("queue.url", command="bulkhead run")


def test_every_setting_is_documented() -> None:
    """The reference is made from these lines, so none may be missing."""
    assert [name for name, line in config.fields().items() if not line] == []


def test_settings_are_read_nowhere_else() -> None:
    """A module that reads `BULKHEAD_…` by itself would have a setting that no reference lists."""
    readers = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript):
                asked, names = node.value, [node.slice]
            elif isinstance(node, ast.Call):
                asked, names = node.func, node.args
            else:
                continue
            reads = any(word in ast.unparse(asked) for word in ("environ", "getenv"))
            if reads and any("BULKHEAD_" in ast.unparse(name) for name in names):
                readers.add(path.name)
    assert readers <= {"config.py", "config_sources.py"}


def test_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """`load()` reads this process's variables."""
    for variable in [name for name in os.environ if name.startswith("BULKHEAD_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("BULKHEAD_WORKERS", "7")
    assert load().workers == 7
