"""What only the DynamoDB ledger must do: clocks that differ, answers that are lost, limits of items, things that go."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from daemon import dynamodb_calls
from daemon.dynamodb_calls import ChangedError, date_of
from daemon.dynamodb_documents import MOST_HISTORY
from daemon.dynamodb_items import key
from daemon.errors import ConfigurationError, DocumentError, LeaseLostError, ResourceError, WorldError
from daemon.ledger import Claimed, Held
from daemon.ledger_dynamodb import DynamoDbLedger
from daemon.model import Cause, Document, Holder
from daemon.recovery_dynamodb import DynamoDbRecovery
from tests.contract.dynamo import KEEP_S, TABLE, ServerClock, calls, ledger_at, make_table
from tests.contract.ledger_contract import CRASH, HERE, LEASE_S, T0, THERE, after, claimed, converted, document, failed
from tests.contract.recovery_contract import PARKED

pytestmark = pytest.mark.aws

SKEWS = (-600.0, 0.0, 600.0)


@pytest.fixture
def server() -> ServerClock:
    """The table's clock."""
    return ServerClock()


@pytest.fixture
def table(moto_endpoint: str) -> str:
    """An empty one; the server's URL."""
    make_table(moto_endpoint)
    return moto_endpoint


@pytest.fixture
def ledger(table: str, server: ServerClock) -> DynamoDbLedger:
    """Of a host whose clock is right."""
    return ledger_at(table, server)


def item(ledger: DynamoDbLedger, document_id: str = "report-1", sk: str = "head") -> Any:
    """What lies in the table."""
    return ledger.documents.calls.get(key(document_id, sk))[0]


# Clocks


@pytest.mark.parametrize("takers", SKEWS)
@pytest.mark.parametrize("holders", SKEWS)
def test_clocks_that_differ(table: str, server: ServerClock, holders: float, takers: float) -> None:
    """Whatever the holder's and the taker's clocks say, a lease lasts its length, and not much longer."""
    one, two = ledger_at(table, server, skew_s=holders), ledger_at(table, server, skew_s=takers)
    mine, theirs = T0 + timedelta(seconds=holders), T0 + timedelta(seconds=takers)
    attempt = claimed(one, document(), now=mine).attempt
    assert attempt.lease_until == mine + timedelta(seconds=LEASE_S), "shown on the holder's clock"

    def take(seconds: float) -> Claimed | Held:
        server.now = after(seconds)
        now = theirs + timedelta(seconds=seconds)
        claim = two.claim(document(), holder=THERE, now=now, lease_s=LEASE_S)
        assert isinstance(claim, Claimed | Held)
        return claim

    held = take(0.0)
    assert held == Held(holder=HERE, lease_until=theirs + timedelta(seconds=LEASE_S)), "shown on the taker's clock"
    assert isinstance(take(LEASE_S - 1), Held)
    one.renew(attempt, now=mine + timedelta(seconds=LEASE_S - 1), lease_s=LEASE_S)
    assert isinstance(take(2 * LEASE_S - 2), Held)
    assert isinstance(take(2 * LEASE_S - 1), Claimed)
    with pytest.raises(LeaseLostError, match="taken over"):
        one.check(attempt)


@pytest.mark.parametrize("skew_s", SKEWS)
def test_leases_as_a_sweep_compares_them(table: str, server: ServerClock, skew_s: float) -> None:
    """A sweep on a host whose clock is off must not think that a living parent's lease has run out, nor the reverse."""
    claimed(ledger_at(table, server), document())
    server.now = after(LEASE_S / 2)
    here = ledger_at(table, server, skew_s=skew_s)
    local = server.now + timedelta(seconds=skew_s)
    left = {
        here.running()[0].lease_until - local,
        here.attempts("report-1")[0].lease_until - local,
        DynamoDbRecovery(here).standing("report-1").attempts[0].lease_until - local,
    }
    assert left == {timedelta(seconds=LEASE_S / 2)}


def test_the_servers_own_date(table: str) -> None:
    """The real answer bears a date, which is that of this machine, where the server runs."""
    _, at = calls(table).get(key("nobody"))
    assert abs(at - datetime.now(UTC)) < timedelta(minutes=2)


@pytest.mark.parametrize("headers", [{}, {"date": ""}, {"date": "yesterday"}])
def test_an_answer_without_a_date(headers: Mapping[str, str]) -> None:
    """Without the server's clock nothing is taken over: an outage, and a sentence about proxies."""
    with pytest.raises(WorldError, match="proxy"):
        date_of({"ResponseMetadata": {"HTTPHeaders": headers}})


def test_another_boot_of_the_same_name(table: str, server: ServerClock) -> None:
    """A host that starts spares the leases of another host with its name; its own earlier life's it breaks."""
    claimed(ledger_at(table, server), document())
    for boot, broken in (("boot-9", 0), (HERE.boot_id, 1)):
        ledger = ledger_at(table, server, boot_id=boot)
        assert ledger.break_leases(host=HERE.host, invocation="new", now=T0) == broken


