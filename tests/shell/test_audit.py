"""An audit finds what a clean run cannot produce, and nothing in what a killed one leaves for the next."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.audit import ABANDONED_AFTER, Check, Seen, examined
from daemon.model import Attempt, Cause, Holder, Outcome, PageRecord, PageReport, PageState, ResultStatus
from daemon.recovery import Parked, Standing
from tests.contract.ledger_contract import CRASH, HERE, LEASE_S, T0, after, claimed, converted, document, failed
from tests.fakes.edges import Countdown, DiedError
from tests.shell.test_order import CASES
from tests.shell.test_sweep import GOOD, Swept, gone, settled_with_pages, stored

LIFE = Holder(host="here", boot_id="boot", invocation="life", pid=1)
HOUR = ABANDONED_AFTER + timedelta(seconds=1)


def attempt(number: int, *, ended: bool = True, cause: Cause = Cause.CONVERTED) -> Attempt:
    """One of report-1."""
    return Attempt(
        document_id="report-1",
        number=number,
        holder=HERE,
        started_at=T0,
        lease_until=after(60),
        ended_at=after(50) if ended else None,
        outcomes=(Outcome(cause=cause, detail=""),) if ended else (),
    )


MANIFEST = {
    "pages": [{"page": 1, "state": "text"}, {"page": 2, "state": "ocr"}],
    "pages_by_state": {"text": 1, "ocr": 1},
    "fencing_token": 1,
}
#: A published document about which everything agrees.
CLEAN = Seen(
    document_id="report-1",
    standing=Standing(document=document(), settled=converted(attempt(1)), attempts=(attempt(1),)),
    manifest=MANIFEST,
    kept=False,
)


def but(*, manifest: Any = MANIFEST, kept: bool = False, **standing: Any) -> Seen:
    """`CLEAN` with something changed."""
    return replace(CLEAN, manifest=manifest, kept=kept, standing=replace(CLEAN.standing, **standing))


TWO = (attempt(1), attempt(2))
PARKED = Parked(key="report-1", body="", cause=Cause.EMPTY, since=T0)
FOUND: dict[str, tuple[Seen, Check]] = {
    "no manifest": (but(manifest=None), Check.NOT_PUBLISHED),
    "token of nobody": (but(manifest=MANIFEST | {"fencing_token": 7}), Check.WRONG_TOKEN),
    "token of a failed attempt": (
        but(attempts=(attempt(1, cause=Cause.CRASHED), attempt(2)), settled=converted(attempt(2))),
        Check.WRONG_TOKEN,
    ),
    "token from before it was reopened": (
        but(attempts=(attempt(1, ended=False), attempt(2)), settled=converted(attempt(2)), reopened_after=1),
        Check.WRONG_TOKEN,
    ),
    "a newer attempt": (but(attempts=TWO), Check.OVERTAKEN),
    "a page twice": (but(manifest=MANIFEST | {"pages": [MANIFEST["pages"][0]] * 2}), Check.PAGES_DIFFER),  # type: ignore[index]
    "a page less": (but(manifest=MANIFEST | {"pages": MANIFEST["pages"][:1]}), Check.PAGES_DIFFER),  # type: ignore[index]
    "a wrong sum": (but(manifest=MANIFEST | {"pages_by_state": {"text": 2}}), Check.PAGES_DIFFER),
    "no pages at all": (but(manifest={"fencing_token": 1}), Check.PAGES_DIFFER),
    "the ledger's sum": (but(settled=replace(converted(attempt(1)), pages=3)), Check.PAGES_DIFFER),
    "pages kept": (but(kept=True), Check.CHECKPOINTS_LEFT),
    "parked": (but(parked=PARKED), Check.PARKED_AND_PUBLISHED),
    "failed and published": (but(settled=failed(attempt(1))), Check.NOT_SETTLED),
    "stored and not settled": (but(settled=None), Check.NOT_SETTLED),
    "a file less": (replace(CLEAN, lacking=("document.md",)), Check.ARTEFACT_MISSING),
    "an attempt too many": (replace(CLEAN, over_limit=1), Check.TOO_MANY_ATTEMPTS),
    "no end": (but(settled=None, manifest=None, attempts=(attempt(1, ended=False),)), Check.ABANDONED),
}
FINE: dict[str, Seen] = {
    "clean": CLEAN,
    "partial": but(settled=replace(converted(attempt(1)), status=ResultStatus.PARTIAL)),
    "adopted from a dead parent": but(attempts=(attempt(1, ended=False), attempt(2)), settled=converted(attempt(2))),
    "adopted after a late answer of the store": but(
        attempts=(attempt(1, cause=Cause.STORE_UNAVAILABLE), attempt(2)), settled=converted(attempt(2))
    ),
    "failed": but(settled=failed(attempt(1)), manifest=None),
    "failed and parked": but(settled=failed(attempt(1)), manifest=None, parked=PARKED),
    "published, then converted again": but(settled=None, reopened_after=1),
    "published, then again, and failed": but(settled=failed(attempt(2)), attempts=TWO, reopened_after=1),
    "not begun": but(settled=None, attempts=(), manifest=None),
    "pages kept while it runs": but(settled=None, attempts=(attempt(1, ended=False),), manifest=None, kept=True),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_a_clean_run_cannot_produce(case: str) -> None:
    """Each disagreement is found, and as one finding."""
    seen, check = FOUND[case]
    (finding,) = examined(seen, now=after(60) + HOUR)
    assert (finding.check, finding.document_id) == (check, "report-1")
    assert finding.detail


@pytest.mark.parametrize("case", FINE)
def test_what_a_clean_run_can_produce(case: str) -> None:
    """An audit that cries wolf is switched off."""
    assert examined(FINE[case], now=after(61)) == []


def test_a_lease_that_runs(tmp_path: Path) -> None:
    """Between storing and settling nothing is wrong yet."""
    seen = but(settled=None, attempts=(attempt(1, ended=False),))
    assert examined(seen, now=after(59)) == []
    assert [finding.check for finding in examined(seen, now=after(61))] == [Check.NOT_SETTLED]


@pytest.mark.parametrize("name", CASES)
def test_killed_anywhere_and_taken_over(tmp_path: Path, name: str) -> None:
    """Whatever call the first parent died at: when the second one is done, everything agrees."""
    for nth in range(1, 60):
        (tmp_path / str(nth)).mkdir()
        swept = Swept(tmp_path / str(nth), CASES[name])
        countdown = Countdown(nth, DiedError, after=True)
        swept.daemon(countdown)
        swept.world.next_parent("second")
        swept.daemon()
        assert swept.audit() == [], countdown.happened
        swept.world.ledger.close()
        if not countdown.happened:
            return
    pytest.fail("a life has fewer than 60 edge calls")


@pytest.mark.parametrize(
    ("prepare", "check"), [(stored, Check.NOT_SETTLED), (settled_with_pages, Check.CHECKPOINTS_LEFT)]
)
def test_a_sweep_puts_right_what_an_audit_found(tmp_path: Path, prepare: Callable[[Path], Swept], check: Check) -> None:
    """What is told as a finding has a remedy, and an ERROR line that says how much."""
    swept = prepare(tmp_path)
    with capture_logs() as lines:
        assert [finding.check for finding in swept.audit()] == [check]
    assert [(line["event"], line[str(check)]) for line in lines] == [("audit.failed", 1)]
    swept.sweep()
    assert swept.audit() == []


def test_a_message_that_is_nowhere(tmp_path: Path) -> None:
    """A purged queue: the document has not ended, and nothing will bring it back."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon(Countdown(3, DiedError, after=True))
    swept.world.clock.advance(100)
    assert swept.audit() == []
    (message,) = swept.world.queue.receive(10, stop=threading.Event())
    swept.world.queue.delete(message)
    assert [finding.check for finding in swept.audit()] == [Check.LOST]


