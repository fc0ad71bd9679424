"""`bulkhead convert` as a person runs it: files in, a folder out, nothing of it remembered elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.errors import ExitStatus
from tests.system.daemon_process import NET_S, alive, processes_below

pytestmark = [pytest.mark.engine, pytest.mark.process]


def clean_environment(**settings: str) -> dict[str, str]:
    """The machine's environment without anything of ours but `settings`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BULKHEAD_", "AWS_"))}
    return kept | {f"BULKHEAD_{name}": value for name, value in settings.items()}


def bulkhead(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "daemon", *map(str, arguments)],
        env=clean_environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NET_S,
        check=False,
    )


def lines(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """`--json`: every line of stdout is one object."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_folder(samples: Path, tmp_path: Path) -> None:
    """Good and bad together: each has its line, in the order asked for, and 1 says that one of them failed."""
    names = ["letter.pdf", "five-pages.pdf", "encrypted.pdf", "table.pdf"]
    first = bulkhead("convert", *(samples / name for name in names), "--out", tmp_path / "out", "--json")
    assert first.returncode == ExitStatus.DOCUMENT_FAILED, first.stderr
    told = lines(first)
    assert [Path(line["path"]).name for line in told] == names
    assert [line["status"] for line in told] == ["converted", "converted", "failed", "converted"]
    assert [line["pages"] for line in told] == [1, 5, 0, 1]
    assert told[2]["cause"] == "encrypted"
    assert told[2]["markdown"] is None
    assert told[0]["children"] == 1
    assert told[0]["crashes"] == 0
    assert told[0]["peak_rss_bytes"] > 100 * 2**20
    assert "seven ships" in Path(told[0]["markdown"]).read_text(encoding="utf-8")

    again = bulkhead("convert", *(samples / name for name in names), "--out", tmp_path / "out", "--json")
    assert [line["skipped"] for line in lines(again)] == [True] * 4, "the same bytes are not converted again"
    assert [line["status"] for line in lines(again)] == [line["status"] for line in told]
    assert again.returncode == ExitStatus.DOCUMENT_FAILED


def test_what_changed_and_what_is_forced(samples: Path, tmp_path: Path) -> None:
    """New bytes under an old name are a new document; `--force` converts old ones again."""
    path = tmp_path / "in" / "paper.pdf"
    path.parent.mkdir()
    path.write_bytes((samples / "letter.pdf").read_bytes())
    (before,) = lines(bulkhead("convert", path, "--out", tmp_path / "out", "--json"))
    path.write_bytes((samples / "table.pdf").read_bytes())
    (changed,) = lines(bulkhead("convert", path.parent, "--out", tmp_path / "out", "--json"))
    assert changed["markdown"] != before["markdown"]
    assert "Copenhagen" in Path(changed["markdown"]).read_text(encoding="utf-8")
    made = Path(changed["markdown"]).stat().st_mtime_ns
    (forced,) = lines(bulkhead("convert", path, "--out", tmp_path / "out", "--json", "--force"))
    assert not forced["skipped"]
    assert forced["markdown"] == changed["markdown"]
    assert Path(forced["markdown"]).stat().st_mtime_ns > made


def test_a_killer_among_good_ones(samples: Path, tmp_path: Path) -> None:
    """One dies whatever is tried: every rung once, every cause told, the others untouched; `explain` knows it."""
    names = ["letter.pdf", "table.pdf", "accents.pdf"]
    result = bulkhead(
        "convert",
        *(samples / name for name in names),
        "--out",
        tmp_path / "out",
        "--json",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page@doc=table*=segv",
    )
    told = {Path(line["path"]).name: line for line in lines(result)}
    assert [told[name]["status"] for name in names] == ["converted", "failed", "converted"]
    assert told["table.pdf"]["crashes"] == 4
    assert told["table.pdf"]["cause_detail"].count("SIGSEGV") == 4
    story = bulkhead("explain", "table.pdf", "--state-dir", tmp_path / "out" / ".bulkhead", "--json")
    children = json.loads(story.stdout)["attempts"][0]["children"]
    assert [child["signal"] for child in children[:4]] == ["SIGSEGV"] * 4
    assert [child["mode"] for child in children[:4]] == ["full", "full", "text_only", "second_parser"]
    told_by_status = json.loads(bulkhead("status", "--state-dir", tmp_path / "out" / ".bulkhead", "--json").stdout)
    assert told_by_status["documents"]["failed"] == 1
    assert told_by_status["documents"]["converted"] == 2


def test_a_host_that_cannot_convert_anything(samples: Path, tmp_path: Path) -> None:
    """Its canary dies in a fresh zygote too: the command ends and says so, and no file is called bad."""
    result = bulkhead(
        "convert",
        samples / "letter.pdf",
        "--out",
        tmp_path / "out",
        "--json",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.start@doc=*=segv",
    )
    assert result.returncode == ExitStatus.ENGINE, result.stderr
    assert "cannot go on: cannot convert the canary" in result.stderr
    assert result.stdout == ""


def test_nobody_reads_any_more(samples: Path, tmp_path: Path) -> None:
    """`… --json | head -1`: the run ends instead of going on for nobody, and says nothing about it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "daemon", "convert", samples / "letter.pdf", "--out", tmp_path / "out", "--json"],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=NET_S) == 1  # as click leaves when its output is closed
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_the_same_file_twice(samples: Path, tmp_path: Path) -> None:
    """Two spellings of one file: it is converted once, and told for both."""
    same = samples / "." / ".." / samples.name / "letter.pdf"
    told = lines(bulkhead("convert", samples / "letter.pdf", same, "--out", tmp_path / "out", "--json"))
    assert [line["status"] for line in told] == ["converted", "converted"]
    assert len({line["markdown"] for line in told}) == 1


