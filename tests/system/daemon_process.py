"""The real daemon as a process of its own, between moto's SQS and S3, for the tests of this folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.emulator import Emulated

#: A net for a hang; loading the engine takes seconds, on a busy machine many.
NET_S = 180.0


def environment(aws: Emulated, state: Path, **settings: str) -> dict[str, str]:
    """The environment of a daemon on `aws`; `settings` are `BULKHEAD_…` names without the prefix."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BULKHEAD_", "AWS_"))}
    own = {
        "STATE_DIR": str(state),
        "WORKERS": "1",
        "QUEUE__WAIT_S": "1",
        "QUEUE__VISIBILITY_S": "10",
        "LOG__FORMAT": "json",
    } | settings
    return clean | aws.settings() | {f"BULKHEAD_{name}": value for name, value in own.items()}


class DaemonProcess:
    """`bulkhead run`, its log lines as they come, and its end."""

    def __init__(self, env: Mapping[str, str], module: Sequence[str] = ("daemon", "run")) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(env),
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the parent."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stderr is not None, "stderr is a pipe"
        for text in self._process.stderr:
            line = json.loads(text) if text.startswith("{") else {"event": "", "text": text}
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, event: str, **fields: object) -> dict[str, Any]:
        """The first line of this event with these fields; waits for it."""
        found = self.wait_until(lambda line: line["event"] == event and fields.items() <= line.items())
        assert found is not None, f"the daemon left without {event}: {self.lines[-5:]}"
        return found

    def wait_until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """The first line for which `wanted` holds; None when the daemon left without one."""
        seen = 0
        with self._news:
            while True:
                while seen < len(self.lines):
                    if wanted(self.lines[seen]):
                        return self.lines[seen]
                    seen += 1
                if self._ended:
                    return None
                assert self._news.wait(NET_S), f"nothing more was logged: {self.lines[-5:]}"

    def send(self, number: signal.Signals) -> None:
        """A signal to the parent alone."""
        self._process.send_signal(number)

    def left_with(self) -> int:
        """Wait for its end; the exit status, negative for a signal."""
        status = self._process.wait(timeout=NET_S)
        self._reader.join(timeout=NET_S)
        return status

    def close(self) -> None:
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self.left_with()
        assert self._process.stderr is not None, "stderr is a pipe"
        self._process.stderr.close()


@contextmanager
def daemon(env: Mapping[str, str], module: Sequence[str] = ("daemon", "run")) -> Iterator[DaemonProcess]:
    """A daemon that has ended afterwards; `module` and its arguments are what `python -m` runs."""
    process = DaemonProcess(env, module)
    try:
        yield process
    finally:
        process.close()


def processes_below(pid: int) -> frozenset[int]:
    """Pids of all living descendants of `pid`."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found |= {int(child), *processes_below(int(child))}
    return frozenset(found)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
