"""Every way for a child to end has one cause, and a sentence with the figures."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.classify import Life, classify, exit_of, signal_name
from daemon.frames import CLAIMABLE_CAUSES
from daemon.model import OCR_MODES, Cause, Exit, KillReason, PageMode, Plan, Stage

MB = 2**20
GOOD = Life(
    child=2,
    plan=Plan(),
    exit=Exit(status=0),
    converted=True,
    stage=Stage.OCR,
    page=7,
    pages_done=6,
    pages=20,
    elapsed_s=3.14,
    peak_rss_bytes=412 * MB,
    memory_limit_bytes=2048 * MB,
    timeout_s=900.0,
    linger_s=5.0,
    traceback="Fatal Python error",
    stderr_tail="oh",
)
SILENT = dataclasses.replace(GOOD, converted=False)
SHARE = dataclasses.replace(SILENT, left=14)
STALLED = dataclasses.replace(SILENT, kill=KillReason.STALL, silent_s=60.02)
SEGV = Exit(signal=signal.SIGSEGV)
CLAIM = (Cause.ENCRYPTED, "it needs a password")


def but(life: Life, **changes: object) -> Life:
    """`life` with changes."""
    return dataclasses.replace(life, **changes)  # type: ignore[arg-type]  # one dict of mixed values


@pytest.mark.parametrize(
    ("life", "cause", "words"),
    [
        (GOOD, Cause.CONVERTED, "converted after 3.1 s"),
        (SILENT, Cause.CRASHED, "left with status 0 without a result in ocr of page 7 of 20"),
        (but(SILENT, exit=Exit(status=3)), Cause.CRASHED, "left with status 3 without a result"),
        (
            but(SILENT, exit=SEGV),
            Cause.CRASHED,
            "killed by SIGSEGV in ocr of page 7 of 20 after 3.1 s",
        ),
        (but(SILENT, exit=Exit(signal=signal.SIGKILL)), Cause.CRASHED, "killed by SIGKILL in ocr"),
        (
            but(SILENT, exit=Exit(signal=signal.SIGKILL), oom_kills=1),
            Cause.MEMORY,
            "killed by SIGKILL from the kernel, for want of memory, in ocr of page 7 of 20",
        ),
        (but(SILENT, exit=SEGV, oom_kills=1), Cause.CRASHED, "killed by SIGSEGV in ocr"),
        (but(GOOD, oom_kills=1), Cause.CONVERTED, "converted"),
        (
            but(SILENT, exit=Exit(signal=signal.SIGKILL), oom_kills=1, met=False),
            Cause.ZYGOTE_DIED,
            "before it had seen the document",
        ),
        (
            but(SILENT, kill=KillReason.SCRATCH, scratch_bytes=3 * MB, max_scratch_bytes=2 * MB),
            Cause.SCRATCH,
            "killed with 3 MB in its scratch folder, 2 MB allowed, in ocr of page 7",
        ),
        (but(GOOD, exit=SEGV), Cause.CRASHED, "killed by SIGSEGV after its result, which is not trusted"),
        (but(GOOD, exit=Exit(status=1)), Cause.CRASHED, "left with status 1 after its result"),
        (but(SILENT, claim=CLAIM), Cause.ENCRYPTED, "it needs a password; after 3.1 s"),
        (but(SILENT, claim=CLAIM, exit=SEGV), Cause.CRASHED, "killed by SIGSEGV after it reported encrypted"),
        (but(SILENT, kill=KillReason.DEADLINE), Cause.TIMEOUT, "killed at its deadline of 900.0 s in ocr of page 7"),
        (SHARE, Cause.SLICED, "its share is converted, 14 pages are left, after 3.1 s"),
        (but(SHARE, exit=SEGV), Cause.CRASHED, "killed by SIGSEGV after its share of the pages, after 3.1 s"),
        (but(SHARE, exit=Exit(status=1)), Cause.CRASHED, "left with status 1 after its share of the pages"),
        (
            STALLED,
            Cause.STALLED,
            "killed after 60.0 s without a sign of life in ocr of page 7 of 20 (idle) after 3.1 s",
        ),
        (but(STALLED, silent_cpu_s=58.9), Cause.STALLED, "in ocr of page 7 of 20 (busy: 58.9 s of CPU)"),
        (but(STALLED, silent_cpu_s=2.9), Cause.STALLED, "(idle)"),
        (but(SILENT, kill=KillReason.MEMORY), Cause.MEMORY, "killed at its memory limit in ocr"),
        (but(SILENT, kill=KillReason.PROTOCOL, breach="bad byte"), Cause.PROTOCOL, "not to be believed: bad byte"),
        (but(SILENT, kill=KillReason.DRAIN), Cause.DRAINED, "told to stop"),
        (but(SILENT, kill=KillReason.LEASE_LOST), Cause.LEASE_LOST, "no longer ours"),
        (but(SILENT, kill=KillReason.LINGERED), Cause.CRASHED, "said its last and did not leave within 5.0 s"),
        (
            but(GOOD, kill=KillReason.LINGERED, exit=Exit(signal=signal.SIGKILL)),
            Cause.CRASHED,
            "sent its result and did not leave",
        ),
        (but(SILENT, supervisor_gone=True, exit=None), Cause.ZYGOTE_DIED, "the zygote went away"),
        (but(SILENT, supervisor_gone=True), Cause.ZYGOTE_DIED, "the zygote went away"),
        (but(SILENT, exit=None), Cause.ZYGOTE_DIED, "the zygote went away"),
        (
            but(SILENT, met=False, exit=Exit(status=11)),
            Cause.ZYGOTE_DIED,
            "left with status 11 before it had seen the document",
        ),
        (but(SILENT, breach="half a frame"), Cause.PROTOCOL, "half a frame; it left with status 0"),
        (but(SILENT, breach="half a frame", exit=SEGV), Cause.CRASHED, "killed by SIGSEGV in ocr"),
        (but(SILENT, exit=SEGV, peak_rss_bytes=2000 * MB), Cause.MEMORY, "killed by SIGSEGV at its memory limit"),
        (
            but(SILENT, exit=Exit(signal=signal.SIGKILL), peak_rss_bytes=2000 * MB),
            Cause.MEMORY,
            "SIGKILL at its mem",
        ),
        (but(SILENT, exit=Exit(signal=signal.SIGTERM), peak_rss_bytes=2000 * MB), Cause.CRASHED, "killed by SIGTERM"),
    ],
)
def test_each_end_has_its_cause(life: Life, cause: Cause, words: str) -> None:
    """The table of ends."""
    outcome = classify(life)
    assert outcome.cause is cause
    assert words in outcome.detail
    assert "412 MB of 2048 MB allowed" in outcome.detail or life.peak_rss_bytes > 412 * MB


@pytest.mark.parametrize("reason", sorted(set(KillReason) - {KillReason.LEASE_LOST, KillReason.PROTOCOL}))
def test_a_kill_that_came_too_late_costs_no_result(reason: KillReason) -> None:
    """What was finished, and whose child left by itself, counts, although a kill was on its way."""
    assert classify(but(GOOD, kill=reason)).cause is Cause.CONVERTED
    assert classify(but(SHARE, kill=reason)).cause is Cause.SLICED


@pytest.mark.parametrize(
    ("reason", "cause"), [(KillReason.LEASE_LOST, Cause.LEASE_LOST), (KillReason.PROTOCOL, Cause.PROTOCOL)]
)
def test_a_result_that_is_not_wanted(reason: KillReason, cause: Cause) -> None:
    """A lost lease publishes nothing; a child that broke the rules is not believed afterwards."""
    assert classify(but(GOOD, kill=reason)).cause is cause
    assert classify(but(SHARE, kill=reason)).cause is cause


@pytest.mark.parametrize(
    ("page", "mode", "ocr"),
    [
        (7, PageMode.TEXT_ONLY, False),
        (8, PageMode.REDUCED, True),
        (9, PageMode.WITHOUT_OCR, False),
        (None, None, False),
    ],
)
def test_mode_of_the_page_in_hand(page: int | None, mode: PageMode | None, ocr: bool) -> None:  # noqa: FBT001  a case of the table
    """The ladder learns what the page was given, not what the document's other pages are."""
    plan = Plan(default=PageMode.WITHOUT_OCR, modes={7: PageMode.TEXT_ONLY, 8: PageMode.REDUCED})
    outcome = classify(but(SILENT, plan=plan, page=page))
    assert (outcome.page, outcome.mode, outcome.ocr) == (page, mode, ocr)


