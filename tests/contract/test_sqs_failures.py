"""SQS when it does not answer as it should: no message is lost, none is believed to be deleted or dead-lettered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from daemon.config_queue import QueueSettings
from daemon.errors import ConfigurationError, LeaseLostError, ResourceError, WorldError
from daemon.heartbeat import Heartbeat, InHand
from daemon.killswitch import KillSwitch
from daemon.model import Cause, KillReason, Message
from daemon.queue import DeadLetter, DeadMessage
from daemon.sqs import SqsQueue
from tests.contract.queue_contract import NEVER
from tests.fakes.clock import FakeClock
from tests.fakes.ledger import MemoryLedger
from tests.fakes.sqs_stage import NET_S, Stage


@pytest.fixture
def stage(aws_environment: None) -> Iterator[Stage]:
    """A scripted SQS on loopback."""
    server = Stage()
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    yield server
    server.gate.set()
    server.shutdown()
    thread.join()
    server.server_close()


def on(stage: Stage, clock: FakeClock | None = None, **settings: Any) -> SqsQueue:
    """Our queue, in front of the stage."""
    url = f"{stage.url}/1/source"
    given = {"wait_s": 0, "retry_for_s": 5.0, "dead_letter_url": f"{stage.url}/1/dead", **settings}
    return SqsQueue(
        QueueSettings(url=url, endpoint_url=stage.url, **given),
        clock=clock or FakeClock(),
    )


def message(received_s: float = 1000.0) -> Message:
    """A message in hand."""
    return Message(message_id="m", receipt_handle="r", body="b", receive_count=1, received_monotonic_s=received_s)


def size_bytes(sent: dict[str, Any]) -> int:
    """As SQS counts a message."""
    parts = [sent["MessageBody"]]
    for name, value in sent["MessageAttributes"].items():
        parts += [name, value["DataType"], value["StringValue"]]
    return sum(len(part.encode()) for part in parts)


DELIVERED = {"Messages": [{"MessageId": "m", "ReceiptHandle": "r", "Body": "b"}]}


@pytest.mark.aws
@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (503, "ServiceUnavailable"), (400, "ThrottlingException"), (429, "Anything")],
)
def test_what_waiting_cures_is_retried(stage: Stage, status: int, code: str) -> None:
    """Throttling and 5xx cost a moment, not a document."""
    stage.fail(2, status, code)
    on(stage).delete(message())
    assert [stage.called()[0] for _ in range(3)] == ["DeleteMessage"] * 3


@pytest.mark.aws
@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "InvalidClientTokenId"])
def test_expired_credentials_are_looked_up_again(stage: Stage, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A long job goes on with the new credentials; the old ones are not tried for ever."""
    stage.fail(1, 403, code)
    queue = on(stage)
    client_before = queue._calls.client()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "renewed")
    queue.extend(message(), visibility_s=60)
    assert [stage.called()[2] for _ in range(2)] == ["testing", "renewed"]
    assert queue._calls.client() is not client_before


@pytest.mark.aws
def test_an_outage_is_the_worlds_after_a_bound(stage: Stage) -> None:
    """Retries end; then the parent backs off and says so."""
    stage.fail(1000, 503, "ServiceUnavailable")
    queue = on(stage, retry_for_s=0.3)
    for step in (lambda: queue.delete(message()), lambda: queue.receive(1, stop=NEVER), queue.depth):
        with pytest.raises(WorldError) as caught:
            step()
        assert caught.value.cause is Cause.QUEUE_UNAVAILABLE


@pytest.mark.aws
def test_nobody_listening_is_the_worlds(aws_environment: None) -> None:
    """A refused connection is an outage."""
    settings = QueueSettings(url="http://127.0.0.1:9/1/q", endpoint_url="http://127.0.0.1:9", retry_for_s=0.2)
    with pytest.raises(WorldError, match="look at network"):
        SqsQueue(settings, clock=FakeClock()).delete(message())


@pytest.mark.aws
@pytest.mark.parametrize("code", ["InvalidParameterValue", "ReceiptHandleIsInvalid", "MessageNotInflight"])
def test_a_refused_extension_is_a_lost_lease(stage: Stage, code: str) -> None:
    """Stop at once, publish nothing: no retry makes a foreign receipt ours."""
    stage.fail(1, 400, code)
    with pytest.raises(LeaseLostError):
        on(stage).extend(message(), visibility_s=60)
    assert stage.called()[0] == "ChangeMessageVisibility"
    assert stage.calls.empty()


@pytest.mark.aws
def test_a_refused_receive_is_no_lost_lease(stage: Stage) -> None:
    """The same code means a setting that SQS does not take when no receipt is involved."""
    stage.fail(1, 400, "InvalidParameterValue")
    with pytest.raises(ConfigurationError):
        on(stage).receive(1, stop=NEVER)


