"""The systemd units say the same as the code, are understood by systemd, and are as closed as they claim."""

from __future__ import annotations

import pwd
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from daemon import config, errors
from daemon.config import Settings
from daemon.config_sources import SEPARATOR
from daemon.killswitch import LAST_WORDS_S
from daemon.notify import Service

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
DAEMON, SWEEP = UNITS / "bulkhead.service", UNITS / "bulkhead-sweep.service"
EVERY_UNIT = sorted(path.name for path in UNITS.iterdir() if path.suffix in {".service", ".timer", ".slice"})
DROP_INS = sorted((UNITS / "bulkhead.service.d").iterdir())
#: What the best unit that still converted scored, in tenths; delegation costs two of them (see the drop-in).
EXPOSURE, EXPOSURE_DELEGATED = 12, 14


def directives(path: Path) -> dict[str, list[str]]:
    """Every directive's values, in their order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def seconds(text: str) -> float:
    """A time span of one unit, as the units here write them."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|min|)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"ms": 0.001, "s": 1, "": 1, "min": 60}[unit]


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    """The daemon's directives."""
    return directives(DAEMON)


def test_what_a_restart_does_not_cure_is_not_restarted(unit: dict[str, list[str]]) -> None:
    """Every status of the operator's errors but "already running", which ends by itself, and that of usage."""
    refused = {int(kind.status) for kind in errors.OperatorError.__subclasses__()} | {int(errors.ExitStatus.USAGE)}
    refused -= {int(errors.ExitStatus.ALREADY_RUNNING)}
    assert {int(word) for word in unit["RestartPreventExitStatus"][0].split()} == refused


def test_everything_else_is_restarted_for_ever_and_soon(unit: dict[str, list[str]]) -> None:
    """A start limit ends in silence, and a long pause is time in which nothing is received."""
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]
    assert seconds(unit["RestartSec"][0]) <= 1


def test_a_drain_ends_before_systemd_loses_patience(unit: dict[str, list[str]]) -> None:
    """Documents in flight get `drain_s`, slots their last words, and only then would systemd shoot."""
    longest_s = Settings().drain_s + LAST_WORDS_S
    assert seconds(unit["TimeoutStopSec"][0]) > longest_s + 5


def test_the_children_do_not_die_first(unit: dict[str, list[str]]) -> None:
    """The defaults of systemd signal the whole group, and stop for one greedy child."""
    assert unit["KillMode"] == ["mixed"]
    assert unit["OOMPolicy"] == ["continue"]


def test_only_the_daemon_speaks_for_the_daemon(unit: dict[str, list[str]]) -> None:
    """READY is the daemon's word, and its watchdog leaves room for two missed turns of a busy machine."""
    assert unit["Type"] == ["notify"]
    assert unit["NotifyAccess"] == ["main"]
    environ = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": str(int(seconds(unit["WatchdogSec"][0]) * 1e6))}
    watchdog_s = Service.from_environment(environ).watchdog_s
    assert watchdog_s is not None
    assert watchdog_s >= 30


def test_both_services_are_closed_alike() -> None:
    """The sweep reads the same queue and ledger; a directive that only one has is one that was forgotten."""
    daemon, sweep = directives(DAEMON), directives(SWEEP)
    protecting = re.compile(
        r"(Protect|Private|Restrict|SystemCall|Capab|Ambient|NoNew|NoExec|Exec.*Paths|Lock|Memory|Device|Keyr)"
    )
    own = {"RestartPreventExitStatus"}
    names = {name for name in {*daemon, *sweep} if protecting.match(name)} - own
    assert len(names) > 25
    names |= {"LoadCredential", "SetCredential", "User", "Slice", "StateDirectory", "UMask", "LimitCORE", "RemoveIPC"}
    assert {name: daemon.get(name) for name in names} == {name: sweep.get(name) for name in names}


def test_secrets_come_as_credentials(unit: dict[str, list[str]]) -> None:
    """Each secret of the settings has a file that root alone reads; one that is missing is an empty value."""
    given = {line.split(":")[0]: line.split(":")[1] for line in unit["LoadCredential"]}
    for name in config.SECRETS:
        assert given[SEPARATOR.join(name)].endswith(f"/{SEPARATOR.join(name)}")
    assert {line.split(":")[0] for line in unit["SetCredential"]} == set(given)


def test_every_drop_in_says_where_it_belongs() -> None:
    """A deployment chooses by the name alone: a version of systemd, or cgroup v2."""
    assert DROP_INS
    for path in DROP_INS:
        assert re.fullmatch(r"(\d{3}|cgroup2)-[a-z-]+\.conf", path.name)


@pytest.fixture(scope="module")
def analyze() -> str:
    """The program, or a reason to skip."""
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not on this machine: what the units come to is not checked")
    return found


def version(analyze: str) -> int:
    """Of this machine's systemd."""
    told = subprocess.run([analyze, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    return int(told.split()[1])


@pytest.fixture
def laid_out(tmp_path: Path) -> Path:
    """The units in a folder of their own, with a program and a user that this machine has."""
    user = next(entry.pw_name for entry in pwd.getpwall() if 0 < entry.pw_uid < 1000)
    for name in EVERY_UNIT:
        text = (UNITS / name).read_text(encoding="utf-8").replace("/opt/bulkhead/current/bin/bulkhead", "/bin/true")
        (tmp_path / name).write_text(text.replace("User=bulkhead", f"User={user}"), encoding="utf-8")
    return tmp_path


def with_drop_ins(folder: Path, *paths: Path) -> None:
    """Install drop-ins for the daemon."""
    target = folder / "bulkhead.service.d"
    target.mkdir()
    for path in paths:
        shutil.copy(path, target)


@pytest.mark.parametrize("name", EVERY_UNIT)
def test_systemd_reads_it(laid_out: Path, analyze: str, name: str) -> None:
    """`systemd-analyze verify` says nothing: it leaves with 0 for a key that it does not know, so any word counts."""
    known = [path for path in DROP_INS if not path.name[0].isdecimal() or int(path.name[:3]) <= version(analyze)]
    with_drop_ins(laid_out, *known)
    result = subprocess.run(
        [analyze, "verify", "--man=no", str(laid_out / name)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")


def security(analyze: str, path: Path, tenths: int) -> subprocess.CompletedProcess[str]:
    """`systemd-analyze security`: fails when the unit is more exposed than that; its output is the table."""
    command = [analyze, "security", "--offline=true", f"--threshold={tenths}", "--no-pager", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", [DAEMON.name, SWEEP.name])
def test_it_is_exposed_no_more_than_it_must_be(laid_out: Path, analyze: str, name: str) -> None:
    """1.2 of 10, where 10 is a service without any of this; a failing test shows the table."""
    result = security(analyze, laid_out / name, EXPOSURE)
    assert result.returncode == 0, result.stdout


def test_delegation_costs_no_more_than_it_says(laid_out: Path, analyze: str) -> None:
    """Where children have cgroups, the cgroup tree cannot be read-only; nothing else opens with it."""
    with_drop_ins(laid_out, *(path for path in DROP_INS if path.name.startswith("cgroup2")))
    result = security(analyze, laid_out / DAEMON.name, EXPOSURE_DELEGATED)
    assert result.returncode == 0, result.stdout
    assert security(analyze, laid_out / DAEMON.name, EXPOSURE).returncode != 0, "the drop-in is not read"
