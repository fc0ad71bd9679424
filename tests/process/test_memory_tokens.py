"""Memory is handed out to real children: what a share cannot hold is converted, one such document after the other."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import structlog

from daemon import host
from daemon.attempt import DocumentEnded
from daemon.clock import SystemClock
from daemon.config import FetchSettings, Settings
from daemon.config_engine import ChildSettings
from daemon.config_recovery import HostSettings
from daemon.model import ResultStatus
from daemon.queue_local import LocalQueue
from daemon.sizing import GIB, size
from daemon.store_directory import DirectoryStore
from daemon.warming import Parts
from daemon.wiring import assembled, pool_of

pytestmark = pytest.mark.process

#: A net for a hang; it never decides.
NET_S = 120.0
#: Two workers, with 1.2 GiB each; more than that is everything.
HOST_BYTES = 3 * GIB
#: More than a share, less than everything.
HUNGRY = "hold 1400000000"


def test_two_that_need_more_than_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dies of its share, then has everything, alone, and loses nothing; small ones beside them are well."""
    monkeypatch.setattr(host, "usable_memory_bytes", lambda: HOST_BYTES)
    monkeypatch.setattr(host, "usable_cpus", lambda: 2)
    pool = pool_of(size(cpus=2, memory_bytes=HOST_BYTES, workers="auto", threads=1, memory_per_child_bytes=None))
    queue, ended, all_ended = LocalQueue(clock=SystemClock(), wait_s=0.2), [], threading.Semaphore(0)
    for name, page in {"big-1": HUNGRY, "big-2": HUNGRY, "small-1": "two", "small-2": "two"}.items():
        (tmp_path / f"{name}.pdf").write_text(f"%PDF-1.4 page one\n{page}\n")
        queue.send(json.dumps({"uri": (tmp_path / f"{name}.pdf").as_uri(), "id": name, "etag": "1"}))
    (tmp_path / "out").mkdir()
    settings = Settings(
        state_dir=tmp_path / "state",
        child=ChildSettings(start="zygote"),
        fetch=FetchSettings(file_roots=(tmp_path,)),
        host=HostSettings(canary=False),
    )

    def on_ended(document: DocumentEnded) -> None:
        ended.append(document)
        all_ended.release()

    parts = Parts(engine_factory="fake_engine:load", engine_path=str(Path(__file__).parent))
    with (
        structlog.testing.capture_logs() as logs,
        assembled(settings, queue=queue, store=DirectoryStore(tmp_path / "out"), parts=parts, on_ended=on_ended) as run,
    ):
        thread = threading.Thread(target=run.parent.run)
        thread.start()
        try:
            for _ in range(4):
                assert all_ended.acquire(timeout=NET_S), "a document did not end"
        finally:
            run.parent.request_stop(at_once=True)
            thread.join(NET_S)
    assert {document.settled.status for document in ended} == {ResultStatus.CONVERTED}
    lives = [line for line in logs if line["event"] == "child.exited"]
    for name in ("big-1", "big-2"):
        limits = [(line["memory_limit_bytes"], line["cause"]) for line in lives if line["document_id"] == name]
        assert limits[-1][1] == "converted"
        assert limits == [(pool.share_bytes, "memory"), (pool.total_bytes, "converted")]
    assert together(logs, pool.total_bytes) == 1
    assert any(line["event"] == "document.held_back" for line in logs)


def together(logs: list[structlog.typing.EventDict], limit_bytes: int) -> int:
    """How many children with this limit lived at the same time, at most."""
    raised = {
        (line["document_id"], line["pid"])
        for line in logs
        if line["event"] == "child.exited" and line["memory_limit_bytes"] == limit_bytes
    }
    alive, most = 0, 0
    for line in logs:
        if (line.get("document_id"), line.get("pid")) in raised:
            alive += {"child.started": 1, "child.exited": -1}.get(line["event"], 0)
            most = max(most, alive)
    return most
