"""What a child gets, what it brings, and what other threads may do to it meanwhile. Both ways to start."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.children import ChildResult, KillSwitch
from daemon.model import Cause, KillReason, PageState
from tests.process.conftest import Ward

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]


def test_large_result(ward: Ward) -> None:
    """A result many times larger than any socket buffer arrives whole."""
    result = ward.run("size 9000000\nb")
    assert result.conversion is not None
    assert len(result.conversion.artefacts["document.md"]) == 9_000_014
    assert result.conversion.engine == {"engine": "fake"}


@pytest.mark.parametrize(("ocr", "state"), [(True, PageState.OCR), (False, PageState.TEXT)])
def test_pages(ward: Ward, ocr: bool, state: PageState) -> None:  # noqa: FBT001  a case of the table
    """Each page is told while the child runs, and accounted for in the result."""
    told: list[tuple[int, int]] = []
    result = ward.run("a\nb\nc", ocr=ocr, on_page=lambda page, pages: told.append((page, pages)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert result.conversion is not None
    assert [(page.page, page.state) for page in result.conversion.pages] == [(1, state), (2, state), (3, state)]
    assert result.outcome.ocr is ocr


def test_environment(ward: Ward, tmp_path: Path) -> None:
    """No credential reaches a child; what steers its libraries does."""
    seen = tmp_path / "environment"
    ward.run(f"environment {seen}")
    names = set(seen.read_text().splitlines())
    assert not {name for name in names if name.startswith(("AWS", "SENTRY", "BULKHEAD_SENTRY"))}
    assert {"OMP_NUM_THREADS", "ORT_DISABLE_TELEMETRY", "HF_HUB_OFFLINE", "OPENBLAS_CORETYPE", "TMPDIR"} <= names


def test_descriptors(ward: Ward, tmp_path: Path) -> None:
    """A child has stdin, its output, its socket, its document and its fault log; nothing of others."""
    seen = tmp_path / "descriptors"
    ward.run(f"descriptors {seen}")
    targets = [line.split(" ", 1)[1] for line in seen.read_text().splitlines()]
    kinds = sorted(target.split(":")[0] for target in targets if str(seen) not in target)
    sockets = kinds.count("socket")
    assert sockets == 1
    assert kinds.count("pipe") == 2
    assert sum("fault-log" in target for target in targets) == 1
    assert len(kinds) == 6, targets


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (KillReason.DRAIN, Cause.DRAINED),
        (KillReason.LEASE_LOST, Cause.LEASE_LOST),
        (KillReason.DEADLINE, Cause.TIMEOUT),
    ],
)
def test_switch(ward: Ward, reason: KillReason, cause: Cause) -> None:
    """Any thread ends a child at once; the first reason stands."""
    switch = KillSwitch()

    def pull_twice() -> None:
        switch.pull(reason)
        switch.pull(KillReason.PROTOCOL)

    def pull(page: int, _pages: int) -> None:
        if page == 1:
            threading.Thread(target=pull_twice).start()

    outcome = ward.run("a\nwait 9999", switch=switch, on_page=pull).outcome
    assert outcome.cause is cause
    assert switch.reason is reason


def test_switch_pulled_before(ward: Ward) -> None:
    """A document that we were told to stop before its child began is not converted."""
    switch = KillSwitch()
    switch.pull(KillReason.DRAIN)
    assert ward.run("wait 9999", switch=switch).outcome.cause is Cause.DRAINED


def test_two_at_once(ward: Ward) -> None:
    """Two threads watch two children; a crash of one is nothing to the other."""
    both = threading.Barrier(2, timeout=60)

    def meet(page: int, _pages: int) -> None:
        if page == 1:
            both.wait()

    def one(failpoints: str) -> ChildResult:
        return ward.run("a\nb", failpoints=failpoints, on_page=meet)

    with ThreadPoolExecutor(2) as pool:
        good, bad = pool.map(one, ["", "child.ocr@page=2=segv"])
    assert good.outcome.cause is Cause.CONVERTED
    assert bad.outcome.cause is Cause.CRASHED


def test_bug_of_ours_leaves_no_child(ward: Ward) -> None:
    """When watching fails by our own mistake, the child ends with it."""

    def broken(_page: int, _pages: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ward.run("a\nwait 9999", on_page=broken)


def test_many(ward: Ward) -> None:
    """A hundred lives and deaths leave nothing; `nothing_left` counts."""
    number = 100 if ward.start == "zygote" else 10
    causes = [ward.run("a", failpoints="child.ocr=kill" if turn % 2 else "").outcome.cause for turn in range(number)]
    assert causes == [Cause.CONVERTED, Cause.CRASHED] * (number // 2)