def test_a_manifest_that_somebody_removed(tmp_path: Path) -> None:
    """A lifecycle rule or a person emptied the bucket: the ledger alone would still call it converted."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon()
    assert swept.audit() == []
    Path(swept.world.store.location("good", "manifest.json")).unlink()
    assert [finding.check for finding in swept.audit()] == [Check.NOT_PUBLISHED]


def test_a_file_that_somebody_removed(tmp_path: Path) -> None:
    """The manifest is there, and a reader who follows it finds nothing."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon()
    Path(swept.world.store.location("good", "document.md")).unlink()
    (finding,) = swept.audit()
    assert (finding.check, "document.md" in finding.detail) == (Check.ARTEFACT_MISSING, True)


@pytest.mark.parametrize(
    ("deaths", "opened", "checks"),
    [(3, 3, []), (4, 3, []), (9, 3, []), (4, 4, [Check.TOO_MANY_ATTEMPTS])],
)
def test_more_attempts_than_are_allowed(tmp_path: Path, deaths: int, opened: int, checks: list[Check]) -> None:
    """A document may kill three parents; a fourth that opened it means that somebody did not count.

    One that only wanted to give it up may die of anything, as often as it likes.
    """
    swept = Swept(tmp_path, GOOD)
    now = swept.world.clock.now
    for life in range(deaths):
        claim = claimed(swept.world.ledger, document("killer"), holder=replace(LIFE, invocation=f"{life}"), now=now())
        if life < opened:
            swept.world.ledger.record_outcome(claim.attempt, CRASH)
        swept.world.clock.advance(LEASE_S + 1)
    ended = claimed(swept.world.ledger, document("killer"), holder=LIFE, now=now()).attempt
    swept.world.ledger.settle(ended, failed(ended))
    assert claim.attempt.number == deaths
    assert [finding.check for finding in swept.audit()] == checks


def test_an_audit_holds_no_more_than_a_page(tmp_path: Path) -> None:
    """Five thousand open documents and as many findings: told one by one, with the ids of a page in memory."""
    swept = Swept(tmp_path, GOOD)
    swept.daemon()
    ledger = swept.world.ledger
    with ledger.file.write() as db:  # type: ignore[attr-defined]  # the real one
        db.executemany(
            "INSERT INTO documents (id, uri, options, registered_us) VALUES (?, 's3://b/k', '{}', 0)",
            [(f"d{number:05}",) for number in range(5_000)],
        )
    pages: list[int] = []
    documents = swept.recovery.documents

    def counted(*, after: str, limit: int) -> Any:
        pages.append(limit)
        return documents(after=after, limit=limit)

    swept.recovery.documents = counted  # type: ignore[method-assign]
    assert Counter(finding.check for finding in swept.audit()) == {Check.LOST: 5_000}
    assert set(pages) == {500}


def test_pages_of_a_neighbour_are_none_of_its_own(tmp_path: Path) -> None:
    """Only a document that has ended must have no finished pages."""
    swept = gone(tmp_path)
    report = PageReport(page=1, state=PageState.TEXT, engine="fake")
    swept.world.checkpoints.put("other", "f" * 64, PageRecord(page=1, report=report, blob=b"x"))
    assert swept.audit() == []
