"""A Celery worker with its prefork pool, as many teams run it: the engine is loaded once in each pool process.

What it has not: a pool process lives on after a document, its soft and hard time limits cannot end native code that
holds the interpreter, and a process that dies takes its task with it unless late acknowledgement is on, with which a
killer would be tried for ever. Broker and results are folders, so that nothing but this host is measured; both are
looked at every few milliseconds. A message is renamed into the queue: one that is written there may be read half, and
is lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from celery import Celery
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.signals import worker_process_init

from bench._loop import convert, load_engine
from bench._measure import Doc, Run
from daemon import sandbox
from daemon.model import MediaType

_FOLDER = "BENCH_CELERY_FOLDER"
#: How often broker and results are looked at, in seconds; it is part of what is measured.
_POLL_S = 0.002
#: A task that has not answered by then is lost.
_NET_S = 60.0


def _app(folder: Path, *, sent_to: str) -> Celery:
    made = Celery("bench", broker="filesystem://", backend=(folder / "results").as_uri())
    made.conf.update(
        broker_transport_options={
            "data_folder_in": str(folder / "queue"),
            "data_folder_out": str(folder / sent_to),
            "control_folder": str(folder / "control"),
            "polling_interval": _POLL_S,
        },
        worker_prefetch_multiplier=1,
        worker_proc_alive_timeout=_NET_S,
        task_serializer="json",
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )
    return made


app = _app(Path(os.environ.get(_FOLDER, "/nonexistent")), sent_to="queue")
_engines: list[Any] = []


@worker_process_init.connect  # type: ignore[untyped-decorator]  # celery has no types
def _begin(**_: object) -> None:
    """Load as a pool process begins, the one that replaces a dead one too."""
    _engines.append(load_engine())


@app.task(name="bench.convert")  # type: ignore[untyped-decorator]  # celery has no types
def task(path: str, media_type: str) -> tuple[float, int]:
    """Convert in a pool process, and drop the artefacts there; the wall clock at its end, and which process it was."""
    convert(_engines[0], Path(path), MediaType(media_type))
    return time.time(), os.getpid()


class Worker:
    """A running worker, from the side of who sends to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sender = _app(folder, sent_to="written")

    def convert(self, doc: Doc) -> None:
        """Send one document and wait for its end. Raises TimeoutError when it has none."""
        sent = self._send([doc])
        try:
            sent[0].get(timeout=_NET_S, interval=_POLL_S)
        except CeleryTimeoutError as error:
            raise TimeoutError(f"no answer to {doc.name} in {_NET_S:.0f} s") from error

    def deliver(self, documents: Sequence[Doc]) -> Run:
        """Send all at once, and wait until each has ended, failed or been lost; timed to the last one that ended well.

        That a process was lost is known ten seconds later (`worker_lost_wait`), which is not in the time.
        """
        started = time.time()
        ends = [end for end, _ in self._answers(documents)]
        return Run(given=len(documents), delivered=len(ends), elapsed_s=max(ends, default=time.time()) - started)

    def warm(self, documents: Sequence[Doc], processes: int) -> None:
        """Convert `documents`, again and again, until so many processes have answered: loading is not what is measured.

        Raises TimeoutError when they do not.
        """
        deadline = time.monotonic() + _NET_S
        while len({pid for _, pid in self._answers(documents)}) < processes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than {processes} processes of Celery's worker answer in {_NET_S:.0f} s")

    def _answers(self, documents: Sequence[Doc]) -> list[tuple[float, int]]:
        """What `task` returned, of those that were neither lost nor failed."""
        answers = []
        for result in self._send(documents):
            with suppress(CeleryTimeoutError):
                answer = result.get(timeout=_NET_S, interval=_POLL_S, propagate=False)
                if result.successful():
                    answers.append((float(answer[0]), int(answer[1])))
        return answers

    def _send(self, documents: Sequence[Doc]) -> list[Any]:
        results = [self._sender.send_task("bench.convert", (str(doc.path), doc.media_type.value)) for doc in documents]
        for message in sorted((self._folder / "written").iterdir()):
            message.rename(self._folder / "queue" / message.name)
        return results

    def close(self) -> None:
        """Give the connection back."""
        self._sender.close()


@contextmanager
def worker(processes: int) -> Iterator[Worker]:
    """A worker of so many processes, ended on leaving; it may still be loading, and what is sent waits."""
    with TemporaryDirectory(prefix="bench-celery-") as name:
        folder = Path(name)
        for part in ("queue", "written", "control", "results"):
            (folder / part).mkdir()
        command = [sys.executable, "-m", "celery", "-A", "bench._celery", "worker", "--pool", "prefork"]
        flags = ["-c", str(processes), "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
        environment = {**sandbox.environment(os.environ), _FOLDER: name}
        root = Path(__file__).parent.parent
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *flags], env=environment, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        sender = Worker(folder)
        try:
            yield sender
        finally:
            sender.close()
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
