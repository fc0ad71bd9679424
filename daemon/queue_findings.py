"""What is dangerous about two real queues together with our settings, a sentence each.

Core in kind: attributes and settings in, sentences out. Each says what is so, what can come of it, and what to set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from daemon.config import Settings

#: `maxReceiveCount` counts drains, releases and lost receipts too: below this multiple of our own limit, a busy week of
#: deployments pushes healthy documents into the dead-letter queue.
RECEIVES_PER_ATTEMPT = 10
#: Releases while the world is down cost time as well; the work itself should take half the retention at most.
RETENTION_RESERVE = 2
#: Below this a paused VM or a slow disk loses receipts of documents that are well.
SHORT_VISIBILITY_S = 30

_DAY_S = 86_400


def findings(source: Mapping[str, str], dead: Mapping[str, str] | None, settings: Settings) -> tuple[str, ...]:
    """Sentences about the queue's attributes, those of the dead-letter queue (None: not set), and `settings`."""
    said = [*_about_source(source, settings), *_about_redrive(source, dead, settings)]
    if dead is None:
        said.append("queue.dead_letter_url is not set: no document can be given up; set it to the dead-letter queue")
    else:
        said += _about_dead(source, dead)
    return tuple(said)


def _about_source(source: Mapping[str, str], settings: Settings) -> Iterator[str]:
    retention_s = int(source.get("MessageRetentionPeriod", 4 * _DAY_S))
    work_s = settings.child.document_timeout_s * settings.retry.max_attempts
    if retention_s < RETENTION_RESERVE * work_s:
        yield (
            f"the queue keeps messages for {_days(retention_s)}, and one document may take {_days(work_s)} "
            f"({settings.retry.max_attempts} attempts of {settings.child.document_timeout_s:.0f} s): SQS may drop it "
            f"while it is worked on; set MessageRetentionPeriod to {_days(max(RETENTION_RESERVE * work_s, 4 * _DAY_S))}"
        )
    if source.get("FifoQueue") == "true":
        yield "the queue is FIFO: one slow document holds up its whole message group; use a standard queue"
    if settings.queue.visibility_s < SHORT_VISIBILITY_S:
        yield (
            f"queue.visibility_s is {settings.queue.visibility_s}: a pause of this host of that length makes another "
            f"one work on the same document; set {SHORT_VISIBILITY_S} or more"
        )


def _about_redrive(source: Mapping[str, str], dead: Mapping[str, str] | None, settings: Settings) -> Iterator[str]:
    wanted = max(100, RECEIVES_PER_ATTEMPT * settings.retry.max_attempts)
    policy = _policy(source)
    if policy is None:
        yield (
            "the queue has no redrive policy: a message that kills the daemon before it is marked comes back for ever; "
            f"set RedrivePolicy with the dead-letter queue and maxReceiveCount {wanted}"
        )
        return
    receives = int(policy.get("maxReceiveCount", 0))
    if receives < RECEIVES_PER_ATTEMPT * settings.retry.max_attempts:
        yield (
            f"maxReceiveCount is {receives} and retry.max_attempts {settings.retry.max_attempts}: drained and released "
            f"messages count too, so SQS will move healthy documents to the dead-letter queue; set it to {wanted}"
        )
    target = policy.get("deadLetterTargetArn")
    if dead is not None and target != dead.get("QueueArn"):
        yield (
            f"the redrive policy sends to {target}, and queue.dead_letter_url is {dead.get('QueueArn')}: dead letters "
            "lie in two places; make them the same"
        )


def _policy(source: Mapping[str, str]) -> Mapping[str, str | int] | None:
    """The redrive policy, or None when there is none that anyone could follow."""
    try:
        policy = json.loads(source.get("RedrivePolicy") or "null")
    except ValueError:
        return None
    return policy if isinstance(policy, dict) and policy.get("deadLetterTargetArn") else None


def _about_dead(source: Mapping[str, str], dead: Mapping[str, str]) -> Iterator[str]:
    if dead.get("QueueArn") == source.get("QueueArn"):
        yield "queue.dead_letter_url is the queue itself: what is given up comes back for ever; set another queue"
        return
    kept_s, source_s = (int(which.get("MessageRetentionPeriod", 4 * _DAY_S)) for which in (dead, source))
    if kept_s <= source_s:
        yield (
            f"the dead-letter queue keeps messages for {_days(kept_s)} and the queue for {_days(source_s)}: what SQS "
            "moves there keeps its first date and may vanish at once; set MessageRetentionPeriod to 14 days"
        )
    takes, gets = (int(which.get("MaximumMessageSize", 262_144)) for which in (dead, source))
    if takes < gets:
        yield (
            f"the dead-letter queue takes {takes} bytes and the queue {gets}: the body of a larger message is cut; "
            f"set MaximumMessageSize to {gets}"
        )
    if dead.get("FifoQueue") == "true":
        yield "the dead-letter queue is FIFO and refuses our dead letters; use a standard queue"


def _days(seconds: float) -> str:
    return f"{seconds / _DAY_S:.1f} days" if seconds >= _DAY_S else f"{seconds:.0f} s"
