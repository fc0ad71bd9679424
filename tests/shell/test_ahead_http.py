"""What waits is fetched over real HTTP, and stopped in the middle of it: nothing is left."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from daemon.clock import SystemClock
from daemon.errors import LeaseLostError
from daemon.model import Cause, Message
from daemon.queue_local import LocalQueue
from daemon.quota import Quota
from tests.contract.fetching import fetcher
from tests.fakes.edges import ScriptedConverter
from tests.fakes.web import PDF, Answer, Web, web
from tests.shell.ahead_scene import (
    dropped,
    fetched,
    names_of_threads,
    until,
    wait_for_threads,
)
from tests.shell.test_memory_tokens import Hall
from tests.shell.test_parent import NET_S, Bench, running


class TestStopped:
    """Over real HTTP: whoever waits and is stopped takes its connection, its file and its thread along."""

    @pytest.mark.parametrize("whole", [True, False], ids=["fetched", "on_its_way"])
    def test_a_drain(self, tmp_path: Path, whole: bool) -> None:  # noqa: FBT001 - a case
        """SIGTERM: the message of what waits is visible at once, with nothing on its record."""
        arrived = threading.Event()

        def answer(request: Answer) -> None:
            if whole or request.path == "/a.pdf":
                request.whole(PDF)
            else:
                half(request)
            if request.path == "/b.pdf":
                arrived.set()
                hold(request)

        with structlog.testing.capture_logs() as logs, web(answer) as server, stage(tmp_path, server) as (bench, hall):
            bench.queue.send(body(server, "b"))
            assert arrived.wait(NET_S)
            if whole:
                wait_for_threads()
            bench.parent.request_stop()
            bench.wait_for_news(1)
            assert bench.released == [Cause.DRAINED]
            assert "ahead" not in names_of_threads()
            assert bench.queue.depth()["visible"] == 1
            assert len(files_in(tmp_path)) == 1, "that of the one which converts"
            assert bench.edges.quota.used_bytes == 0
            hall.let_go("a")
            bench.join()
            assert not files_in(tmp_path)
        assert bench.ledger.document("b") is None
        assert not dropped(logs), "being told to leave is no failure"

    def test_a_lost_receipt(self, tmp_path: Path) -> None:
        """Somebody else may hold the message: its download ends, nothing is released, and the others go on."""

        class Refusing(LocalQueue):
            def extend(self, message: Message, *, visibility_s: float) -> None:
                if '"b"' in message.body:
                    raise LeaseLostError("the receipt is no longer ours")
                super().extend(message, visibility_s=visibility_s)

        arrived = threading.Event()

        def answer(request: Answer) -> None:
            if request.path == "/a.pdf":
                return request.whole(PDF)
            half(request)
            arrived.set()
            return hold(request)

        queue = Refusing(clock=SystemClock(), wait_s=0.2)
        with web(answer) as server, stage(tmp_path, server, queue=queue) as (bench, hall):
            bench.queue.send(body(server, "b"))
            assert arrived.wait(NET_S)
            bench.heartbeat.beat()
            wait_for_threads()
            hall.let_go("a")
            bench.wait_for_news(1)
        assert bench.released == []
        assert bench.ledger.document("b") is None

    def test_a_slow_source(self, tmp_path: Path) -> None:
        """Half of it comes while another converts, the rest in its turn: one request, the same bytes."""
        arrived, go_on = threading.Event(), threading.Event()

        def answer(request: Answer) -> None:
            if request.path == "/a.pdf":
                return request.whole(PDF)
            half(request)
            arrived.set()
            assert go_on.wait(NET_S)
            request.wfile.write(PDF[len(PDF) // 2 :])
            return None

        with structlog.testing.capture_logs() as logs, web(answer) as server:
            with stage(tmp_path, server) as (bench, hall):
                bench.queue.send(body(server, "b"))
                assert arrived.wait(NET_S)
                assert bench.ledger.document("b") is None
                threading.Event().wait(0.02)  # so much at least it came before its mark
                hall.let_go("a")
                until(lambda: bool(bench.ledger.attempts("b")))
                go_on.set()
                hall.wait_for(b=0)
                hall.let_go("b")
                bench.wait_for_news(2)
            assert [seen.target for seen in server.seen] == ["/a.pdf", "/b.pdf"]
        assert fetched(logs, 1)["sha256"] == fetched(logs, 0)["sha256"]
        assert fetched(logs, 1)["ahead"]
        assert fetched(logs, 1)["elapsed_s"] >= fetched(logs, 1)["waited_s"] + 0.02, "how long its source took"


def half(request: Answer) -> None:
    """Head and half of the body."""
    request.head(200, Content_Length=str(len(PDF)))
    request.wfile.write(PDF[: len(PDF) // 2])


def hold(request: Answer) -> None:
    """Keep the connection until the test is over."""
    assert request.server.over.wait(NET_S)


def files_in(folder: Path) -> list[str]:
    """What this process has open there, files without a name included."""
    opened = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that is used for looking is gone
            opened.append(str(link.readlink()))
    return [path for path in opened if path.startswith(str(folder))]


def body(server: Web, name: str) -> str:
    """The message for one document of the server, in a version."""
    return json.dumps({"uri": server.url(f"/{name}.pdf"), "id": name, "etag": "1"})


@contextmanager
def stage(folder: Path, server: Web, **parts: Any) -> Iterator[tuple[Bench, Hall]]:
    """A parent on a real fetcher; its first document converts."""
    hall = Hall()
    bench = Bench(
        workers=1,
        ahead=1,
        source=fetcher(folder),
        quota=Quota(100_000, folder=folder),
        converter=ScriptedConverter(on_run=lambda job, switch: hall.hold(replace(job, memory_bytes=0), switch)),
        **parts,
    )
    with running(bench):
        bench.queue.send(body(server, "a"))
        hall.wait_for(a=0)
        yield bench, hall
