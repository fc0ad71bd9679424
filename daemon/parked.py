"""What a person does with parked documents, and with any that shall be converted again.

Shell. Rules: what is sent back is marked in the ledger before it is sent, and forgotten only after the queue has
confirmed it, so a command that is killed is finished by the next sweep; its finished pages are dropped before it can be
claimed again, so a person's retry resumes nothing; dropping forgets the message and keeps the history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.checkpoints import Checkpoints
from daemon.clock import Clock
from daemon.delivery import body_of
from daemon.errors import ConfigurationError, ResourceError
from daemon.ledger import Ledger
from daemon.model import Cause
from daemon.queue import Queue
from daemon.recovery import Parked, Recovery
from daemon.story import only_one
from daemon.sweep import send_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which parked entries are meant; all conditions hold together, none means all."""

    keys: Sequence[str] = ()
    cause: str | None = None
    #: `Parked.problem`, or its beginning.
    problem: str | None = None
    #: Parked for longer than this: see `length_s`.
    older_than: str | None = None
    #: Only what another engine than this one failed at.
    not_of: str | None = None

    def __bool__(self) -> bool:
        return any((self.keys, self.cause, self.problem, self.older_than, self.not_of))


def length_s(text: str) -> float:
    """`90s`, `30m`, `12h` or `2d` in seconds. Raises `ConfigurationError`."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None:
        raise ConfigurationError(f"cannot read {text!r} as a length of time: write 90s, 30m, 12h or 2d")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]


def chosen(recovery: Recovery, choice: Choice, *, now: datetime) -> list[Parked]:
    """The parked entries that are meant, oldest first.

    Raises `ResourceError` for a key under which nothing is parked, `ConfigurationError` for a condition that says
    nothing.
    """
    keys, cause = choice.keys, choice.cause
    if cause is not None and cause not in set(Cause):
        raise ConfigurationError(f"cannot choose by cause: {cause!r} is none. docs/reference.md lists them.")
    before = None if choice.older_than is None else now - timedelta(seconds=length_s(choice.older_than))
    everything = recovery.parked()
    missing = sorted(set(keys) - {each.key for each in everything})
    if missing:
        raise ResourceError(f"cannot find {', '.join(missing)}: not parked. `bulkhead parked list` says what is.")
    return [
        each
        for each in everything
        if (not keys or each.key in keys)
        and cause in {None, each.cause}
        and each.problem.startswith(choice.problem or "")
        and (before is None or each.since < before)
        and (choice.not_of is None or each.build != choice.not_of)
    ]


def in_short(parked: Parked, *, now: datetime, build: str) -> dict[str, object]:
    """One line of the list; `build` is the engine that is installed here."""
    return {
        "key": parked.key,
        "problem": parked.problem,
        "cause": str(parked.cause),
        "signal": parked.signal,
        "stage": None if parked.stage is None else str(parked.stage),
        "attempts": parked.attempts,
        "reclaims": parked.reclaims,
        "since": parked.since.isoformat(),
        "age_s": round((now - parked.since).total_seconds()),
        "other_engine": parked.build != build,
        "uri": parked.uri,
    }


def in_full(parked: Parked, *, now: datetime, build: str) -> dict[str, object]:
    """Everything that is kept; the attempts are `bulkhead explain`'s."""
    return in_short(parked, now=now, build=build) | {
        "document_id": parked.document_id,
        "build": parked.build,
        "alerted": parked.alerted,
        "retrying": parked.retrying,
        "detail": parked.detail,
        "body": parked.body,
    }


def retry(
    entries: Sequence[Parked], *, recovery: Recovery, checkpoints: Checkpoints, queue: Queue, clock: Clock
) -> list[str]:
    """Give each one more round, and send it; the keys that were sent. Raises like `Queue.send`, `Checkpoints.drop`."""
    sent = []
    for entry in entries:
        if entry.document_id is not None:
            checkpoints.drop(entry.document_id)
        marked = recovery.retry(entry.key, now=clock.now())
        if marked is not None:
            send_back(queue, recovery, marked)
            sent.append(marked.key)
    return sent


def drop(entries: Sequence[Parked], *, recovery: Recovery) -> list[str]:
    """Forget the messages; the keys that were there."""
    return [entry.key for entry in entries if recovery.unpark(entry.key)]


def requeue(
    wanted: str, *, ledger: Ledger, recovery: Recovery, checkpoints: Checkpoints, queue: Queue, clock: Clock
) -> str:
    """Convert a document again, whatever became of it; returns its id.

    `wanted` is an id, the beginning of one, or a URI. One that has not ended gets one more message, which is deleted
    when it is found to have ended. Raises `ResourceError` when it names no document or several, else like `retry`.
    """
    document = only_one(ledger, wanted, command="requeue")
    if ledger.settled(document.id) is not None:  # whoever works on one that has not ended needs its pages
        checkpoints.drop(document.id)
    recovery.requeue(document.id, body=body_of(document), now=clock.now())
    marked = recovery.retry(document.id, now=clock.now())
    if marked is not None:
        send_back(queue, recovery, marked)
    else:
        queue.send(body_of(document))
    return document.id
