"""What no message has ever come for is enqueued: each once, within bounds, over as many sweeps as it takes."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.dead_letters import sendable
from daemon.delivery import body_of
from daemon.errors import ResourceError
from daemon.forgotten import CURSOR, SearchRules
from daemon.intake import read
from daemon.model import Document
from daemon.recovery_sqlite import SqliteRecovery
from daemon.sweep import Sweep, SweepEdges
from tests.fakes.edges import Countdown, DiedError, conversion
from tests.fakes.listing import MemoryListing
from tests.shell.test_order import Case, own
from tests.shell.test_sweep import NOBODY, RULES, Swept, forgotten, gone

HOURS = timedelta(hours=7)


def documents(count: int) -> list[Document]:
    """As a listing names them."""
    return [Document(id=f"d{number}", uri=f"s3://in/{number}.pdf", etag="e") for number in range(count)]


def untouched(folder: Path, count: int, *, page: int = 2) -> Swept:
    """A source of which nobody has heard; the queue's one message is no work."""
    swept = Swept(folder, Case(body='{"Event": "s3:TestEvent", "Bucket": "b"}', ends={}))
    swept.daemon()
    swept.listings = [MemoryListing(documents(count), modified_at=swept.world.clock.now() - HOURS, page=page)]
    return swept


def sweep(swept: Swept, countdown: Countdown = NOBODY, **search: float) -> Counter[str]:
    """One sweep with these bounds; what it did."""
    did = swept.sweep(countdown, rules=replace(RULES, search=SearchRules(**search))).did  # type: ignore[arg-type]  # all figures
    return Counter(each.what for each in did)


def take(swept: Swept) -> list[str]:
    """Ids of all messages, which are deleted."""
    ids = []
    swept.world.clock.advance(1_000)
    while received := swept.world.queue.receive(10, stop=threading.Event()):
        for message in received:
            ids.append(json.loads(message.body)["id"])
            swept.world.queue.delete(message)
    return ids


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("most_listed", [1, 100])
def test_each_once_over_many_sweeps(tmp_path: Path, most_listed: int, after: bool) -> None:  # noqa: FBT001
    """However few entries a sweep may read, and wherever one is killed: every document, and only a killed one twice."""
    for nth in range(1, 100, 3):
        (tmp_path / str(nth)).mkdir()
        swept = untouched(tmp_path / str(nth), 5)
        countdown = Countdown(nth, DiedError, after=after)
        sweep(swept, countdown, most_listed=most_listed)
        for _ in range(4):
            sweep(swept, most_listed=most_listed)
        ids = Counter(take(swept))
        assert set(ids) == {f"d{number}" for number in range(5)}
        assert sum(ids.values()) <= 5 + bool(countdown.happened)
        swept.world.ledger.close()
        if not countdown.happened:
            return
    pytest.fail("a sweep has fewer than 100 edge calls")


def test_never_again_after_it_was_enqueued(tmp_path: Path) -> None:
    """Its message may wait for days; a second one would only hide that it was lost, which an audit says."""
    swept = untouched(tmp_path, 3)
    assert sweep(swept) == {"enqueued": 3}
    assert take(swept) == ["d0", "d1", "d2"]
    assert sweep(swept) == {}
    assert [str(finding.check) for finding in swept.audit()] == ["lost"] * 3


def test_a_queue_that_is_full_is_not_filled_further(tmp_path: Path) -> None:
    """What waits in the queue counts against the bound; when there is room again, nothing was passed over."""
    swept = untouched(tmp_path, 5)
    for name in ("x", "y"):
        swept.world.queue.send(json.dumps(own(name)))
    assert sweep(swept, most_enqueued=3) == {"enqueued": 1}
    assert sweep(swept, most_enqueued=3) == {}
    assert sorted(take(swept)) == ["d0", "x", "y"]
    assert sweep(swept, most_enqueued=3) == {"enqueued": 3}
    assert take(swept) == ["d1", "d2", "d3"]
    assert sweep(swept, most_enqueued=3) == {"enqueued": 1}


def test_a_result_of_another_ledger(tmp_path: Path) -> None:
    """Another host has converted it, and this ledger cannot know: the store does."""
    swept = untouched(tmp_path, 2)
    put = swept.world.store.put
    put("d1", fence=1, artefacts=conversion().artefacts, manifest={"fencing_token": 1, "pages": []})
    assert sweep(swept) == {"enqueued": 1}
    assert take(swept) == ["d0"]


