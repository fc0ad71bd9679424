"""The catalogue of deaths: each is classified right, in time, and leaves nothing behind. Both ways to start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog

from daemon.children import ChildResult
from daemon.model import Cause, PageMode, Plan, Stage
from tests.process.conftest import MEMORY_BYTES, Ward

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]


@dataclass(frozen=True, kw_only=True)
class Death:
    """One way to die, and what must be concluded from it."""

    text: str
    failpoints: str = ""
    plan: Plan = field(default_factory=Plan)
    #: Nothing but the deadline ends it.
    hangs: bool = False
    cause: Cause
    #: "either": the kill races with the child's own end.
    signal: str | None = None
    page: int | None = 2
    words: str


DEATHS: dict[str, Death] = {
    "segv": Death(
        text="a\nb",
        failpoints="child.ocr@page=2=segv",
        cause=Cause.CRASHED,
        signal="SIGSEGV",
        words="killed by SIGSEGV in ocr of page 2 of 2",
    ),
    "abort": Death(
        text="a\nb",
        failpoints="child.page@page=1=abort",
        cause=Cause.CRASHED,
        signal="SIGABRT",
        page=1,
        words="killed by SIGABRT in parse of page 1",
    ),
    "kill": Death(
        text="a\nb",
        failpoints="child.layout@page=2=kill",
        cause=Cause.CRASHED,
        signal="SIGKILL",
        words="killed by SIGKILL in layout of page 2",
    ),
    "start": Death(
        text="a\nb",
        failpoints="child.start=segv",
        cause=Cause.CRASHED,
        signal="SIGSEGV",
        page=None,
        words="killed by SIGSEGV in start",
    ),
    "exit0": Death(
        text="a\nb",
        failpoints="child.result=exit0",
        cause=Cause.CRASHED,
        page=None,
        words="left with status 0 without a result",
    ),
    "garbage": Death(
        text="a\nb",
        failpoints="child.ocr@page=2=garbage",
        cause=Cause.PROTOCOL,
        signal="either",
        words="a frame starts with byte 0x25",
    ),
    "flood": Death(
        text="a\nb",
        failpoints="child.ocr@page=2=flood",
        cause=Cause.PROTOCOL,
        signal="SIGKILL",
        words="announces 4294967295 bytes",
    ),
    "half a frame": Death(
        text="a\nhalf",
        cause=Cause.PROTOCOL,
        words="4 bytes into a frame; it left with status 0",
    ),
    "death in mid-frame": Death(
        text="a\nhalf-abort", cause=Cause.CRASHED, signal="SIGABRT", words="killed by SIGABRT in ocr of page 2"
    ),
    "death in mid-blob": Death(text="a\nhalf-blob", cause=Cause.CRASHED, signal="SIGABRT", words="1 of 2 pages done"),
    "wrong digest": Death(
        text="a\nwrong-digest", cause=Cause.PROTOCOL, signal="SIGKILL", words="page 2 is not the 4 bytes"
    ),
    "page twice": Death(text="a\ntwice", cause=Cause.PROTOCOL, signal="either", words="page 2 is finished twice"),
    "page not wanted": Death(
        text="a\nunasked",
        plan=Plan(skip=frozenset({2})),
        cause=Cause.PROTOCOL,
        signal="either",
        words="page 2 is not this child's to convert",
    ),
    "more than its share": Death(
        text="a\nunasked",
        plan=Plan(most_pages=1),
        cause=Cause.PROTOCOL,
        signal="either",
        words="page 2 is not this child's to convert",
    ),
    "pages of no document": Death(
        text="unopened\nb", cause=Cause.PROTOCOL, signal="either", page=1, words="page 1 does not exist"
    ),
    "share of nothing": Death(
        text="leave\nb", cause=Cause.PROTOCOL, signal="either", page=None, words="and none was finished"
    ),
    "a frame of the parent's": Death(
        text="a\njob",
        cause=Cause.PROTOCOL,
        signal="either",
        words="JOB",
    ),
    "hang": Death(
        text="a\nb",
        failpoints="child.ocr@page=2=hang",
        hangs=True,
        cause=Cause.TIMEOUT,
        signal="SIGKILL",
        words="s in ocr of page 2",
    ),
    "wait": Death(
        text="a\nwait 9999",
        hangs=True,
        cause=Cause.TIMEOUT,
        signal="SIGKILL",
        words="s in ocr of page 2",
    ),
    "oom": Death(
        text="a\nb",
        failpoints="child.ocr@page=2=oom",
        cause=Cause.MEMORY,
        # Refused by the kernel, or seen by the parent first: on a busy machine either may be faster.
        signal="either",
        words="memory",
    ),
    "shared memory": Death(
        text="a\nmap-shared", cause=Cause.MEMORY, signal="SIGKILL", words="killed at its memory limit in ocr of page 2"
    ),
    "full scratch": Death(
        text="a\nfill-scratch",
        cause=Cause.SCRATCH,
        signal="SIGKILL",
        words="MB in its scratch folder, 16 MB allowed",
    ),
    "files without names": Death(
        text="a\nfill-unnamed",
        cause=Cause.SCRATCH,
        signal="SIGKILL",
        words="MB in its scratch folder, 16 MB allowed",
    ),
    "files without end": Death(
        text="a\nmake-files",
        cause=Cause.SCRATCH,
        signal="SIGKILL",
        words="MB in its scratch folder, 16 MB allowed",
    ),
    "folders without end": Death(
        text="a\nmake-folders",
        cause=Cause.SCRATCH,
        signal="SIGKILL",
        words="MB in its scratch folder, 16 MB allowed",
    ),
    "raise": Death(
        text="a\nb",
        failpoints="child.ocr@page=2=raise",
        cause=Cause.ENGINE_ERROR,
        words="InjectedError: failpoint child.ocr",
    ),
    "unspeakable": Death(
        text="a\nlone-surrogate",
        cause=Cause.ENGINE_ERROR,
        words="ValueError: ? is no text",
    ),
    "encrypted": Death(
        text="encrypted",
        cause=Cause.ENCRYPTED,
        page=1,
        words="it needs a password",
    ),
    "lingering": Death(
        text="a\nclose-and-linger", cause=Cause.CRASHED, signal="SIGKILL", words="did not leave within 0.5 s"
    ),
    "too much output": Death(
        text="size 20000000",
        cause=Cause.TOO_LARGE,
        page=None,
        words="beyond 16777216 allowed",
    ),
}


@pytest.mark.parametrize("death", DEATHS)
def test_death(ward: Ward, death: str) -> None:
    """Each way to die has its cause, its place and its sentence."""
    case = DEATHS[death]
    deadline_s = ward.hang_s if case.hangs else 60
    outcome = ward.run(case.text, plan=case.plan, failpoints=case.failpoints, deadline_s=deadline_s).outcome
    assert (outcome.cause, outcome.page) == (case.cause, case.page)
    assert case.signal in {outcome.signal, "either"}
    assert case.words in outcome.detail
    assert outcome.peak_rss_bytes > 2**20


@pytest.mark.parametrize(("granted_bytes", "cause"), [(None, Cause.MEMORY), (2**30, Cause.CONVERTED)])
def test_the_limit_is_the_jobs_own(ward: Ward, granted_bytes: int | None, cause: Cause) -> None:
    """A child may have more than the others and is held to that; its line says which limit was in force."""
    with structlog.testing.capture_logs() as logs:
        outcome = ward.run("hold 600000000", memory_bytes=granted_bytes).outcome
    assert outcome.cause is cause, outcome.detail
    (line,) = [line for line in logs if line["event"] == "child.exited"]
    assert line["memory_limit_bytes"] == (granted_bytes or MEMORY_BYTES)


@pytest.mark.parametrize("action", ["segv", "abort", "hang"])
def test_traceback(ward: Ward, action: str) -> None:
    """Where a child was is in the record, even when it held the GIL in native code."""
    outcome = ward.run(
        "a", failpoints=f"child.ocr={action}", deadline_s=ward.hang_s if action == "hang" else 60
    ).outcome
    assert "in fire" in outcome.traceback
    assert 'fake_engine.py"' in outcome.traceback
    assert outcome.stage is Stage.OCR


def test_deadline_is_kept(ward: Ward) -> None:
    """A hang costs its deadline and half a second for the traceback, not more."""
    began = time.monotonic()
    outcome = ward.run("a", failpoints="child.ocr=hang", deadline_s=ward.hang_s).outcome
    assert time.monotonic() - began < ward.hang_s + 3
    assert f"killed at its deadline of {ward.hang_s:.1f} s" in outcome.detail


@pytest.fixture(params=["zygote", "spawn"])
def impatient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ward]:
    """A parent that waits one second for a sign of life."""
    made = Ward(request.param, tmp_path, stall_s=1.0)
    made.children.start()
    yield made
    made.children.stop()


@pytest.mark.parametrize(
    ("text", "failpoints", "words"),
    [
        ("a\nwait 9999", "", "(idle)"),
        ("a\nb", "child.ocr@page=2=hang", "(idle)"),
        ("a\nspin", "", "(busy: "),
        ("a\nchatter", "", "(idle)"),
    ],
    ids=["wait", "hang", "spin", "chatter"],
)
def test_stall(impatient: Ward, text: str, failpoints: str, words: str) -> None:
    """Silence costs its limit, tells a loop from a wait, is warned of once, and log lines do not end it."""
    with structlog.testing.capture_logs() as logs:
        outcome = impatient.run(text, failpoints=failpoints).outcome
    assert (outcome.cause, outcome.stage, outcome.page) == (Cause.STALLED, Stage.OCR, 2)
    assert (outcome.mode, outcome.signal, outcome.pages_done) == (PageMode.FULL, "SIGKILL", 1)
    assert "s without a sign of life in ocr of page 2 of 2" in outcome.detail
    assert words in outcome.detail
    assert 1.0 <= float(outcome.detail.split()[2]) < 5.0
    assert 'fake_engine.py"' in outcome.traceback
    (warning,) = [line for line in logs if line["event"] == "child.silent"]
    assert (warning["log_level"], warning["stage"], warning["page"]) == ("warning", Stage.OCR, 2)
    assert 0.5 <= warning["silent_s"] <= outcome.elapsed_s


def test_slow_but_alive(impatient: Ward) -> None:
    """Many pages, each below the limit and together beyond it, are no stall."""
    assert impatient.run("\n".join(["wait 0.1"] * 15)).outcome.cause is Cause.CONVERTED


def test_document_is_read_only(ward: Ward) -> None:
    """No child can change what the next one reads, document or finished pages; `ward.run` compares them."""
    assert ward.run("write-document", finished={9: b"of another child"}).outcome.cause is Cause.CONVERTED


def test_output_is_bounded(ward: Ward) -> None:
    """A child may print without end; some of it is kept."""
    outcome: ChildResult = ward.run("print 1000000")
    assert outcome.outcome.cause is Cause.CONVERTED
    assert 0 < len(outcome.outcome.stderr_tail) <= 10_000


def test_the_next_one_is_well(ward: Ward) -> None:
    """After all that, a document converts."""
    result = ward.run("one\ntwo")
    assert result.outcome.cause is Cause.CONVERTED
    assert result.conversion is not None
    assert result.conversion.artefacts["document.md"] == b"ONE\nTWO"