def test_a_hang_ends_at_the_deadline(samples: Path, tmp_path: Path) -> None:
    """A child that holds the GIL in native code is killed at the document's deadline, once."""
    result = bulkhead(
        "convert",
        samples / "letter.pdf",
        "--out",
        tmp_path / "out",
        "--json",
        "--timeout",
        "3",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page=hang",
    )
    (line,) = lines(result)
    assert (line["status"], line["cause"], line["children"]) == ("failed", "timeout", 1)


def test_interrupted(samples: Path, tmp_path: Path) -> None:
    """Ctrl+C: what is finished is told and kept, nothing is left running, and the next run goes on from there."""
    arguments: list[str | Path] = [
        "convert",
        samples / "letter.pdf",
        samples / "table.pdf",
        "--out",
        tmp_path / "out",
        "--json",
        "--workers",
        "1",
    ]
    # The bigger file goes first.
    first, last = sorted(("letter.pdf", "table.pdf"), key=lambda name: -(samples / name).stat().st_size)
    process = subprocess.Popen(
        [sys.executable, "-m", "daemon", *map(str, arguments)],
        env=clean_environment(
            ALLOW_FAILPOINTS="true", FAILPOINTS=f"child.page@doc={last}*=hang", LOG__LEVEL="debug", LOG__FORMAT="json"
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if '"child.started"' in line and last in line:
            break
    below = processes_below(process.pid)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=NET_S)
    assert process.returncode == ExitStatus.INTERRUPTED
    told = [json.loads(line) for line in out.splitlines()]
    assert {Path(line["path"]).name for line in told} <= {first}
    assert not any(alive(pid) for pid in below)
    rest = lines(bulkhead(*arguments))
    skipped = {Path(line["path"]).name: line["skipped"] for line in rest}
    assert skipped == {first: True, last: False}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("convert",), ExitStatus.USAGE, "Missing"),
        (("convert", "no-such-file.pdf", "--out", "OUT"), ExitStatus.CONFIGURATION, "no-such-file.pdf"),
        (("convert", "EMPTY", "--out", "OUT"), ExitStatus.CONFIGURATION, "anything to convert"),
        (("calibrate", "no-such-file.pdf"), ExitStatus.CONFIGURATION, "no-such-file.pdf"),
        (("calibrate", "EMPTY"), ExitStatus.CONFIGURATION, "anything to convert"),
        (("calibrate", "EMPTY", "--out", "EMPTY"), ExitStatus.CONFIGURATION, "name a file"),
        (("explain", "x", "--state-dir", "EMPTY"), ExitStatus.RESOURCE, "ledger"),
        (("submit", "s3://bucket/key"), ExitStatus.CONFIGURATION, "queue.url"),
        (("run",), ExitStatus.CONFIGURATION, "queue.url"),
        (("frobnicate",), ExitStatus.USAGE, "frobnicate"),
    ],
)
def test_a_refused_command(tmp_path: Path, arguments: tuple[str, ...], status: ExitStatus, words: str) -> None:
    """What cannot be done is told in a sentence on stderr, with its own status and no traceback."""
    (tmp_path / "EMPTY").mkdir()
    named = [str(tmp_path / word) if word in {"EMPTY", "OUT"} else word for word in arguments]
    result = bulkhead(*named, STATE_DIR=str(tmp_path / "state"))
    assert result.returncode == status, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_help_needs_no_engine() -> None:
    """`--help` names every command and does not load the AWS SDK or an engine."""
    result = bulkhead("--help")
    assert result.returncode == 0
    for command in (
        "run",
        "convert",
        "calibrate",
        "submit",
        "status",
        "explain",
        "doctor",
        "demo",
        "sweep",
        "parked",
        "requeue",
        "audit",
    ):
        assert command in result.stdout
    heavy = "boto3", "onnxruntime", "docling", "pymupdf"
    probe = f"import sys, daemon.cli; sys.exit(bool([name for name in {heavy!r} if name in sys.modules]))"
    assert subprocess.run([sys.executable, "-c", probe], check=False, timeout=NET_S).returncode == 0


def test_the_doctor_on_a_host_without_aws(tmp_path: Path) -> None:
    """The engine is declared and converts its canary; what has no setting is told as skipped."""
    result = bulkhead("doctor", "--json", STATE_DIR=str(tmp_path / "state"))
    verdicts = {line["check"]: line["verdict"] for line in lines(result)}
    assert result.returncode == 0, result.stdout
    assert verdicts["engine"] == "good"
    assert verdicts["queue"] == verdicts["store"] == "skipped"
    assert any("canary" in line["detail"] for line in lines(result))