@pytest.mark.aws
def test_a_denied_call_is_the_worlds_in_mid_run_and_the_operators_at_start(stage: Stage) -> None:
    """A policy on its way must not end a running daemon; a wrong role must not start one."""
    queue = on(stage)
    stage.fail(2, 403, "AccessDenied")
    with pytest.raises(WorldError, match="allow this role"):
        queue.delete(message())
    with pytest.raises(ResourceError, match="allow this role"):
        queue.attributes()


@pytest.mark.aws
def test_an_extension_is_clipped_to_twelve_hours_from_before_the_call(stage: Stage) -> None:
    """AWS refuses what reaches beyond; the end of our lease is never later than its own."""
    clock = FakeClock(monotonic_s=1000.0)
    queue = on(stage, clock)
    stage.script.put((200, None, DELIVERED))
    (received,) = queue.receive(1, stop=NEVER)
    assert received.received_monotonic_s == 1000.0
    clock.advance(43_200 - 30 - 40)
    queue.extend(received, visibility_s=60)
    stage.called()
    assert stage.called()[1]["VisibilityTimeout"] == 40


@pytest.mark.aws
def test_receive_asks_for_our_own_visibility(stage: Stage) -> None:
    """The queue's default, whatever it is, never decides when a heartbeat is due."""
    on(stage, visibility_s=90).receive(3, stop=NEVER)
    _, parameters, _ = stage.called()
    assert (parameters["VisibilityTimeout"], parameters["MaxNumberOfMessages"]) == (90, 3)


@pytest.mark.aws
def test_a_stop_abandons_a_long_poll_and_its_message_is_given_back(stage: Stage) -> None:
    """SIGTERM does not wait 20 s, and what arrives in that poll is visible to the next host at once."""
    stage.gate.clear()
    queue, stop = on(stage, wait_s=20), threading.Event()
    returned: SimpleQueue[list[Message]] = SimpleQueue()
    receiving = threading.Thread(target=lambda: returned.put(list(queue.receive(1, stop=stop))))
    receiving.start()
    assert stage.called()[0] == "ReceiveMessage"
    stop.set()
    assert returned.get(timeout=NET_S) == []  # while the poll still hangs: the gate is shut
    stage.script.put((200, None, DELIVERED))
    stage.gate.set()
    action, parameters, _ = stage.called()
    assert action == "ChangeMessageVisibility"
    assert (parameters["ReceiptHandle"], parameters["VisibilityTimeout"]) == ("r", 0)
    receiving.join()
    queue.close()


@pytest.mark.aws
def test_a_stop_cuts_the_retries_of_a_poll_short(stage: Stage) -> None:
    """An outage must not hold up a shutdown: the abandoned poll ends with its next answer."""
    stage.fail(1000, 503, "ServiceUnavailable")
    queue, stop = on(stage, retry_for_s=3600), threading.Event()
    returned: SimpleQueue[list[Message]] = SimpleQueue()
    receiving = threading.Thread(target=lambda: returned.put(list(queue.receive(1, stop=stop))))
    receiving.start()
    for _ in range(2):
        stage.called()
    stop.set()
    assert returned.get(timeout=NET_S) == []
    (poll,) = queue._abandoned
    poll.join(NET_S)
    assert not poll.is_alive()
    # The few that fell between the stop and the glance that saw it; a loop without pauses would make all 1,000.
    assert stage.calls.qsize() < 100
    receiving.join()


@pytest.mark.aws
def test_a_dead_letter_is_not_believed_before_it_is_confirmed(stage: Stage) -> None:
    """Until SQS has said 200 the message may not be deleted."""
    stage.script.put((200, None, {"Attributes": {"MaximumMessageSize": "2048"}}))
    stage.fail(1000, 500, "InternalError")
    with pytest.raises(WorldError):
        on(stage, retry_for_s=0.2).dead_letter(DeadLetter(body="b", cause=Cause.TIMEOUT, detail="slow"))


@pytest.mark.aws
def test_a_dead_letter_fits_the_queue_that_it_goes_to(stage: Stage) -> None:
    """The limit is the dead-letter queue's own, attributes included."""
    stage.script.put((200, None, {"Attributes": {"MaximumMessageSize": "2048"}}))
    stage.script.put((200, None, {"MessageId": "1"}))
    on(stage).dead_letter(DeadLetter(body="b" * 1000, cause=Cause.TIMEOUT, detail="é" * 5000))
    stage.called()
    _, sent, _ = stage.called()
    assert sent["MessageBody"] == "b" * 1000
    assert 2000 < size_bytes(sent) <= 2048