@pytest.mark.parametrize("mode", PageMode)
def test_without_a_page_the_plan_says(mode: PageMode) -> None:
    """A document that could not be opened was tried at the plan's own mode."""
    outcome = classify(but(SILENT, plan=Plan(default=mode), page=None))
    assert (outcome.mode, outcome.ocr) == (None, mode in OCR_MODES)


def test_everything_is_in_the_record() -> None:
    """What a person needs to look into a crash is carried over."""
    outcome = classify(but(SILENT, exit=SEGV))
    assert (outcome.child, outcome.ocr, outcome.signal) == (2, True, "SIGSEGV")
    assert (outcome.pages_done, outcome.pages) == (6, 20)
    assert (outcome.stage, outcome.page) == (Stage.OCR, 7)
    assert (outcome.elapsed_s, outcome.peak_rss_bytes) == (3.14, 412 * MB)
    assert (outcome.traceback, outcome.stderr_tail) == ("Fatal Python error", "oh")


EXIT = (
    st.none()
    | st.integers(0, 255).map(lambda status: Exit(status=status))
    | st.integers(1, 64).map(lambda number: Exit(signal=number))
)
LIFE = st.builds(
    Life,
    child=st.integers(1, 5),
    plan=st.sampled_from(PageMode).map(lambda mode: Plan(default=mode)),
    exit=EXIT,
    kill=st.none() | st.sampled_from(KillReason),
    supervisor_gone=st.booleans(),
    met=st.booleans(),
    converted=st.booleans(),
    left=st.none() | st.integers(1, 9),
    claim=st.none() | st.tuples(st.sampled_from(sorted(CLAIMABLE_CAUSES)), st.text(max_size=5)),
    breach=st.none() | st.just("half a frame"),
    stage=st.sampled_from(Stage),
    page=st.none() | st.integers(1, 9),
    peak_rss_bytes=st.integers(0, 4 * 2**30),
    memory_limit_bytes=st.integers(1, 4 * 2**30),
    timeout_s=st.floats(0, 1000),
)


