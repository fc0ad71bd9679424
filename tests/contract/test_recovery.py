"""What the ledger keeps for recovery: counted once, set aside once, given back by a person."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import ledger_rows
from daemon.ledger import Claimed
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Cause, Document, Stage
from daemon.recovery import Listed, Parked
from daemon.recovery_sqlite import SqliteRecovery
from daemon.sqlite_file import SqliteFile
from tests.contract.ledger_contract import CRASH, HERE, LEASE_S, T0, after, claimed, converted, document, failed

DOC = document()
PARKED = Parked(
    key=DOC.id,
    document_id=DOC.id,
    uri=DOC.uri,
    body="body \udcff",
    cause=Cause.CRASHED,
    signal="SIGSEGV",
    stage=Stage.OCR,
    build="build 1",
    detail="first; then second",
    attempts=2,
    reclaims=3,
    since=T0,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """An empty file."""
    ledger = SqliteLedger.open(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


@pytest.fixture
def recovery(ledger: SqliteLedger) -> SqliteRecovery:
    """Beside it."""
    return SqliteRecovery(ledger)


def give_up(ledger: SqliteLedger) -> int:
    """One more attempt that ends as failed; its number."""
    attempt = claimed(ledger, DOC, now=after(1_000)).attempt
    ledger.record_outcome(attempt, CRASH)
    ledger.settle(attempt, failed(attempt))
    return attempt.number


def test_a_reclaim_counts_once(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """The same letter again gets the number that it had, and the document may have gone on meanwhile."""
    number = give_up(ledger)
    assert recovery.reclaim(DOC, key="attempt:1", attempt=number, now=T0) == 1
    assert ledger.settled(DOC.id) is None
    assert recovery.reclaim(DOC, key="attempt:1", attempt=number, now=T0) == 1
    assert recovery.standing(DOC.id).spent == 1
    number = give_up(ledger)
    assert recovery.reclaim(DOC, key="attempt:2", attempt=number, now=T0) == 2
    standing = recovery.standing(DOC.id)
    assert (standing.reclaims, standing.spent, standing.reopened_after) == ({"attempt:1": 1, "attempt:2": 2}, 2, 2)
    assert [attempt.number for attempt in standing.attempts] == [1, 2]


def test_only_what_this_attempt_gave_up_is_reopened(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """An old letter must not take back a newer end, least of all a published one."""
    give_up(ledger)
    assert recovery.reclaim(DOC, key="attempt:7", attempt=7, now=T0) is None
    ledger.reopen(DOC.id)
    attempt = claimed(ledger, DOC, now=after(2_000)).attempt
    assert recovery.reclaim(DOC, key="attempt:2", attempt=2, now=T0) is None, "it is not settled"
    ledger.settle(attempt, converted(attempt))
    assert recovery.reclaim(DOC, key="attempt:2", attempt=2, now=T0) is None
    assert recovery.reclaim(DOC, key="message:m", attempt=None, now=T0) is None
    assert ledger.settled(DOC.id) == converted(attempt)
    assert recovery.standing(DOC.id).spent == 0


def test_a_moved_message_keeps_its_history(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """Parents that died of it still count: it is not given up, only sent again; an unknown one is registered."""
    claimed(ledger, DOC)
    assert recovery.reclaim(DOC, key="message:m", attempt=None, now=T0) == 1
    again = ledger.claim(DOC, holder=HERE, now=after(1_000), lease_s=LEASE_S)
    assert isinstance(again, Claimed)
    assert [attempt.number for attempt in again.history] == [1]
    assert recovery.reclaim(document("new"), key="message:n", attempt=None, now=T0) == 1
    assert ledger.document("new") == document("new")


def test_parked_once(recovery: SqliteRecovery) -> None:
    """The first entry stands until it is sent again or dropped; the order is that of parking."""
    recovery.park(PARKED)
    recovery.park(Parked(key=PARKED.key, body="other", cause=Cause.EMPTY, since=after(5)))
    recovery.park(Parked(key="message-1", body="?", cause=Cause.MALFORMED_MESSAGE, since=after(-5)))
    first, second = recovery.parked()
    assert first == Parked(key="message-1", body="?", cause=Cause.MALFORMED_MESSAGE, since=after(-5))
    assert (second.body, second.fingerprint) == ("body \\udcff", ("crashed", "SIGSEGV", "ocr", "build 1"))
    recovery.mark_alerted([PARKED.key], now=T0)
    assert [each.alerted for each in recovery.parked()] == [False, True]
    assert recovery.unpark(PARKED.key)
    assert not recovery.unpark(PARKED.key)


def test_a_retry_grants_one_round(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """Asked twice, granted once; the document can be claimed again with a fresh history."""
    for _ in range(2):
        number = give_up(ledger)
        recovery.reclaim(DOC, key=f"attempt:{number}", attempt=number, now=after(number))
    give_up(ledger)
    recovery.park(PARKED)
    for _ in range(2):
        retried = recovery.retry(PARKED.key, now=T0)
        assert retried is not None
        assert retried.retrying
    assert recovery.standing(DOC.id).spent == 1
    assert claimed(ledger, DOC, now=after(1_000)).history == ()
    assert recovery.retry("nobody", now=T0) is None


def test_a_requeue_waits_in_the_ledger_until_it_is_sent(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """Between reopening and sending nothing else would know of it; a document that has not ended is left alone."""
    attempt = claimed(ledger, DOC).attempt
    recovery.requeue(DOC.id, body="again", now=T0)
    assert recovery.parked() == []
    ledger.settle(attempt, converted(attempt))
    recovery.requeue(DOC.id, body="again", now=T0)
    (row,) = recovery.parked()
    assert (row.key, row.body, row.retrying, row.alerted) == (DOC.id, "again", True, True)
    assert ledger.settled(DOC.id) is None


def test_a_found_document_is_owed_one_message(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """Until its message is confirmed, or somebody has tried it; then never again, whatever becomes of it."""
    for seconds, name in enumerate(("b", "a", "tried")):
        recovery.register(document(name), now=after(seconds))
        recovery.register(document(name), now=after(9))
    claimed(ledger, document("tried"))
    claimed(ledger, document("by message"))
    assert list(recovery.forgotten(limit=9)) == [document("b"), document("a")]
    assert list(recovery.forgotten(limit=1)) == [document("b")]
    recovery.enqueued("b")
    assert list(recovery.forgotten(limit=9)) == [document("a")]
    recovery.register(document("b"), now=after(10))
    recovery.register(document("by message"), now=after(10))
    assert list(recovery.forgotten(limit=9)) == [document("a")]


def test_strangers(ledger: SqliteLedger, recovery: SqliteRecovery) -> None:
    """Whatever name a sender gave it: these bytes were asked for before. Newer bytes under the same name were not."""

    def listed(identity: str, uri: str, version: str | None, etag: str | None, at: float = 0) -> Listed:
        found = Document(id=identity, uri=uri, version_id=version, etag=etag)
        return Listed(document=found, modified_at=after(at))

    claimed(ledger, Document(id="mine", uri="s3://in/a", version_id="v1", etag="e1"))
    claimed(ledger, Document(id="bare", uri="s3://in/b"), now=after(100))
    recovery.park(PARKED)
    known = [
        listed("mine", "s3://in/a", "v1", "e1"),
        listed("other id", "s3://in/a", "v1", None),
        listed("other id", "s3://in/a", None, "e1"),
        listed("other id", "s3://in/b", None, "e9", 100),
        listed("other id", "s3://in/a", None, None),
        listed(PARKED.key, "s3://in/c", None, None),
    ]
    new = [
        listed("n1", "s3://in/a", "v2", "e2"),
        listed("n2", "s3://in/b", None, "e9", 101),
        listed("n3", "s3://in/z", "v1", "e1"),
        listed("n4", "s3://in/a", None, None, 1),
    ]
    assert list(recovery.strangers([*known, *new])) == new


def test_notes(recovery: SqliteRecovery) -> None:
    """What the last sweep wrote."""
    assert recovery.note("cursor") is None
    for value in ("a", "b \udcff"):
        recovery.write_note("cursor", value)
    assert (recovery.note("cursor"), recovery.note("other")) == ("b \\udcff", None)


def test_a_ledger_of_the_first_schema(tmp_path: Path) -> None:
    """An upgrade keeps every document, and what failed before it can be reclaimed after it."""
    path = tmp_path / "old.db"
    migrations = ledger_rows.MIGRATIONS[:1]
    old = SqliteFile.open(path, application_id=ledger_rows.APPLICATION_ID, migrations=migrations)
    with old.write() as db:
        db.execute("INSERT INTO documents VALUES (?, ?, 'v1', '\"e1\"', '{\"ocr\": false}', 0, 0)", (DOC.id, DOC.uri))
        db.execute("INSERT INTO attempts VALUES (?, 1, 'h', 'b', 'i', 1, 0, 60, 50)", (DOC.id,))
        crash = "VALUES (?, 1, 1, 'crashed', 'why', 1, 1, NULL, NULL, NULL, NULL, 0, NULL, 0.5, 0, '', '')"
        db.execute(f"INSERT INTO outcomes {crash}", (DOC.id,))
        db.execute("INSERT INTO settled VALUES (?, 'failed', 1, 50, 'crashed', 'why', NULL, 0, '{}')", (DOC.id,))
    old.close()
    new = SqliteLedger.open(path)
    assert new.document(DOC.id) == DOC
    assert [outcome.fingerprint for outcome in new.attempts(DOC.id)[0].outcomes] == [""]
    assert SqliteRecovery(new).reclaim(DOC, key="attempt:1", attempt=1, now=T0) == 1
    new.close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone() == (len(ledger_rows.MIGRATIONS),)
    raw.close()
