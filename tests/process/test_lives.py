"""What a child gets, what it brings, and what other threads may do to it meanwhile. Both ways to start."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
import structlog

from daemon.cgroup import Group
from daemon.children import ChildResult, Deadlines, KillSwitch
from daemon.errors import WorldError
from daemon.model import Cause, KillReason, PageMode, PageRecord, PageState, Plan
from tests.process.conftest import WITHOUT_OCR, Ward, job_of

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("nothing_left")]


def test_large_result(ward: Ward) -> None:
    """A result many times larger than any socket buffer arrives whole."""
    result = ward.run("size 9000000\nb")
    assert result.conversion is not None
    assert len(result.conversion.artefacts["document.md"]) == 9_000_014
    assert result.conversion.engine == {"engine": "fake"}


@pytest.mark.parametrize(("plan", "state"), [(Plan(), PageState.OCR), (WITHOUT_OCR, PageState.TEXT)])
def test_pages(ward: Ward, plan: Plan, state: PageState) -> None:
    """Each page is handed over while the child runs, and accounted for in the result."""
    told: list[tuple[PageRecord, int]] = []
    result = ward.run("a\nb\nc", plan=plan, on_page=lambda record, pages: told.append((record, pages)))
    assert [(record.page, pages, json.loads(record.blob)["text"]) for record, pages in told] == [
        (1, 3, "a"),
        (2, 3, "b"),
        (3, 3, "c"),
    ]
    assert result.conversion is not None
    assert [(page.page, page.state) for page in result.conversion.pages] == [(1, state), (2, state), (3, state)]
    assert tuple(record.report for record, _ in told) == result.conversion.pages
    assert result.outcome.ocr is (plan is not WITHOUT_OCR)
    assert (result.outcome.mode, result.outcome.pages_done) == (None, 3)


def test_blob_of_many_chunks(ward: Ward) -> None:
    """A page much larger than a frame arrives whole."""
    sizes: list[int] = []
    assert ward.run("blob 5000000", on_page=lambda record, _: sizes.append(len(record.blob))).conversion is not None
    assert sizes[0] > 5_000_000


def test_modes(ward: Ward) -> None:
    """Each page gets its own mode, and the outcome tells that of the page in hand."""
    plan = Plan(default=PageMode.WITHOUT_OCR, modes={2: PageMode.REDUCED, 3: PageMode.TEXT_ONLY})
    modes: list[str] = []
    result = ward.run(
        "a\nb\nc", plan=plan, failpoints="child.page@page=3=segv", on_page=lambda record, _: modes.append(mode(record))
    )
    assert modes == ["without_ocr", "reduced"]
    assert (result.outcome.page, result.outcome.mode, result.outcome.ocr) == (3, PageMode.TEXT_ONLY, False)
    assert result.outcome.pages_done == 2


def mode(record: PageRecord) -> str:
    """How the fake engine says that it converted a page."""
    found: str = json.loads(record.blob)["mode"]
    return found


@pytest.mark.parametrize(("ocr", "page"), [("on", 2), ("off", 1)])
def test_failpoint_follows_the_page(ward: Ward, ocr: str, page: int) -> None:
    """`ocr=` selects by the mode of the page at hand, not by the document's."""
    plan = Plan(default=PageMode.WITHOUT_OCR, modes={2: PageMode.FULL})
    outcome = ward.run("a\nb\nc", plan=plan, failpoints=f"child.layout@ocr={ocr}=kill").outcome
    assert (outcome.cause, outcome.page) == (Cause.CRASHED, page)


def test_slices(ward: Ward) -> None:
    """Three children of two pages each make the same bytes as one of five pages."""
    kept: dict[int, bytes] = {}
    causes = []
    for _ in range(3):
        result = ward.run(
            "fake 5", plan=Plan(most_pages=2), finished=dict(kept), on_page=lambda r, _: kept.update({r.page: r.blob})
        )
        causes.append((result.outcome.cause, result.outcome.pages_done, sorted(kept)))
    assert causes == [
        (Cause.SLICED, 2, [1, 2]),
        (Cause.SLICED, 2, [1, 2, 3, 4]),
        (Cause.CONVERTED, 1, [1, 2, 3, 4, 5]),
    ]
    assert result.conversion == ward.run("fake 5").conversion


def test_slice_says_what_is_left(ward: Ward) -> None:
    """A share is no conversion; its line says how much is left, at INFO."""
    with structlog.testing.capture_logs() as logs:
        result = ward.run("fake 5", plan=Plan(skip=frozenset({3, 4})))
    assert result.conversion is None
    assert "its share is converted, 2 pages are left" in result.outcome.detail
    assert [line["log_level"] for line in logs if line["event"] == "child.exited"] == ["info"]


def test_only(ward: Ward) -> None:
    """A page in a child of its own is all that this child converts."""
    told: list[int] = []
    plan = Plan(only=4, skip=frozenset({1}))
    assert ward.run("fake 5", plan=plan, on_page=lambda r, _: told.append(r.page)).outcome.cause is Cause.SLICED
    assert told == [4]