def test_a_young_one_is_not_forgotten(tmp_path: Path) -> None:
    """Its message may be on its way; a later pass sees it again."""
    swept = untouched(tmp_path, 2)
    assert sweep(swept, forgotten_after_s=8 * 3600) == {}
    swept.world.clock.advance(3_600)
    assert sweep(swept, forgotten_after_s=8 * 3600) == {"enqueued": 2}


def test_a_dry_run_says_what_it_would_enqueue(tmp_path: Path) -> None:
    """And leaves ledger, queue and cursor as they are."""
    swept = untouched(tmp_path, 5)
    dry = swept.sweep(rules=replace(RULES, dry_run=True, search=SearchRules(most_listed=1)))
    assert (dry.did[0].what, dry.did[0].document_id, dry.did[0].detail) == ("enqueued", "d0", "s3://in/0.pdf")
    assert sum(swept.world.queue.depth().values()) == 0
    assert swept.recovery.note(f"{CURSOR}s3://in/") is None
    assert swept.world.ledger.document("d0") is None
    assert sweep(swept) == {"enqueued": 5}


def test_a_source_that_cannot_be_listed(tmp_path: Path) -> None:
    """Everything else is done and told first, and the sweep ends with the reason."""
    swept = gone(tmp_path)
    swept.listings = forgotten_listing = [MemoryListing([], modified_at=swept.world.clock.now())]
    world, missing = (
        swept.world,
        Countdown(1, lambda: ResourceError("cannot list s3://in/: no such bucket"), after=False),
    )
    edges = SweepEdges(
        queue=world.queue,
        ledger=world.ledger,
        recovery=swept.recovery,
        store=world.store,
        checkpoints=world.checkpoints,
        clock=world.clock,
        alive=lambda _holder: False,
        listings=[missing.around(each, "listing") for each in forgotten_listing],
    )
    sweeping = Sweep(edges, RULES)
    with pytest.raises(ResourceError, match="no such bucket"):
        sweeping.run()
    assert [each.what for each in sweeping.did] == ["parked", "alerted"]


def test_it_is_converted_under_the_id_that_its_event_would_have_given(tmp_path: Path) -> None:
    """The event that comes late finds the document settled."""
    swept = forgotten(tmp_path)
    assert sweep(swept) == {"enqueued": 1}
    swept.daemon()
    settled = swept.world.ledger.settled("lost")
    assert settled is not None
    assert swept.audit() == []


def test_only_what_a_sweep_owes_is_sent_from_the_ledger(tmp_path: Path) -> None:
    """A reclaim of another ledger's letter is registered too, and sent by its letter."""
    swept = untouched(tmp_path, 0)
    swept.listings = []
    (document,) = documents(1)
    assert swept.recovery.reclaim(document, key="message:m", attempt=None, now=swept.world.clock.now()) == 1
    assert sweep(swept) == {}
    swept.recovery.register(Document(id="owed", uri="s3://in/owed.pdf"), now=swept.world.clock.now())
    assert sweep(swept) == {"enqueued": 1}
    assert take(swept) == ["owed"]


def test_a_name_that_sqs_refuses(tmp_path: Path) -> None:
    """Whoever may upload may choose the key: no key makes a message that cannot be sent, or is read otherwise."""
    for name in ("\ufffe", "\U0001ffff", "é a+b%20", '"\\'):
        document = Document(id="d", uri=f"s3://bucket/{name}.pdf", etag="1")
        body = body_of(document)
        assert body == sendable(body)
        assert read(body, message_id="m").documents == (document,)


def test_memory_does_not_grow_with_the_source(tmp_path: Path) -> None:
    """Fifty thousand known keys are passed over a page at a time."""
    swept = untouched(tmp_path, 50_000, page=1_000)
    ledger = swept.world.ledger
    assert isinstance(swept.recovery, SqliteRecovery)
    with ledger.file.write() as db:  # type: ignore[attr-defined]  # the real one
        db.executemany(
            "INSERT INTO documents (id, uri, etag, options, registered_us) VALUES (?, ?, 'e', '{}', 0)",
            [(each.id, each.uri) for each in documents(49_999)],
        )
    assert sweep(swept) == {"enqueued": 1}
    assert swept.listings[0].read == 50_000
