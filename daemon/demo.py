"""`bulkhead demo`: the daemon at work on this machine, with nothing to set up.

Shell. The real daemon, started as a user would start it, between an embedded SQS and S3; S3's own events in its
queue; the sample documents, one of which kills its child with a real SIGSEGV. Everything that it starts has ended
when it returns; what stays is a folder with the Markdown and the daemon's log.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from daemon.clock import SystemClock
from daemon.emulator import Emulated, available, emulated
from daemon.errors import ExitStatus, OperatorError, ResourceError
from daemon.ledger_sqlite import SqliteLedger
from daemon.model import Outcome, Settled
from daemon.samples import SAMPLES, Sample, write

__all__ = ["available", "demo"]

#: Its first child reads a null pointer in the OCR of page 1; the second one goes on without OCR for that page.
VICTIM = "mixed.pdf"
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of one sample."""

    sample: Sample
    settled: Settled
    outcomes: tuple[Outcome, ...]


def demo(out: Path | None) -> ExitStatus:
    """Run it and print the table; `DOCUMENT_FAILED` when a sample ended otherwise than it must.

    Raises `BulkheadError` when the machine does not let it run.
    """
    console = Console()
    out = out or Path(tempfile.mkdtemp(prefix="bulkhead-demo-"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bulkhead-demo-work-") as folder:
        work = Path(folder)
        console.print("Making the sample documents …")
        paths = write(work / "samples")
        console.print("Starting an embedded SQS and S3 on loopback …")
        with emulated(work / "emulator.log") as aws:
            for path in paths:
                aws.upload(path)
            console.print(f"Put {len(paths)} documents into the bucket; S3's events are on the queue.")
            ended = _converted(aws, work, out, console)
            _fetch_results(aws, ended, out)
        shutil.rmtree(work / "state", ignore_errors=True)
    return _told(console, ended, out)


def _converted(aws: Emulated, work: Path, out: Path, console: Console) -> list[Ended]:
    """Run the real daemon until every document has ended."""
    console.print("Starting the daemon: it loads every model once, then forks a child for each document …")
    with _daemon(aws, work, out / "daemon.log") as process:
        clock = SystemClock()
        deadline = clock.monotonic() + _TIMEOUT_S
        known = 0
        while True:
            ended = _ended(work / "state" / "ledger.db")
            if len(ended) > known:
                known = len(ended)
                console.print(f"  {known} of {len(SAMPLES)} documents have ended")
            if known == len(SAMPLES):
                return ended
            if process.poll() is not None or clock.monotonic() > deadline:
                message = f"cannot finish the demo: the daemon ended early or is too slow; see {out / 'daemon.log'}"
                raise ResourceError(message)
            threading.Event().wait(0.25)


@contextmanager
def _daemon(aws: Emulated, work: Path, log_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    # An operator's own settings must not reach the demo.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BULKHEAD_", "AWS_"))}
    environment.pop("CREDENTIALS_DIRECTORY", None)
    no_settings = work / "none.toml"
    no_settings.touch()
    environment |= aws.settings() | {
        "BULKHEAD_CONFIG": str(no_settings),
        "BULKHEAD_STATE_DIR": str(work / "state"),
        "BULKHEAD_QUEUE__WAIT_S": "1",
        "BULKHEAD_LOG__FORMAT": "json",
        "BULKHEAD_ALLOW_FAILPOINTS": "true",
        "BULKHEAD_FAILPOINTS": f"child.ocr@doc={VICTIM}*=segv",
    }
    with log_file.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "daemon", "run"], stdin=subprocess.DEVNULL, stderr=output, env=environment
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ended(ledger_path: Path) -> list[Ended]:
    """Samples that have ended, in the order of `SAMPLES`; empty while there is no ledger."""
    try:
        ledger = SqliteLedger.open_read_only(ledger_path)
    except OperatorError:  # not there yet, or just being made
        return []
    try:
        found = []
        for sample in SAMPLES:
            for document in ledger.find(f"s3://bulkhead-demo/inbox/{sample.name}"):
                settled = ledger.settled(document.id)
                if settled is not None:
                    outcomes = tuple(o for attempt in ledger.attempts(document.id) for o in attempt.outcomes)
                    found.append(Ended(sample=sample, settled=settled, outcomes=outcomes))
        return found
    finally:
        ledger.close()


def _fetch_results(aws: Emulated, ended: list[Ended], out: Path) -> None:
    """Copy what the daemon published from the bucket, which ends with the demo, into `out`, by the sample's name."""
    for entry in ended:
        prefix = f"results/{entry.settled.document_id}/"
        listed = aws.s3.list_objects_v2(Bucket=aws.bucket, Prefix=prefix).get("Contents", [])
        for found in listed:
            target = out / entry.sample.name / str(found["Key"]).removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(aws.s3.get_object(Bucket=aws.bucket, Key=found["Key"])["Body"].read())


def _told(console: Console, ended: list[Ended], out: Path) -> ExitStatus:
    table = Table("what it is", "became", "how", "Markdown", title="What became of each document", box=box.SIMPLE)
    wrong = 0
    for entry in ended:
        as_promised = entry.settled.status is entry.sample.status and entry.settled.cause is entry.sample.cause
        wrong += not as_promised
        published = entry.settled.manifest is not None
        became = str(entry.settled.status) if published else f"dead-lettered: {entry.settled.cause}"
        how = "; then ".join(_short(outcome) for outcome in entry.outcomes)
        markdown = f"{entry.sample.name}/document.md" if published else ""
        table.add_row(entry.sample.what, became if as_promised else f"{became} (!)", how, markdown)
    console.print(table)
    deaths = [o.signal for entry in ended for o in entry.outcomes if o.signal]
    console.print(f"{len(ended)} documents; children killed on the way: {', '.join(deaths) or 'none'}.")
    console.print(f"The Markdown lies in {out}, and so does daemon.log.", soft_wrap=True)
    if wrong or not deaths:
        console.print(f"{wrong} documents did not end as they must.")
        return ExitStatus.DOCUMENT_FAILED
    return ExitStatus.DONE


def _short(outcome: Outcome) -> str:
    if not outcome.child:
        return "not opened"
    if outcome.signal:
        return f"child {outcome.child} died of {outcome.signal} on page {outcome.page}"
    return f"child {outcome.child}"
