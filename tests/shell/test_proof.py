"""What a canary proves: that its words come back, from the letters and from the picture, and nothing less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

import pytest

from daemon.canary import CANARY_PAINTED, CANARY_TEXT, canary_pdf
from daemon.children import ChildJob, ChildResult, Deadlines, KillSwitch
from daemon.errors import EngineError, WorldError
from daemon.model import Cause, Outcome, PageRecord
from daemon.proof import convert_canary
from tests.fakes.clock import FakeClock
from tests.fakes.edges import conversion


@dataclass
class OneChild:
    """A converter whose only child ends as it is told."""

    cause: Cause = Cause.CONVERTED
    markdown: str = f"{CANARY_TEXT}\n\n{CANARY_PAINTED}"
    fault: Exception | None = None
    jobs: list[ChildJob] = field(default_factory=list)
    given: bytes = b""

    def run(
        self,
        job: ChildJob,
        document: BinaryIO,
        *,
        finished: BinaryIO | None,
        deadlines: Deadlines,
        switch: KillSwitch,
        on_page: Callable[[PageRecord, int], None],
    ) -> ChildResult:
        """See `Children.run`."""
        del finished, deadlines, switch, on_page
        self.jobs.append(job)
        self.given = document.read()
        if self.fault is not None:
            raise self.fault
        made = conversion(self.markdown) if self.cause is Cause.CONVERTED else None
        return ChildResult(outcome=Outcome(cause=self.cause, detail="how it ended"), conversion=made)


def prove(child: OneChild, *, failpoints: str = "") -> tuple[bool, str]:
    """One canary."""
    proof = convert_canary(child, clock=FakeClock(), timeout_s=60, number=7, failpoints=failpoints)
    return proof.passed, proof.detail


def test_its_words_come_back() -> None:
    """From both pages, whatever the engine does to case and to the spaces between words."""
    child = OneChild(markdown=f"# {CANARY_TEXT.upper()}\n{CANARY_PAINTED.replace(' ', '')}")
    assert prove(child) == (True, "the canary's 2 page(s) converted in 0.00 s")
    assert child.given == canary_pdf()
    assert (child.jobs[0].document_id, child.jobs[0].attempt) == ("canary", 7)


@pytest.mark.parametrize(
    ("markdown", "missing"),
    [(CANARY_PAINTED, "letters"), (CANARY_TEXT, "picture"), ("", "letters"), ("�" * 99, "letters")],
)
def test_an_engine_that_reads_wrong(markdown: str, missing: str) -> None:
    """A child that leaves well and brings other words proves that something is broken."""
    passed, detail = prove(OneChild(markdown=markdown))
    assert not passed
    assert f"the words of its {missing} did not come back" in detail


@pytest.mark.parametrize("cause", [Cause.CRASHED, Cause.MEMORY, Cause.TIMEOUT, Cause.EMPTY, Cause.ZYGOTE_DIED])
def test_a_child_that_ends_badly(cause: Cause) -> None:
    """It is the host's doing: nothing is simpler than this document."""
    assert prove(OneChild(cause=cause)) == (False, "cannot convert the canary: how it ended")


def test_no_child_at_all() -> None:
    """The zygote does not start."""
    passed, detail = prove(OneChild(fault=EngineError("layout.onnx is damaged")))
    assert (passed, detail) == (False, "cannot start a child for the canary: layout.onnx is damaged")


@pytest.mark.parametrize("cause", [Cause.DRAINED, Cause.LEASE_LOST])
def test_a_child_that_we_ended(cause: Cause) -> None:
    """Proves nothing, neither way."""
    with pytest.raises(WorldError) as raised:
        prove(OneChild(cause=cause))
    assert raised.value.cause is cause


def test_a_full_disk() -> None:
    """Says nothing about the engine; whoever asked knows what to do about disks."""
    with pytest.raises(OSError, match="No space"):
        prove(OneChild(fault=OSError(28, "No space left on device")))


def test_a_drill_on_documents_is_none_on_the_host() -> None:
    """Only failpoints that name documents can reach the canary."""
    child = OneChild()
    prove(child, failpoints="child.page=segv;child.start@doc=can*=segv;child.ocr@page=1=abort")
    assert child.jobs[0].failpoints == "child.start@doc=can*=segv"


def test_a_start_proves_the_letters_alone() -> None:
    """A restart has no time for OCR; the picture is not asked for, and a wrong letter still counts."""
    child = OneChild(markdown=CANARY_TEXT)
    proof = convert_canary(child, clock=FakeClock(), timeout_s=60, painted=False)
    assert (proof.passed, proof.detail) == (True, "the canary's 1 page(s) converted in 0.00 s")
    assert child.given == canary_pdf(painted=False)
    assert not convert_canary(OneChild(markdown="?"), clock=FakeClock(), timeout_s=60, painted=False).passed
