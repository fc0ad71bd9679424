"""The next document is on its way when the parent is killed: nobody may hold that against it."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from daemon.emulator import Emulated
from daemon.ledger_sqlite import SqliteLedger
from tests.fakes.web import NET_S as REQUEST_S
from tests.fakes.web import Answer, web
from tests.system.daemon_process import daemon, environment
from tests.system.test_parent_deaths import FAKE, attempts_at

pytestmark = [pytest.mark.aws, pytest.mark.process]

CONTENT = b"%PDF-1.4 is the first page\nthe second\nthe third\n"


def test_a_parent_that_dies_while_it_fetches_ahead(aws: Emulated, tmp_path: Path) -> None:
    """SIGKILL with one document in a child and the next one half here: an attempt for the first, none for the next.

    The next parent converts both, and the scratch folder holds nothing.
    """
    state = tmp_path / "state"
    arrived, go_on = threading.Event(), threading.Event()

    def answer(request: Answer) -> None:
        if request.path == "/first.pdf" or go_on.is_set():
            return request.whole(CONTENT)
        request.head(200, Content_Length=str(len(CONTENT)))
        request.wfile.write(CONTENT[:20])
        arrived.set()
        assert go_on.wait(REQUEST_S * 3)
        return None

    env = environment(
        aws,
        state,
        LOG__LEVEL="debug",
        FETCH__ALLOW_HTTP="true",
        FETCH__ALLOW_PRIVATE_ADDRESSES="true",
        CHILD__MAX_SCRATCH_BYTES=str(2**20),
        ALLOW_FAILPOINTS="true",
        FAILPOINTS="child.page@doc=first,attempt=1=hang",
    )
    with web(answer) as server:

        def send(name: str) -> None:
            body = json.dumps({"uri": server.url(f"/{name}.pdf"), "id": name, "etag": "1"})
            aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody=body)

        with daemon(env, FAKE) as running:
            send("first")
            running.wait_for("child.started", document_id="first")
            send("next")
            assert arrived.wait(REQUEST_S * 3), "it is fetched while the first one converts"
            running.send(signal.SIGKILL)
            assert running.left_with() == -signal.SIGKILL
        with closing(SqliteLedger.open_read_only(state / "ledger.db")) as ledger:
            assert len(ledger.attempts("first")) == 1
            assert ledger.document("next") is None
        go_on.set()
        with daemon(env, FAKE) as running:
            for name in ("first", "next"):
                assert running.wait_for("attempt.settled", document_id=name)["status"] == "converted"
            running.send(signal.SIGTERM)
            assert running.left_with() == 0
        assert [len(attempts_at(state, server.url(f"/{name}.pdf"))) for name in ("first", "next")] == [2, 1]
    assert not [path for path in (state / "scratch").rglob("*") if path.is_file()]
