"""The page is the unit of loss: a crash costs one page, a killed parent costs the page in hand.

Every test compares with an undisturbed run of the same document, byte for byte where all pages end well.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause, Outcome
from tests.system.daemon_process import NET_S
from tests.system.test_convert import bulkhead, clean_environment, lines

pytestmark = [pytest.mark.engine, pytest.mark.process]

PAGES = 5
#: A document of five pages, the third of which is used below.
NAME = "five-pages.pdf"


@pytest.fixture(scope="module")
def undisturbed(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed conversion."""
    out = tmp_path_factory.mktemp("undisturbed")
    (line,) = lines(bulkhead("convert", samples / NAME, "--out", out, "--json"))
    return Path(line["markdown"]).parent


def same(result: Path, undisturbed: Path) -> bool:
    """Whether Markdown and JSON are the same bytes."""
    return all(
        (result / name).read_bytes() == (undisturbed / name).read_bytes() for name in ("document.md", "document.json")
    )


def converted(samples: Path, out: Path, **settings: str) -> tuple[dict[str, Any], Path]:
    """One disturbed run; its line and the folder of its result."""
    (line,) = lines(bulkhead("convert", samples / NAME, "--out", out, "--json", ALLOW_FAILPOINTS="true", **settings))
    return line, Path(line["markdown"]).parent


def outcomes(out: Path) -> list[list[Outcome]]:
    """Every child of every attempt at the only document of `out`."""
    ledger = SqliteLedger.open_read_only(out / ".bulkhead" / "ledger.db")
    try:
        (document,) = ledger.find(NAME)
        return [list(attempt.outcomes) for attempt in ledger.attempts(document.id)]
    finally:
        ledger.close()


def test_a_crash_that_does_not_come_back(samples: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Page 3 kills its first child: a second one goes on there, and the result is the same bytes."""
    line, result = converted(samples, tmp_path, FAILPOINTS="child.layout@page=3,child=1=segv")
    assert (line["status"], line["crashes"]) == ("converted", 1)
    assert same(result, undisturbed)
    (children,) = outcomes(tmp_path)
    # Page 3 stood apart: the others first, then it alone.
    assert [child.pages_done for child in children] == [2, 2, 1]


def test_a_page_that_kills_whatever_is_tried(samples: Path, undisturbed: Path, tmp_path: Path) -> None:
    """A visible gap at page 3, four pages fine, every rung once, and the manifest says what page 3 did."""
    line, result = converted(samples, tmp_path, FAILPOINTS="child.page@page=3=segv")
    assert line["status"] == "partial"
    assert line["pages_by_state"] == {"failed": 1, "text": 4}
    assert line["crashes"] == 4
    markdown = (result / "document.md").read_text(encoding="utf-8")
    assert "page three" not in markdown
    assert "page two of five" in markdown
    assert "page four of five" in markdown
    assert "page 3 could not be converted" in markdown
    manifest = json.loads((result / "manifest.json").read_text(encoding="utf-8"))
    assert len(manifest["pages"]) == PAGES
    assert [code.partition(" ")[0] for code in manifest["pages"][2]["failures"]] == ["crashed:SIGSEGV"] * 4
    assert not same(result, undisturbed)


def test_slices(samples: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Two pages a child: three children, the same bytes, and nothing that looks like a failure."""
    line, result = converted(samples, tmp_path, CHILD__PAGES_PER_CHILD="2")
    assert (line["status"], line["children"], line["crashes"]) == ("converted", 3, 0)
    assert same(result, undisturbed)


def test_a_silent_page(samples: Path, tmp_path: Path) -> None:
    """A hang in native code on page 3 costs it its layout after `stall_s`, not the document its deadline."""
    line, result = converted(samples, tmp_path, CHILD__STALL_S="2", FAILPOINTS="child.layout@page=3=hang")
    assert line["status"] == "converted"
    assert "This is page three of five" in " ".join((result / "document.md").read_text(encoding="utf-8").split())
    (children,) = outcomes(tmp_path)
    assert [child.cause for child in children if child.page == 3][:1] == ["stalled"]


def test_a_partial_result_that_nobody_wants(samples: Path, tmp_path: Path) -> None:
    """With `retry.partial = dead_letter` a lost page fails the document, and says which."""
    result = bulkhead(
        "convert",
        samples / NAME,
        "--out",
        tmp_path,
        "--json",
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page@page=3=segv",
        RETRY__PARTIAL="dead_letter",
    )
    (line,) = lines(result)
    assert (line["status"], line["cause"], line["markdown"]) == ("failed", "incomplete", None)
    assert "1 of 5 pages were lost (3)" in line["cause_detail"]


def kill_at_page(document: Path, out: Path, page: int) -> None:
    """SIGKILL the parent while its child is on `page`, with all pages before it in the checkpoints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "daemon", "convert", str(document), "--out", str(out), "--json"],
        env=clean_environment(
            ALLOW_FAILPOINTS="true",
            FAILPOINTS=f"child.page@page={page}=hang",
            LOG__LEVEL="debug",
            LOG__FORMAT="json",
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if '"page.finished"' in line and json.loads(line)["page"] == page - 1:
            break
    process.send_signal(signal.SIGKILL)
    process.stderr.close()
    assert process.wait(timeout=NET_S) == -signal.SIGKILL


def test_a_killed_parent_costs_the_page_in_hand(samples: Path, undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL at page 4, and a restart: three pages are not converted again, and the result is the same bytes."""
    kill_at_page(samples / NAME, tmp_path, page=4)
    line, result = converted(samples, tmp_path)
    assert line["status"] == "converted"
    assert same(result, undisturbed)
    first, second = outcomes(tmp_path)
    assert [child.cause for child in first] == [Cause.PARENT_DIED]
    assert sum(child.pages_done for child in second) == 2
    assert not list((tmp_path / ".bulkhead" / "checkpoints").iterdir()), "gone when the document settles"


def test_a_damaged_checkpoint_is_converted_again(samples: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Half a file where page 2 was: page 2 is converted again, and never is a document cut short."""
    kill_at_page(samples / NAME, tmp_path, page=4)
    (damaged,) = (tmp_path / ".bulkhead" / "checkpoints").rglob("*-2.page")
    damaged.write_bytes(damaged.read_bytes()[:100])
    _, result = converted(samples, tmp_path)
    assert same(result, undisturbed)
    assert sum(child.pages_done for child in outcomes(tmp_path)[1]) == 3


@pytest.mark.corpus
def test_a_manual_of_eighteen_pages(corpus: Path, tmp_path: Path) -> None:
    """A real one, with tables, code and pictures: killed at page 12 it converts 7 more pages, to the same bytes."""
    manual = corpus / "a" / "redp5110_sampled.pdf"
    (plain,) = lines(bulkhead("convert", manual, "--out", tmp_path / "plain", "--json"))
    kill_at_page(manual, tmp_path / "killed", page=12)
    (killed,) = lines(bulkhead("convert", manual, "--out", tmp_path / "killed", "--json"))
    assert same(Path(killed["markdown"]).parent, Path(plain["markdown"]).parent)
    assert killed["pages"] == 18
    ledger = SqliteLedger.open_read_only(tmp_path / "killed" / ".bulkhead" / "ledger.db")
    try:
        (document,) = ledger.find("redp5110")
        assert sum(child.pages_done for child in ledger.attempts(document.id)[1].outcomes) == 7
    finally:
        ledger.close()
