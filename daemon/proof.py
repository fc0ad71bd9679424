"""Converting the canary tells whether the declared engine works on this host, now.

Shell. The canary goes the way of every document, through a real child, and its words must come back. What it comes to
is a value; only what says nothing about the engine (we are told to stop, the disk is full) is raised.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from daemon.canary import CANARY_PAGES, CANARY_PAINTED, CANARY_TEXT, canary_pdf
from daemon.children import ChildJob, Deadlines, KillSwitch
from daemon.clock import Clock
from daemon.edges import Converter
from daemon.errors import EngineError, WorldError
from daemon.model import Cause, Conversion, MediaType, Plan
from daemon.trust import Proof

#: Its name in logs and for the failpoints' `doc=`.
CANARY_ID = "canary"
#: Ends of a child that are our own doing and say nothing about the engine.
_NO_VERDICT = frozenset({Cause.DRAINED, Cause.LEASE_LOST})


def convert_canary(
    converter: Converter,
    *,
    clock: Clock,
    timeout_s: float,
    number: int = 1,
    switch: KillSwitch | None = None,
    scratch: Path | None = None,
    failpoints: str = "",
    painted: bool = True,
) -> Proof:
    """Convert the canary in a child of its own; `number` is its attempt's.

    Of `failpoints` only those that name a document can reach it, so that a drill on documents is no drill on the host.
    Without what is `painted` it proves the parser and the layout model, and not OCR, sooner.
    Raises `WorldError` when the switch was pulled, `OSError` when there is no room for a child.
    """
    job = ChildJob(
        document_id=CANARY_ID,
        attempt=number,
        child=1,
        plan=Plan(),
        media_type=MediaType.PDF,
        failpoints=";".join(each for each in failpoints.split(";") if "doc=" in each),
    )
    began = clock.monotonic()
    with tempfile.TemporaryFile(dir=scratch) as document:
        document.write(canary_pdf(painted=painted))
        document.seek(0)
        try:
            result = converter.run(
                job,
                document,
                finished=None,
                deadlines=Deadlines(started=began, base_s=timeout_s, per_page_s=0.0, longest_s=timeout_s),
                switch=KillSwitch() if switch is None else switch,
                on_page=lambda _record, _pages: None,
            )
        except EngineError as error:
            return Proof(passed=False, detail=f"cannot start a child for the canary: {error}")
    if result.outcome.cause in _NO_VERDICT:
        raise WorldError(result.outcome.cause, f"cannot tell whether the canary converts: {result.outcome.detail}")
    if result.outcome.cause is not Cause.CONVERTED or result.conversion is None:
        return Proof(passed=False, detail=f"cannot convert the canary: {result.outcome.detail}")
    return _read(result.conversion, painted=painted, elapsed_s=clock.monotonic() - began)


def _read(conversion: Conversion, *, painted: bool, elapsed_s: float) -> Proof:
    """Whether its words came back; upper and lower case, and how words are parted, are no matter of life and death."""
    words = "".join(conversion.artefacts["document.md"].decode("utf-8", "replace").casefold().split())
    for wanted, from_what in ((CANARY_TEXT, "letters"), (CANARY_PAINTED, "picture"))[: 2 if painted else 1]:
        if "".join(wanted.casefold().split()) not in words:
            return Proof(
                passed=False,
                detail=f"cannot convert the canary: the words of its {from_what} did not come back; "
                "the engine on this host reads wrong",
            )
    return Proof(
        passed=True, detail=f"the canary's {CANARY_PAGES if painted else 1} page(s) converted in {elapsed_s:.2f} s"
    )
