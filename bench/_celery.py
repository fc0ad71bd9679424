"""A Celery worker with its prefork pool, as many teams run it: the engine is loaded once in each pool process.

What it has not: a pool process lives on after a document, its soft and hard time limits cannot end native code that
holds the interpreter, and a process that dies takes its task with it unless late acknowledgement is on. Broker and
results are folders, so that nothing but this host is measured; both are looked at every few milliseconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from celery import Celery

from bench._loop import convert, load_engine
from daemon import sandbox
from daemon.model import MediaType

_FOLDER = "BENCH_CELERY_FOLDER"
#: How often broker and results are looked at, in seconds; it is part of what is measured.
_POLL_S = 0.002
#: A task that has not answered by then is lost: a folder as a broker was seen to lose one.
_NET_S = 60.0


def _app(folder: Path) -> Celery:
    made = Celery("bench", broker="filesystem://", backend=(folder / "results").as_uri())
    made.conf.update(
        broker_transport_options={
            "data_folder_in": str(folder / "queue"),
            "data_folder_out": str(folder / "queue"),
            "control_folder": str(folder / "control"),
            "polling_interval": _POLL_S,
        },
        worker_prefetch_multiplier=1,
        task_serializer="json",
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )
    return made


app = _app(Path(os.environ.get(_FOLDER, "/nonexistent")))
_engines: list[Any] = []


@app.task(name="bench.convert")  # type: ignore[untyped-decorator]  # celery has no types
def task(path: str, media_type: str) -> int:
    """Convert in a pool process; the artefacts are counted there, as a worker that stores them itself would."""
    if not _engines:
        _engines.append(load_engine())
    return sum(map(len, convert(_engines[0], Path(path), MediaType(media_type)).values()))


@contextmanager
def worker(processes: int) -> Iterator[Callable[[Path, MediaType], int]]:
    """A running worker; the function sends one document and waits for its end."""
    with TemporaryDirectory(prefix="bench-celery-") as name:
        folder = Path(name)
        for part in ("queue", "control", "results"):
            (folder / part).mkdir()
        command = [sys.executable, "-m", "celery", "-A", "bench._celery", "worker", "--pool", "prefork"]
        flags = ["-c", str(processes), "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
        environment = {**sandbox.environment(os.environ), _FOLDER: name}
        root = Path(__file__).parent.parent
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *flags], env=environment, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        sender = _app(folder)

        def send(path: Path, media_type: MediaType) -> int:
            result = sender.send_task("bench.convert", (str(path), media_type.value))
            return int(result.get(timeout=_NET_S, interval=_POLL_S, propagate=True))

        try:
            yield send
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            sender.close()
