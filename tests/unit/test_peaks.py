"""What was needed before: enough of it is believed, what a limit cut off is not, and nothing grows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from daemon.admission import Pool
from daemon.errors import WorldError
from daemon.ledger import Claimed
from daemon.memory import STUDIED, Memory, studying
from daemon.model import Cause, Document, Holder, MediaType, Outcome, ResultStatus, Settled
from daemon.peaks import Peaks, Traits, by_name
from daemon.sizing import CHILD_MINIMUM_BYTES, GIB
from tests.fakes.ledger import MemoryLedger

MIB = 2**20
NOW = datetime(2026, 12, 1, tzinfo=UTC)
PDF = Traits(media_type=MediaType.PDF)
SMALL, LARGE = (Traits(media_type=MediaType.PDF, size_bytes=size) for size in (10_000, 50_000_000))
POOL = Pool(workers=2, share_bytes=4 * GIB, total_bytes=8 * GIB, most_bytes=8 * GIB)


def ended(peak_bytes: int, cause: Cause = Cause.CONVERTED) -> Outcome:
    """A child that had this peak."""
    return Outcome(cause=cause, detail="", child=1, peak_rss_bytes=peak_bytes)


def learned(traits: Traits, *peaks_bytes: int) -> Peaks:
    """One child for each peak."""
    peaks = Peaks()
    for peak_bytes in peaks_bytes:
        peaks.learn(traits, [ended(peak_bytes)])
    return peaks


def test_the_largest_but_one_in_twenty_and_a_quarter_more() -> None:
    """One that went beyond the others does not speak for all of them."""
    assert learned(SMALL, *[400 * MIB] * 19, 3000 * MIB).expected_bytes(SMALL) == 500 * MIB
    assert learned(SMALL, *[400 * MIB] * 18, 800 * MIB, 3000 * MIB).expected_bytes(SMALL) == 1000 * MIB


def test_too_few_say_nothing() -> None:
    """Nineteen documents have no percentile of twenty."""
    assert learned(SMALL, *[400 * MIB] * 19).expected_bytes(SMALL) is None


def test_by_kind_where_the_size_is_not_known_or_not_seen() -> None:
    """Before the bytes are here only the kind is known, and that is better than nothing."""
    peaks = learned(SMALL, *[400 * MIB] * 20)
    assert peaks.expected_bytes(PDF) == 500 * MIB
    assert peaks.expected_bytes(LARGE) == 500 * MIB
    assert peaks.expected_bytes(Traits(media_type=MediaType.PNG)) is None
    peaks.learn(LARGE, [ended(1600 * MIB)] * 20)
    assert peaks.expected_bytes(LARGE) == 2000 * MIB
    assert peaks.expected_bytes(SMALL) == 500 * MIB


def test_what_a_limit_cut_off_is_not_learned() -> None:
    """A flood of bombs must not make every small document look like one; nor a child that was never looked at."""
    peaks = learned(SMALL, *[400 * MIB] * 20)
    peaks.learn(SMALL, [ended(4000 * MIB, Cause.MEMORY), ended(0, Cause.CRASHED)] * 100)
    assert peaks.expected_bytes(SMALL) == 500 * MIB


def test_the_last_ones_are_believed() -> None:
    """Another engine, other documents: what was true a thousand documents ago is forgotten."""
    assert learned(SMALL, *[2000 * MIB] * 1000, *[400 * MIB] * 64).expected_bytes(SMALL) == 500 * MIB


@given(st.lists(st.tuples(st.sampled_from(MediaType), st.integers(0, 2**40), st.integers(1, 2**40)), max_size=200))
def test_nothing_grows_with_the_number_of_documents(seen: Sequence[tuple[MediaType, int, int]]) -> None:
    """Whatever comes: a class of kinds and sizes, and a window of peaks for each."""
    peaks = Peaks()
    for media_type, size_bytes, peak_bytes in [*seen, *seen, *seen]:
        peaks.learn(Traits(media_type=media_type, size_bytes=size_bytes), [ended(peak_bytes)])
    assert len(peaks._seen) <= len(MediaType) * 7
    assert all(len(window) <= 64 for window in peaks._seen.values())


@pytest.mark.parametrize(
    ("size_bytes", "size_class"),
    [(None, None), (0, 0), (65_536, 0), (65_537, 1), (524_288, 1), (4_194_305, 3), (2**40, 5)],
)
def test_classes_of_size(size_bytes: int | None, size_class: int | None) -> None:
    """Eight times as wide each, the last one without an end."""
    assert Traits(size_bytes=size_bytes).size_class == size_class


@pytest.mark.parametrize(
    ("uri", "media_type"),
    [
        ("s3://bucket/a/Report.PDF", MediaType.PDF),
        ("https://host/scan.tif?signature=a.png", MediaType.TIFF),
        ("s3://bucket/noname", None),
        ("file:///x/photo.jpeg", MediaType.JPEG),
    ],
)
def test_what_a_name_promises(uri: str, media_type: MediaType | None) -> None:
    """Only for what is asked for before the bytes are here; nothing is believed by its name afterwards."""
    assert by_name(uri) is media_type


def document(name: str) -> Document:
    """A PDF."""
    return Document(id=name, uri=f"s3://bucket/{name}.pdf")


def test_what_is_asked_for() -> None:
    """Nothing known: an ordinary need. Learned: that, from the least limit of a child up to a share."""
    memory = Memory(POOL)
    assert memory.first(document("a")).need_bytes == GIB
    for peak_bytes, need_bytes in ((100 * MIB, CHILD_MINIMUM_BYTES), (1600 * MIB, 2000 * MIB), (7 * GIB, 4 * GIB)):
        for _ in range(64):
            memory.learn("b", LARGE, ended(peak_bytes), limit_bytes=POOL.share_bytes)
        assert memory.ordinary(document("a"), LARGE).need_bytes == need_bytes
    assert memory.ordinary(document("a"), LARGE).size_bytes == LARGE.size_bytes


def test_more_is_asked_for_by_who_died_of_a_share_until_that_did_not_help() -> None:
    """One child with a raised limit for each attempt of a bomb would be one too many."""
    memory = Memory(POOL)
    memory.learn("a", PDF, ended(4 * GIB, Cause.MEMORY), limit_bytes=4 * GIB)
    assert memory.first(document("a")).need_bytes == 7 * GIB
    assert memory.first(document("b")).need_bytes == GIB
    memory.learn("a", PDF, ended(7 * GIB, Cause.MEMORY), limit_bytes=7 * GIB)
    memory.learn("a", PDF, ended(4 * GIB, Cause.MEMORY), limit_bytes=4 * GIB)
    assert memory.first(document("a")).need_bytes == GIB


def test_documents_that_died_of_memory_are_remembered_in_a_bounded_way() -> None:
    """The oldest is forgotten first."""
    memory = Memory(POOL)
    for number in range(1000):
        memory.learn(str(number), PDF, ended(4 * GIB, Cause.MEMORY), limit_bytes=4 * GIB)
    assert sum(memory.more_helps(str(number)) for number in range(1000)) == 256
    assert memory.more_helps("999")


def test_a_new_daemon_learns_from_the_ledger() -> None:
    """A restart forgets nothing that matters: peaks of what ended last, and who died of its share or of more."""
    ledger = MemoryLedger()
    holder = Holder(host="here", boot_id="boot", invocation="one", pid=1)
    lives = {"bomb": 7 * GIB, "short": 4 * GIB} | {f"d{number}": 1600 * MIB for number in range(2 * STUDIED)}
    for name, peak_bytes in lives.items():
        claim = ledger.claim(document(name), holder=holder, now=NOW, lease_s=60)
        assert isinstance(claim, Claimed)
        died = name in {"bomb", "short"}
        ledger.record_outcome(claim.attempt, ended(peak_bytes, Cause.MEMORY if died else Cause.CONVERTED))
        ledger.settle(
            claim.attempt,
            Settled(
                document_id=name,
                status=ResultStatus.FAILED if died else ResultStatus.CONVERTED,
                attempt=1,
                settled_at=NOW,
                cause=Cause.MEMORY if died else Cause.CONVERTED,
                detail="",
            ),
        )
        if died:
            memory = Memory(POOL)
            memory.study(ledger, stop=threading.Event())
            assert memory.more_helps(name) is (name == "short")
    memory = Memory(POOL)
    assert memory.study(ledger, stop=threading.Event()) == STUDIED
    assert memory.first(document("new")).need_bytes == 2000 * MIB


def test_a_ledger_that_does_not_answer_costs_only_what_it_would_have_taught() -> None:
    """What an earlier daemon learned is worth no refused start, and is told."""

    class Silent(MemoryLedger):
        def recent(self, *, limit: int) -> Sequence[Settled]:
            del limit
            raise WorldError(Cause.STORE_UNAVAILABLE, "no answer")

    memory = Memory(POOL)
    with structlog.testing.capture_logs() as logs, studying(memory, Silent()):
        pass
    assert [(line["event"], line["log_level"]) for line in logs] == [("memory.not_studied", "warning")]
    assert memory.first(document("a")).need_bytes == GIB


def test_a_daemon_that_leaves_does_not_wait_for_its_studies() -> None:
    """Told to stop in the middle of them: they end after the document in hand, and the ledger may be closed."""
    entered, leave = threading.Event(), threading.Event()

    class Slow(MemoryLedger):
        def document(self, document_id: str) -> Document | None:
            entered.set()
            assert leave.wait(30)
            return super().document(document_id)

    ledger = Slow()
    settled = Settled(
        document_id="a", status=ResultStatus.CONVERTED, attempt=1, settled_at=NOW, cause=Cause.CONVERTED, detail=""
    )
    ledger._settled = {str(number): settled for number in range(STUDIED)}
    stop = threading.Event()
    studied: list[int] = []
    thread = threading.Thread(target=lambda: studied.append(Memory(POOL).study(ledger, stop=stop)))
    thread.start()
    assert entered.wait(30)
    stop.set()
    leave.set()
    thread.join(30)
    assert studied == [1]