@pytest.mark.aws
@pytest.mark.parametrize("limit", [262_144, 1_048_576])
def test_the_largest_message_with_the_longest_history_is_dead_lettered(stage: Stage, limit: int) -> None:
    """A full body leaves room for causes by being cut at its end; what SQS counts is never above its limit."""
    stage.script.put((200, None, {"Attributes": {"MaximumMessageSize": str(limit)}}))
    stage.script.put((200, None, {"MessageId": "1"}))
    history = "; then ".join(f"killed by SIGSEGV in ocr of page {page}" for page in range(9_999))
    on(stage).dead_letter(DeadLetter(body="é" * (limit // 2), cause=Cause.CRASHED, detail=history, document_id="d"))
    stage.called()
    _, sent, _ = stage.called()
    assert limit - 8 <= size_bytes(sent) <= limit
    attributes = {name: value["StringValue"] for name, value in sent["MessageAttributes"].items()}
    assert (attributes["cause"], attributes["document_id"], attributes["body_bytes"]) == ("crashed", "d", str(limit))
    assert attributes["detail"].startswith("killed by SIGSEGV in ocr of page 0; then ")


@pytest.mark.aws
@pytest.mark.parametrize(("readable", "lower"), [(True, 2048), (False, 1024)])
def test_a_limit_that_was_lowered(stage: Stage, readable: bool, lower: int) -> None:  # noqa: FBT001
    """A document must not hang on a limit that was read an hour ago, or that this role may not read."""
    queue = on(stage)
    letter = DeadLetter(body="b" * 9_000, cause=Cause.TIMEOUT, detail="slow", document_id="d")
    denied: tuple[int, str | None, dict[str, Any]] = (403, "AccessDenied", {})
    stage.script.put((200, None, {"Attributes": {"MaximumMessageSize": "10000"}}) if readable else denied)
    stage.script.put((400, "InvalidParameterValue", {}))
    stage.script.put((200, None, {"Attributes": {"MaximumMessageSize": "2048"}}) if readable else denied)
    stage.script.put((200, None, {"MessageId": "1"}))
    queue.dead_letter(letter)
    calls = [stage.called() for _ in range(4)]
    assert [call[0] for call in calls] == ["GetQueueAttributes", "SendMessage"] * 2
    assert size_bytes(calls[3][1]) <= lower
    assert calls[3][1]["MessageAttributes"]["body_bytes"]["StringValue"] == "9000"


@pytest.mark.aws
def test_a_letter_that_is_refused_whatever_its_size(stage: Stage) -> None:
    """Two tries, then the operator's: no loop, and nothing is believed to be sent."""
    for _ in range(2):
        stage.script.put((200, None, {"Attributes": {"MaximumMessageSize": "262144"}}))
        stage.script.put((400, "InvalidParameterValue", {}))
    with pytest.raises(ConfigurationError):
        on(stage).dead_letter(DeadLetter(body="b", cause=Cause.TIMEOUT, detail="slow"))
    assert stage.calls.qsize() == 4


@pytest.mark.aws
@pytest.mark.parametrize("beyond_s", [-30.5, 0.0, 3600.0])
def test_after_twelve_hours_the_message_is_somebody_elses(stage: Stage, beyond_s: float) -> None:
    """AWS would refuse; nothing is asked, the work is stopped, and the message is delivered again."""
    clock = FakeClock(monotonic_s=1000.0)
    queue = on(stage, clock)
    clock.advance(43_200 + beyond_s)
    steps: list[Callable[[], None]] = [
        lambda: queue.extend(message(), visibility_s=60),
        lambda: queue.release(message()),
    ]
    for step in steps:
        with pytest.raises(LeaseLostError, match="12 h ago"):
            step()
    assert stage.calls.empty()


@pytest.mark.aws
def test_a_heartbeat_whose_receipt_has_expired_stops_the_work(stage: Stage) -> None:
    """The document may be on another host: the child is killed, nothing is published, and no other message suffers."""
    queue = on(stage)
    heartbeat = Heartbeat(queue=queue, ledger=MemoryLedger(), clock=FakeClock(), visibility_s=60, interval_s=20)
    lost, kept = InHand(message(), KillSwitch()), InHand(message(), KillSwitch())
    heartbeat.hold(lost)
    stage.fail(1, 400, "ReceiptHandleIsInvalid")
    heartbeat.beat()
    heartbeat.let_go(lost)
    heartbeat.hold(kept)
    heartbeat.beat()
    assert (lost.switch.reason, kept.switch.reason) == (KillReason.LEASE_LOST, None)


@pytest.mark.aws
@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", "InvalidParameterValue"])
def test_a_delete_whose_receipt_has_expired(stage: Stage, code: str) -> None:
    """It comes back, and is found settled; a dead letter is found done."""
    queue = on(stage)
    stage.fail(3, 400, code)
    letter = DeadMessage(message_id="m", receipt_handle="r", body="b")
    steps: list[Callable[[], None]] = [
        lambda: queue.delete(message()),
        lambda: queue.release(message()),
        lambda: queue.delete_dead(letter),
    ]
    for step in steps:
        with pytest.raises(LeaseLostError):
            step()


@pytest.mark.aws
def test_a_queue_without_a_dead_letter_queue_is_the_operators(stage: Stage) -> None:
    """Without one no document can be given up."""
    with pytest.raises(ConfigurationError, match="dead_letter_url"):
        on(stage, dead_letter_url="").dead_letter(DeadLetter(body="b", cause=Cause.EMPTY, detail=""))