# Answers that are lost, and refusals


WRITES, READS = ("PutItem", "TransactWriteItems"), ("GetItem", "Query")


def lose_answers(ledger: DynamoDbLedger, operations: tuple[str, ...]) -> list[object]:
    """Let every other call of these kinds take effect and seem to fail; what was lost."""
    lost: list[object] = []
    count = itertools.count()

    def lose(model: object, **_: object) -> None:
        if next(count) % 2 == 0:
            lost.append(model)
            raise ConnectionClosedError(endpoint_url="lost")

    for operation in operations:
        ledger.documents.calls.client().meta.events.register(f"after-call.dynamodb.{operation}", lose)
    return lost


def _claim(ledger: DynamoDbLedger) -> object:
    return ledger.claim(document("new"), holder=HERE, now=T0, lease_s=LEASE_S)


def _take_over(ledger: DynamoDbLedger) -> object:
    return ledger.claim(document(), holder=THERE, now=after(LEASE_S), lease_s=LEASE_S)


def _record(ledger: DynamoDbLedger) -> object:
    ledger.record_outcome(ledger.running()[0], CRASH)
    return ledger.attempts("report-1")


def _end(ledger: DynamoDbLedger) -> object:
    ledger.end_attempt(ledger.running()[0], now=T0)
    return ledger.attempts("report-1")


def _settle(ledger: DynamoDbLedger) -> object:
    attempt = ledger.running()[0]
    ledger.settle(attempt, converted(attempt))
    return ledger.settled("report-1")


def _reopen(ledger: DynamoDbLedger) -> object:
    _settle(ledger)
    return ledger.reopen("report-1")


def _reclaim(ledger: DynamoDbLedger) -> object:
    recovery = DynamoDbRecovery(ledger)
    number = recovery.reclaim(document(), key="message:1", attempt=None, now=T0)
    return number, recovery.standing("report-1").spent


def _park_and_retry(ledger: DynamoDbLedger) -> object:
    recovery = DynamoDbRecovery(ledger)
    recovery.park(PARKED)
    return recovery.parked(), recovery.retry(PARKED.key, now=T0), recovery.standing("report-1").spent


@pytest.mark.parametrize("operations", [WRITES, READS], ids=["write", "read"])
@pytest.mark.parametrize(
    "what", [_claim, _take_over, _record, _end, _settle, _reopen, _reclaim, _park_and_retry], ids=lambda f: f.__name__
)
def test_a_lost_answer(
    table: str, server: ServerClock, what: Callable[[DynamoDbLedger], object], operations: tuple[str, ...]
) -> None:
    """What was written and not confirmed is neither done twice nor taken for somebody else's."""
    answers, states = [], []
    for lossy in (False, True):
        server.now = T0
        ledger = ledger_at(table, server, table=f"{TABLE}-{lossy}")
        claimed(ledger, document())
        server.now = after(LEASE_S)
        lost = lose_answers(ledger, operations) if lossy else []
        answers.append(what(ledger))
        assert bool(lost) == lossy
        states.append((ledger.attempts("report-1"), ledger.settled("report-1"), ledger.counts()))
    assert answers[0] == answers[1]
    assert states[0] == states[1]


def fail(ledger: DynamoDbLedger, error: Exception, times: int) -> list[object]:
    """Let the next calls fail before they reach the table; those that did."""
    failed_calls: list[object] = []

    def raise_it(**kwargs: object) -> None:
        if len(failed_calls) < times:
            failed_calls.append(kwargs.get("model"))
            raise error

    ledger.documents.calls.client().meta.events.register("before-call.dynamodb", raise_it)
    return failed_calls