def test_nothing_but_assembly(ward: Ward) -> None:
    """When every page is finished, the next child converts none and still brings the document."""
    kept: dict[int, bytes] = {}
    first = ward.run(
        "a\nb", failpoints="child.result=segv", on_page=lambda record, _: kept.update({record.page: record.blob})
    )
    assert first.outcome.cause is Cause.CRASHED
    told: list[int] = []
    second = ward.run("a\nb", finished=kept, on_page=lambda record, _: told.append(record.page))
    assert told == []
    assert second.outcome.cause is Cause.CONVERTED


@pytest.mark.parametrize(
    ("offset", "converted"), [(-1, [2]), (44 + 5, [1]), (3, [1]), (4, [1, 2])], ids=["last", "first", "page", "size"]
)
def test_damaged_pack(ward: Ward, offset: int, converted: list[int]) -> None:
    """A finished page that is damaged is converted again, and the document is the same."""
    kept: dict[int, bytes] = {}
    whole = ward.run("a\nb", on_page=lambda record, _: kept.update({record.page: record.blob}))

    def damage(pack: BinaryIO) -> None:
        pack.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        pack.write(b"\xff")

    told: list[int] = []
    result = ward.run("a\nb", finished=kept, damage=damage, on_page=lambda record, _: told.append(record.page))
    assert told == converted
    assert result.conversion == whole.conversion


def test_page_that_cannot_be_kept(ward: Ward) -> None:
    """When the disk is full the child ends, the caller hears why, and nothing is left."""

    def full(_record: PageRecord, _pages: int) -> None:
        raise WorldError(Cause.DISK_FULL, "no space left")

    with pytest.raises(WorldError, match="no space left"):
        ward.run("a\nwait 9999", on_page=full)


def test_deadline_grows_with_pages(ward: Ward) -> None:
    """A long document has the time that its pages deserve, from the moment that they are counted."""
    short = Deadlines(started=ward.clock.monotonic(), base_s=ward.hang_s, per_page_s=1000.0, longest_s=2 * ward.hang_s)
    with tempfile.TemporaryFile() as document:
        document.write(b"a\nwait 9999")
        document.flush()
        outcome = ward.children.run(
            job_of(Plan(), ""),
            document,
            finished=None,
            deadlines=short,
            switch=KillSwitch(),
            on_page=lambda _record, _pages: None,
        ).outcome
    assert outcome.cause is Cause.TIMEOUT
    assert f"killed at its deadline of {2 * ward.hang_s:.1f} s" in outcome.detail


def test_environment(ward: Ward) -> None:
    """No credential reaches a child; what steers its libraries does."""
    names = set(ward.said("environment").splitlines())
    assert not {name for name in names if name.startswith(("AWS", "SENTRY", "BULKHEAD_SENTRY"))}
    assert {"OMP_NUM_THREADS", "ORT_DISABLE_TELEMETRY", "HF_HUB_OFFLINE", "OPENBLAS_CORETYPE", "TMPDIR"} <= names


def test_descriptors(ward: Ward) -> None:
    """A child has stdin, its output, its socket, its document, the finished pages and its fault log; no other."""
    targets = [line.split(" ", 1)[1] for line in ward.said("descriptors", finished={}).splitlines()]
    kinds = sorted(target.split(":")[0] for target in targets)
    sockets = kinds.count("socket")
    assert sockets == 1
    assert kinds.count("pipe") == 2
    assert sum("fault-log" in target for target in targets) == 1
    assert len(kinds) == 7, targets


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

    def pull(record: PageRecord, _pages: int) -> None:
        if record.page == 1:
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

    def meet(record: PageRecord, _pages: int) -> None:
        if record.page == 1:
            both.wait()

    def one(failpoints: str) -> ChildResult:
        return ward.run("a\nb", failpoints=failpoints, on_page=meet)

    with ThreadPoolExecutor(2) as pool:
        good, bad = pool.map(one, ["", "child.ocr@page=2=segv"])
    assert good.outcome.cause is Cause.CONVERTED
    assert bad.outcome.cause is Cause.CRASHED


def test_bug_of_ours_leaves_no_child(ward: Ward) -> None:
    """When watching fails by our own mistake, the child ends with it."""

    def broken(_record: PageRecord, _pages: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ward.run("a\nwait 9999", on_page=broken)


def test_many(ward: Ward) -> None:
    """A hundred lives and deaths leave nothing; `nothing_left` counts."""
    number = 100 if ward.start == "zygote" else 10
    causes = [ward.run("a", failpoints="child.ocr=kill" if turn % 2 else "").outcome.cause for turn in range(number)]
    assert causes == [Cause.CONVERTED, Cause.CRASHED] * (number // 2)


class RecordedGroup(Group):
    """Says what was asked of it, and in which order."""

    def __init__(self, said: list[object]) -> None:
        self._said = said

    def place(self, pid: int) -> None:
        """See `Group`."""
        self._said += ["placed", Path(f"/proc/{pid}").exists()]

    def remove(self) -> None:
        """See `Group`."""
        self._said.append("removed")


@pytest.mark.parametrize("text", ["a", "encrypted"])
def test_group(ward: Ward, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A child is in its group before it has its document; the group goes when the child has ended, however it did."""
    said: list[object] = []
    monkeypatch.setattr(ward.children, "_group", lambda _: RecordedGroup(said))
    ward.run(text, on_page=lambda record, _pages: said.append(record.page))
    assert said == ["placed", True, *([1] if text == "a" else []), "removed"]
