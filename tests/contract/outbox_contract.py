"""What every outbox must do beside its ledger; `test_outbox.py` runs it on the real ones and on the fake.

Rules as in `ledger_contract.py`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass

import pytest

from daemon.errors import LeaseLostError
from daemon.ledger import Ledger
from daemon.model import Cause
from daemon.outbox import Backlog, Outbox
from daemon.recovery import Parked, Recovery
from tests.contract.ledger_contract import T0, after, claimed, converted, document, failed


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One ledger and what lies beside it."""

    ledger: Ledger
    recovery: Recovery
    outbox: Outbox


def parked(name: str, *, since: float = 0) -> Parked:
    """A document that waits for a person."""
    doc = document(name)
    return Parked(key=name, document_id=name, uri=doc.uri, body="b", cause=Cause.CRASHED, since=after(since))


class OutboxContract:
    """Subclasses give `kept`, with notices on, and `silent`, with notices off."""

    @abstractmethod
    @pytest.fixture
    def kept(self) -> Kept:
        """An empty ledger that writes notices."""

    @abstractmethod
    @pytest.fixture
    def silent(self) -> Kept:
        """An empty ledger that writes none."""

    def states(self, kept: Kept) -> list[tuple[str, str, int]]:
        """What waits, in order."""
        return [(each.document_id, str(each.state), each.sequence) for each in kept.outbox.waiting(limit=100)]

    def give_up(self, kept: Kept, name: str) -> None:
        """One more attempt that ends as failed."""
        attempt = claimed(kept.ledger, document(name), now=after(1_000)).attempt
        kept.ledger.settle(attempt, failed(attempt))

    def test_each_end_is_told_in_its_order(self, kept: Kept) -> None:
        """Given up, parked, tried again, converted: four states, four notices, oldest first."""
        self.give_up(kept, "a")
        kept.recovery.park(parked("a"))
        assert kept.recovery.retry("a", now=T0) is not None
        kept.recovery.unpark("a")
        attempt = claimed(kept.ledger, document("b")).attempt
        kept.ledger.settle(attempt, converted(attempt))
        attempt = claimed(kept.ledger, document("a"), now=after(2_000)).attempt
        kept.ledger.settle(attempt, converted(attempt, now=after(2_000)))
        assert [each for each in self.states(kept) if each[0] == "a"] == [
            ("a", "failed", 2),
            ("a", "parked", 3),
            ("a", "converted", 4),
        ]
        assert ("b", "converted", 2) in self.states(kept)
        last = [each for each in kept.outbox.waiting(limit=100) if each.document_id == "a"][-1]
        assert json.loads(last.body)["manifest"] == "s3://out/a/manifest.json"
        assert json.loads(last.body)["uri"] == document("a").uri
        assert last.at == after(2_000)

    def test_a_requeue_is_no_end(self, kept: Kept) -> None:
        """A person asks for another try: the entry that waits for its send is not parked for anybody."""
        self.give_up(kept, "a")
        kept.recovery.requeue("a", body="again", now=T0)
        kept.recovery.unpark("a")
        assert self.states(kept) == [("a", "failed", 2)]

    def test_the_same_end_again_is_told_once(self, kept: Kept) -> None:
        """A settlement or a parking that is repeated after a crash adds nothing."""
        attempt = claimed(kept.ledger, document("a")).attempt
        for _ in range(2):
            kept.ledger.settle(attempt, failed(attempt))
            kept.recovery.park(parked("a"))
        assert self.states(kept) == [("a", "failed", 2), ("a", "parked", 3)]

    def test_what_did_not_happen_is_not_told(self, kept: Kept) -> None:
        """A stale holder settles nothing, so nobody is told."""
        stale = claimed(kept.ledger, document("a")).attempt
        newer = claimed(kept.ledger, document("a"), now=after(1_000)).attempt
        with pytest.raises(LeaseLostError):
            kept.ledger.settle(stale, converted(stale))
        kept.ledger.end_attempt(newer, now=after(1_001))
        assert self.states(kept) == []

    def test_a_document_that_was_never_attempted(self, kept: Kept) -> None:
        """SQS moved its message before anybody had it: it can be parked, and that is told."""
        kept.recovery.park(parked("never"))
        assert self.states(kept) == [("never", "parked", 1)]

    def test_a_message_without_a_document(self, kept: Kept) -> None:
        """Nobody waits for a document that cannot be named."""
        kept.recovery.park(Parked(key="m-1", body="?", cause=Cause.MALFORMED_MESSAGE, since=T0))
        assert self.states(kept) == []

    def test_sent_is_gone(self, kept: Kept) -> None:
        """What was confirmed is forgotten, once or twice; the rest stays in its order."""
        for name in ("a", "b", "c"):
            self.give_up(kept, name)
        first, second, third = kept.outbox.waiting(limit=100)
        assert kept.outbox.waiting(limit=2) == [first, second]
        for _ in range(2):
            kept.outbox.sent([first, third])
        assert kept.outbox.waiting(limit=100) == [second]
        kept.outbox.sent([])

    def test_what_was_sent_does_not_come_back(self, kept: Kept) -> None:
        """The same settlement or parking again, after its notice went out, writes no second one."""
        attempt = claimed(kept.ledger, document("a")).attempt
        kept.ledger.settle(attempt, failed(attempt))
        kept.recovery.park(parked("a"))
        kept.outbox.sent(kept.outbox.waiting(limit=2))
        kept.ledger.settle(attempt, failed(attempt))
        kept.recovery.park(parked("a"))
        assert self.states(kept) == []

    def test_backlog(self, kept: Kept) -> None:
        """How many, and since when the oldest."""
        assert kept.outbox.backlog() == Backlog(number=0, oldest_at=None)
        kept.recovery.park(parked("a", since=5))
        kept.recovery.park(parked("b", since=7))
        assert kept.outbox.backlog() == Backlog(number=2, oldest_at=after(5))
        kept.outbox.sent(kept.outbox.waiting(limit=1))
        assert kept.outbox.backlog() == Backlog(number=1, oldest_at=after(7))

    def test_off_by_default(self, silent: Kept) -> None:
        """Where nobody is to be told, nothing is written."""
        self.give_up(silent, "a")
        silent.recovery.park(parked("a"))
        assert self.states(silent) == []
        assert silent.outbox.backlog().number == 0