def client_error(code: str, *reasons: str) -> ClientError:
    """As botocore raises it; `reasons` are those of a cancelled transaction."""
    response: Any = {"Error": {"Code": code, "Message": "said so"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    if reasons:
        response["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return ClientError(response, "Call")


CANCELLED = "TransactionCanceledException"


@pytest.mark.parametrize(
    "error",
    [
        client_error("ProvisionedThroughputExceededException"),
        client_error("ThrottlingException"),
        client_error("TransactionConflictException"),
        client_error(CANCELLED, "None", "TransactionConflict"),
        client_error(CANCELLED, "ThrottlingError", "None"),
        client_error("InternalServerError"),
        client_error("ExpiredTokenException"),
        ConnectionClosedError(endpoint_url="gone"),
    ],
    ids=str,
)
def test_what_passes_is_waited_for(ledger: DynamoDbLedger, error: Exception) -> None:
    """Throttling, a transaction that met another, a broken connection: tried again, and nobody notices."""
    happened = fail(ledger, error, times=2)
    assert claimed(ledger, document()).attempt.number == 1
    assert len(happened) == (1 if "ExpiredToken" in str(error) else 2), "credentials: the client is a new one"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (client_error("ThrottlingException"), WorldError),
        (client_error("AccessDeniedException"), WorldError),
        (client_error("ResourceNotFoundException"), ResourceError),
        (client_error("ValidationException"), ConfigurationError),
        (client_error(CANCELLED, "None", "ValidationError"), ConfigurationError),
        (client_error("ConditionalCheckFailedException"), ChangedError),
        (client_error(CANCELLED, "TransactionConflict", "ConditionalCheckFailed"), ChangedError),
    ],
    ids=str,
)
def test_what_does_not_pass(
    table: str, monkeypatch: pytest.MonkeyPatch, error: ClientError, expected: type[Exception]
) -> None:
    """Each refusal is named for whose problem it is, in bounded time; a failed condition is never tried again."""
    monkeypatch.setattr(dynamodb_calls, "LONGEST_WAIT_S", 0.01)
    made = calls(table, retry_for_s=2.0)
    made.client()  # on a busy machine its making alone takes longer
    asked = []

    def request(_: object) -> None:
        asked.append(1)
        raise error

    with pytest.raises(expected, match="cannot write"):
        made.call("write", request)
    assert (len(asked) > 1) == (error.response["Error"]["Code"] == "ThrottlingException")


def test_keys_that_a_batch_leaves_over(ledger: DynamoDbLedger) -> None:
    """Under load DynamoDB gives part of a batch; the rest is asked for until it is there."""
    for number in range(5):
        claimed(ledger, document(f"doc-{number}"))
    rounds: list[int] = []

    def leave_over(parsed: Any, **_: object) -> None:
        found = parsed["Responses"][TABLE]
        rounds.append(len(found))
        if len(found) > 1:
            rest = [{"pk": each["pk"], "sk": each["sk"]} for each in found[1:]]
            parsed["Responses"][TABLE] = found[:1]
            parsed["UnprocessedKeys"] = {TABLE: {"Keys": rest}}

    ledger.documents.calls.client().meta.events.register("after-call.dynamodb.BatchGetItem", leave_over)
    assert len(ledger.running()) == 5
    assert rounds == [5, 4, 3, 2, 1]


def test_a_heartbeat_beside_the_slot(ledger: DynamoDbLedger) -> None:
    """Renewals while outcomes are recorded: none of either is lost."""
    attempt = claimed(ledger, document()).attempt
    ended = threading.Event()

    def beat() -> None:
        while not ended.is_set():
            ledger.renew(attempt, now=T0, lease_s=LEASE_S)

    heart = threading.Thread(target=beat)
    heart.start()
    for number in range(1, 11):
        ledger.record_outcome(attempt, replace(CRASH, child=number))
    ended.set()
    heart.join()
    assert [each.child for each in ledger.attempts("report-1")[0].outcomes] == list(range(1, 11))


# Limits


def test_outcomes_that_are_too_long_for_an_item(ledger: DynamoDbLedger) -> None:
    """A document that crashes on every page with random bytes on stderr: the newest are whole, all are counted."""
    attempt = claimed(ledger, document()).attempt
    noise = random.Random(1)
    for number in range(1, 13):
        text = "".join(chr(noise.randrange(0x20, 0x3000)) for _ in range(60_000))
        ledger.record_outcome(attempt, replace(CRASH, child=number, stderr_tail=text, detail=f"crash {number}"))
    outcomes = ledger.attempts("report-1")[0].outcomes
    assert [(each.child, each.detail, each.signal) for each in outcomes] == [
        (number, f"crash {number}", "SIGSEGV") for number in range(1, 13)
    ]
    assert len(outcomes[0].stderr_tail) <= 500
    assert outcomes[-1].stderr_tail == text
    ledger.settle(attempt, replace(failed(attempt), detail="€" * 200_000))
    settled = ledger.settled("report-1")
    assert settled is not None
    assert "bytes left out" in settled.detail
    ledger.settle(attempt, replace(failed(attempt), detail="€" * 200_000))


def test_a_document_that_is_too_long_for_an_item(ledger: DynamoDbLedger) -> None:
    """An ETag of a megabyte is the message's fault: it is dead-lettered, and does not come back for ever."""
    with pytest.raises(DocumentError, match="etag") as caught:
        claimed(ledger, replace(document(), etag="e" * 100_000))
    assert caught.value.cause is Cause.MALFORMED_MESSAGE
    assert ledger.document("report-1") is None


@pytest.mark.parametrize("wanted", ["", "x" * 5_000, "é" * 100, "\udcff", "report-1"])
def test_whatever_a_person_asks_for(ledger: DynamoDbLedger, wanted: str) -> None:
    """DynamoDB refuses empty keys and long ones; a person is told that there is nothing."""
    claimed(ledger, document())
    assert [each.id for each in ledger.find(wanted)] == (["report-1"] if wanted in {"", "report-1"} else [])


def test_more_attempts_than_a_transaction_takes(ledger: DynamoDbLedger) -> None:
    """Released a hundred times in a long outage: all attempts are told, and the document can still be settled."""
    count = MOST_HISTORY + 15
    for number in range(1, count):
        attempt = claimed(ledger, document(), now=after(number)).attempt
        ledger.end_attempt(attempt, now=after(number))
    last = claimed(ledger, document(), now=after(count))
    assert len(last.history) == count - 1
    ledger.settle(last.attempt, converted(last.attempt))
    assert [each.number for each in ledger.attempts("report-1")] == list(range(1, count + 1))
    history = list(ledger.documents.calls.query({"pk": "document#report-1", "sk": ""}, begins="history"))
    assert all("expires_at" in each for each in history), "all goes with the document"


def test_undecodable_text(ledger: DynamoDbLedger) -> None:
    """A surrogate out of a file name is kept escaped, and the document is the same when it comes back."""
    odd = Document(id="odd", uri="file:///in/\udcff.pdf")
    attempt = claimed(ledger, odd).attempt
    ledger.end_attempt(attempt, now=T0)
    assert claimed(ledger, odd).attempt.number == 2
    assert [each.uri for each in ledger.find("file:///in/\udcff.pdf")] == ["file:///in/\\udcff.pdf"]


# What goes


def expiry(ledger: DynamoDbLedger, sk: str = "head") -> int | None:
    """Seconds from 1970; None: it stays."""
    found = item(ledger, sk=sk)
    return int(found["expires_at"]["N"]) if "expires_at" in found else None


def test_only_what_is_over_goes(ledger: DynamoDbLedger) -> None:
    """Published: goes after its time. Running, waiting, failed, parked, sent back: stays. Dropped: goes."""
    due = int(T0.timestamp() + KEEP_S)
    recovery = DynamoDbRecovery(ledger)
    attempt = claimed(ledger, document()).attempt
    assert expiry(ledger) is None, "it runs"
    ledger.settle(attempt, failed(attempt))
    assert expiry(ledger) is None, "its dead letter may still come"
    recovery.park(PARKED)
    recovery.retry(PARKED.key, now=T0)
    recovery.unpark(PARKED.key)
    assert expiry(ledger) is None, "it was sent back"
    attempt = claimed(ledger, document()).attempt
    ledger.settle(attempt, failed(attempt))
    recovery.park(PARKED)
    assert expiry(ledger) is None, "it is parked"
    recovery.unpark(PARKED.key)
    assert expiry(ledger) == due, "a person has dropped it"
    ledger.reopen("report-1")
    assert expiry(ledger) is None, "it was taken back"
    attempt = claimed(ledger, document()).attempt
    ledger.settle(attempt, converted(attempt))
    assert expiry(ledger) == due, "it is published"
    recovery.park(PARKED)
    assert expiry(ledger) is None, "parked all the same"


def test_a_document_that_comes_back_after_it_went(ledger: DynamoDbLedger) -> None:
    """DynamoDB removes items in any order; what is left of an earlier life is not taken for this one's."""
    first = claimed(ledger, document()).attempt
    ledger.end_attempt(first, now=T0)
    attempt = claimed(ledger, document()).attempt
    ledger.settle(attempt, converted(attempt))
    ledger.documents.calls.client().delete_item(TableName=TABLE, Key=key("report-1"))
    assert ledger.attempts("report-1") == ()
    with pytest.raises(LeaseLostError, match="does not know it any more"):
        ledger.check(attempt)
    again = claimed(ledger, document(), now=after(1))
    assert (again.attempt.number, again.history) == (1, ())
    ledger.end_attempt(again.attempt, now=after(1))
    assert [each.number for each in claimed(ledger, document(), now=after(2)).history] == [1]


def test_for_ever(table: str, server: ServerClock) -> None:
    """`keep_days` 0: nothing ever goes."""
    ledger = ledger_at(table, server, keep_s=0.0)
    attempt = claimed(ledger, document()).attempt
    ledger.settle(attempt, converted(attempt))
    assert expiry(ledger) is None


def test_a_newer_versions_item(ledger: DynamoDbLedger) -> None:
    """A host that was not upgraded yet does not touch what it cannot read."""
    claimed(ledger, document())
    newer = item(ledger) | {"schema": {"N": "2"}}
    ledger.documents.calls.client().put_item(TableName=TABLE, Item=newer)
    with pytest.raises(ConfigurationError, match="Upgrade this host"):
        ledger.claim(document(), holder=Holder(host="x", boot_id="x", invocation="x", pid=1), now=T0, lease_s=LEASE_S)