@given(LIFE)
def test_converted_only_with_a_result_and_status_0(life: Life) -> None:
    """No combination of anything else makes a conversion; and a life always has a cause."""
    outcome = classify(life)
    if outcome.cause is Cause.CONVERTED:
        assert life.converted
        assert life.exit == Exit(status=0)
    if outcome.cause is Cause.SLICED:
        assert life.left is not None
        assert life.exit == Exit(status=0)
    assert outcome.detail


@given(LIFE)
def test_a_permanent_cause_needs_a_clean_exit(life: Life) -> None:
    """A dying child cannot have its document given up for ever by what it said before."""
    if classify(life).cause in {Cause.ENCRYPTED, Cause.NO_PAGES, Cause.MALFORMED, Cause.TOO_LARGE}:
        assert life.exit == Exit(status=0)


@pytest.mark.parametrize(("status", "expected"), [(0, Exit(status=0)), (7, Exit(status=7))])
def test_wait_status_of_a_status(status: int, expected: Exit) -> None:
    """A status is read as one."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {status}"], {})
    assert exit_of(os.waitpid(pid, 0)[1]) == expected


def test_wait_status_of_a_signal() -> None:
    """A signal is read as one, with and without a core dump."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -SEGV $$"], {})
    assert exit_of(os.waitpid(pid, 0)[1]) == SEGV
    assert exit_of(signal.SIGSEGV | 0x80) == SEGV


def test_a_signal_without_a_name() -> None:
    """Real-time signals have numbers only."""
    assert signal_name(signal.SIGBUS) == "SIGBUS"
    assert signal_name(40) == "signal 40"
