"""Real documents, real killers: what others' files do to the whole daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.emulator import Emulated, emulated
from tests.system.daemon_process import alive, daemon, environment

pytestmark = [pytest.mark.corpus, pytest.mark.engine, pytest.mark.process]

#: Ordinary documents of `a` and `b` that do not convert, and why.
NOT_CONVERTED: dict[str, str] = {}

#: What kills, hangs or bloats an unprotected worker, and the causes that may be told of it.
KILLERS = {
    "bitmap-mmr.pdf": {"converted", "crashed", "engine_error"},
    "bitmap-symbol-symhuff-texthuff.pdf": {"converted", "crashed", "engine_error"},
    "AcroFormsBasicFields.pdf": {"converted", "timeout"},
    # It does not begin like a PDF, so no parser sees it; pdfium would take 3 GB over it.
    "376305073a.fuzz.pdf": {"not_a_document", "memory", "malformed", "no_pages", "engine_error", "timeout", "empty"},
    "operator_list_cycle.pdf": {"converted", "memory", "timeout", "empty", "engine_error"},
    "issue19800.pdf": {"converted", "memory", "timeout", "empty", "engine_error"},
}
GOOD = ("multi_page.pdf", "text_document_01.odt.pdf", "math_2503_04086.pdf")


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Emulated]:
    """An embedded SQS and S3."""
    with emulated(tmp_path / "emulator.log") as aws:
        yield aws


def resident_bytes(pid: int) -> int:
    """Of one process, now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(900)
def test_all_ordinary_documents_convert(corpus: Path, tmp_path: Path) -> None:
    """Every born-digital and every scanned document has its text; one that has not is listed here with its reason."""
    result = subprocess.run(
        [sys.executable, "-m", "daemon", "convert", corpus / "a", corpus / "b", "--out", tmp_path, "--json"],
        env={name: value for name, value in os.environ.items() if not name.startswith("BULKHEAD_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    told: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    asked = [path for folder in ("a", "b") for path in (corpus / folder).iterdir()]
    assert len(told) == len(asked)
    failed = {Path(line["path"]).name: line["cause_detail"] for line in told if line["status"] == "failed"}
    assert failed.keys() == NOT_CONVERTED.keys(), failed
    for line in told:
        assert sum(line["pages_by_state"].values()) == line["pages"]
        assert line["pages_by_state"].get("failed", 0) == 0, line
        text = Path(line["markdown"]).read_text(encoding="utf-8").strip()
        blank = line["pages_by_state"].get("blank", 0) == line["pages"]
        assert text or blank, f"{line['path']} is silently empty"


@pytest.mark.timeout(600)
def test_killers_beside_good_documents(corpus: Path, aws: Emulated, tmp_path: Path) -> None:
    """A trap, a hang, and gigabytes out of a few hundred bytes: the good ones convert, the parent does not move."""
    for name in KILLERS:
        aws.upload(corpus / "d" / name)
    for name in GOOD:
        aws.upload(corpus / "a" / name)
    env = environment(
        aws, tmp_path / "state", WORKERS="2", CHILD__DOCUMENT_TIMEOUT_S="20", CHILD__MEMORY_BYTES=str(2 * 2**30)
    )
    with daemon(env) as running:
        running.wait_for("daemon.ready")
        before = resident_bytes(running.pid)
        for name in GOOD:
            line = running.wait_for("attempt.settled", uri=f"s3://{aws.bucket}/inbox/{name}")
            assert line["status"] == "converted", line
        for name, causes in KILLERS.items():
            line = running.wait_for("attempt.settled", uri=f"s3://{aws.bucket}/inbox/{name}")
            assert line["cause"] in causes, line
            assert line["peak_rss_bytes"] < 2.3 * 2**30, line
        assert alive(running.pid)
        assert resident_bytes(running.pid) - before < 40 * 2**20
        running.send(signal.SIGTERM)
        assert running.left_with() == 0
