"""What every ledger keeps for recovery; `test_recovery.py` and `test_ledger_dynamodb.py` run it on the real ones.

Rules as in `ledger_contract.py`: a test knows only `Ledger` and `Recovery`; instants are given, none is read.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread

import pytest

from daemon.errors import DocumentError
from daemon.ledger import AlreadySettled, Claimed, Ledger
from daemon.model import Cause, Document, Stage
from daemon.recovery import Listed, Parked, Recovery
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


def give_up(ledger: Ledger) -> int:
    """One more attempt that ends as failed; its number."""
    attempt = claimed(ledger, DOC, now=after(1_000)).attempt
    ledger.record_outcome(attempt, CRASH)
    ledger.settle(attempt, failed(attempt))
    return attempt.number


class RecoveryContract:
    """Subclasses give a fixture `ledger` that yields an empty one, and `recovery`, beside it."""

    def test_nothing_is_known(self, recovery: Recovery) -> None:
        """A document that was never seen has no standing, is not parked, and can be neither retried nor dropped."""
        standing = recovery.standing("nobody")
        assert (standing.document, standing.settled, standing.parked, list(standing.attempts)) == (None, None, None, [])
        assert list(recovery.parked()) == []
        assert recovery.retry("nobody", now=T0) is None
        assert not recovery.unpark("nobody")
        recovery.mark_alerted(["nobody"], now=T0)
        recovery.requeue("nobody", body="?", now=T0)
        assert list(recovery.documents(after="", limit=10)) == []
        assert recovery.standing("nobody") == standing

    def test_a_reclaim_counts_once(self, ledger: Ledger, recovery: Recovery) -> None:
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
        assert [attempt.outcomes for attempt in standing.attempts] == [(CRASH,), (CRASH,)]

    def test_many_threads_one_letter(self, ledger: Ledger, recovery: Recovery) -> None:
        """Sweeps that meet at one letter count it once."""
        number = give_up(ledger)
        numbers: list[int | None] = []
        start = Barrier(4)

        def reclaim() -> None:
            start.wait(timeout=30)
            numbers.append(recovery.reclaim(DOC, key="attempt:1", attempt=number, now=T0))

        threads = [Thread(target=reclaim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert numbers == [1, 1, 1, 1]
        assert recovery.standing(DOC.id).spent == 1

    def test_only_what_this_attempt_gave_up_is_reopened(self, ledger: Ledger, recovery: Recovery) -> None:
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

    def test_a_moved_message_keeps_its_history(self, ledger: Ledger, recovery: Recovery) -> None:
        """Parents that died of it still count: it is not given up, only sent again; an unknown one is registered."""
        claimed(ledger, DOC)
        assert recovery.reclaim(DOC, key="message:m", attempt=None, now=T0) == 1
        again = ledger.claim(DOC, holder=HERE, now=after(1_000), lease_s=LEASE_S)
        assert isinstance(again, Claimed)
        assert [attempt.number for attempt in again.history] == [1]
        assert recovery.reclaim(document("new"), key="message:n", attempt=None, now=T0) == 1
        assert ledger.document("new") == document("new")
        assert ledger.counts()["waiting"] == 1

    def test_another_uri_is_not_reclaimed(self, ledger: Ledger, recovery: Recovery) -> None:
        """An id that is another URI's is refused, and nothing is reopened or counted."""
        number = give_up(ledger)
        with pytest.raises(DocumentError, match="already that of"):
            recovery.reclaim(replace(DOC, uri="s3://in/other.pdf"), key="attempt:1", attempt=number, now=T0)
        assert ledger.settled(DOC.id) is not None
        assert recovery.standing(DOC.id).spent == 0

    def test_parked_once(self, recovery: Recovery) -> None:
        """The first entry stands until it is sent again or dropped; the order is that of parking."""
        recovery.park(PARKED)
        recovery.park(Parked(key=PARKED.key, body="other", cause=Cause.EMPTY, since=after(5)))
        recovery.park(Parked(key="message-1", body="?", cause=Cause.MALFORMED_MESSAGE, since=after(-5)))
        first, second = recovery.parked()
        assert first == Parked(key="message-1", body="?", cause=Cause.MALFORMED_MESSAGE, since=after(-5))
        assert second == replace(PARKED, body="body \\udcff")
        recovery.mark_alerted([PARKED.key], now=T0)
        assert [each.alerted for each in recovery.parked()] == [False, True]
        assert recovery.standing(PARKED.key).parked == replace(PARKED, body="body \\udcff", alerted=True)
        assert recovery.unpark(PARKED.key)
        assert not recovery.unpark(PARKED.key)
        assert [each.key for each in recovery.parked()] == ["message-1"]

    def test_the_longest_message_is_kept_whole(self, recovery: Recovery) -> None:
        """A message of a megabyte that nobody can read is parked, and comes back as it came."""
        body = "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(2**20 // 3))
        recovery.park(replace(PARKED, body=body))
        recovery.park(replace(PARKED, key="small", body="small"))
        assert [each.body for each in recovery.parked()] == [body, "small"]
        retried = recovery.retry(PARKED.key, now=T0)
        assert retried is not None
        assert retried.body == body
        assert recovery.unpark(PARKED.key)
        recovery.park(replace(PARKED, body="again"))
        assert [each.body for each in recovery.parked()] == ["again", "small"]

    def test_a_retry_grants_one_round(self, ledger: Ledger, recovery: Recovery) -> None:
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

    def test_a_requeue_waits_in_the_ledger_until_it_is_sent(self, ledger: Ledger, recovery: Recovery) -> None:
        """Between reopening and sending nothing else would know of it; one that has not ended is left alone."""
        attempt = claimed(ledger, DOC).attempt
        recovery.requeue(DOC.id, body="again", now=T0)
        assert list(recovery.parked()) == []
        ledger.settle(attempt, converted(attempt))
        recovery.requeue(DOC.id, body="again", now=T0)
        (row,) = recovery.parked()
        assert (row.key, row.body, row.retrying, row.alerted) == (DOC.id, "again", True, True)
        assert ledger.settled(DOC.id) is None

    def test_a_requeue_of_what_is_parked(self, ledger: Ledger, recovery: Recovery) -> None:
        """What is parked keeps its own message, and is on its way."""
        give_up(ledger)
        recovery.park(PARKED)
        recovery.requeue(DOC.id, body="again", now=T0)
        (row,) = recovery.parked()
        assert (row.body, row.retrying, row.alerted) == ("body \\udcff", True, True)
        assert ledger.settled(DOC.id) is None

    def test_dropped_stays_failed(self, ledger: Ledger, recovery: Recovery) -> None:
        """Dropping forgets the message; the document stays failed, with its history."""
        number = give_up(ledger)
        recovery.park(PARKED)
        assert recovery.unpark(PARKED.key)
        claim = ledger.claim(DOC, holder=HERE, now=after(2_000), lease_s=LEASE_S)
        assert isinstance(claim, AlreadySettled)
        assert [attempt.number for attempt in ledger.attempts(DOC.id)] == [number]

    def test_every_document_in_pages(self, ledger: Ledger, recovery: Recovery) -> None:
        """Ids come in order, each once, whatever the size of a page; what is only parked is no document."""
        names = [f"doc-{number:02d}" for number in range(7)]
        for name in reversed(names):
            claimed(ledger, document(name))
        recovery.park(Parked(key="message-1", body="?", cause=Cause.MALFORMED_MESSAGE, since=T0))
        found: list[str] = []
        while page := recovery.documents(after=found[-1] if found else "", limit=3):
            assert len(page) <= 3
            found += page
        assert found == names

    def test_a_found_document_is_owed_one_message(self, ledger: Ledger, recovery: Recovery) -> None:
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

    def test_strangers(self, ledger: Ledger, recovery: Recovery) -> None:
        """Whatever name a sender gave it: these bytes were asked for before. Newer bytes of that name were not."""

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

    def test_notes(self, recovery: Recovery) -> None:
        """What the last sweep wrote."""
        assert recovery.note("cursor") is None
        for value in ("a", "b \udcff"):
            recovery.write_note("cursor", value)
        assert (recovery.note("cursor"), recovery.note("other")) == ("b \\udcff", None)
