"""What a person does with parked documents, and with any that shall be converted again.

Shell. Rules: what is sent back is marked in the ledger before it is sent, and forgotten only after the queue has
confirmed it, so a command that is killed is finished by the next sweep; dropping forgets the message and keeps the
history.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from daemon.clock import Clock
from daemon.delivery import body_of
from daemon.errors import ConfigurationError, ResourceError
from daemon.ledger import Ledger
from daemon.model import Cause
from daemon.queue import Queue
from daemon.recovery import Parked, Recovery
from daemon.story import only_one
from daemon.sweep import send_back


def chosen(
    recovery: Recovery, keys: Sequence[str], *, cause: str | None = None, not_of: str | None = None
) -> list[Parked]:
    """Parked entries with these keys (none: all), of this cause, and not of the engine `not_of`; oldest first.

    Raises `ResourceError` for a key under which nothing is parked, `ConfigurationError` for an unknown cause.
    """
    if cause is not None and cause not in set(Cause):
        raise ConfigurationError(f"cannot choose by cause: {cause!r} is none. docs/reference.md lists them.")
    everything = recovery.parked()
    missing = sorted(set(keys) - {each.key for each in everything})
    if missing:
        raise ResourceError(f"cannot find {', '.join(missing)}: not parked. `bulkhead parked list` says what is.")
    return [
        each
        for each in everything
        if (not keys or each.key in keys) and (cause in {None, each.cause}) and (not_of is None or each.build != not_of)
    ]


def in_short(parked: Parked, *, now: datetime) -> dict[str, object]:
    """One line of the list."""
    return {
        "key": parked.key,
        "cause": str(parked.cause),
        "signal": parked.signal,
        "stage": None if parked.stage is None else str(parked.stage),
        "attempts": parked.attempts,
        "reclaims": parked.reclaims,
        "since": parked.since.isoformat(),
        "age_s": round((now - parked.since).total_seconds()),
        "uri": parked.uri,
    }


def in_full(parked: Parked, *, now: datetime) -> dict[str, object]:
    """Everything that is kept; the attempts are `bulkhead explain`'s."""
    return in_short(parked, now=now) | {
        "document_id": parked.document_id,
        "build": parked.build,
        "alerted": parked.alerted,
        "retrying": parked.retrying,
        "detail": parked.detail,
        "body": parked.body,
    }


def retry(entries: Sequence[Parked], *, recovery: Recovery, queue: Queue, clock: Clock) -> list[str]:
    """Give each one more round, and send it; the keys that were sent. Raises like `Queue.send`."""
    sent = []
    for entry in entries:
        marked = recovery.retry(entry.key, now=clock.now())
        if marked is not None:
            send_back(queue, recovery, marked)
            sent.append(marked.key)
    return sent


def drop(entries: Sequence[Parked], *, recovery: Recovery) -> list[str]:
    """Forget the messages; the keys that were there."""
    return [entry.key for entry in entries if recovery.unpark(entry.key)]


def requeue(wanted: str, *, ledger: Ledger, recovery: Recovery, queue: Queue, clock: Clock) -> str:
    """Convert a document again, whatever became of it; returns its id.

    `wanted` is an id, the beginning of one, or a URI. One that has not ended gets one more message, which is deleted
    when it is found to have ended. Raises `ResourceError` when it names no document or several, else like `Queue.send`.
    """
    document = only_one(ledger, wanted, command="requeue")
    recovery.requeue(document.id, body=body_of(document), now=clock.now())
    marked = recovery.retry(document.id, now=clock.now())
    if marked is not None:
        send_back(queue, recovery, marked)
    else:
        queue.send(body_of(document))
    return document.id
