"""The names of log events, by the most severe level at which each is written.

Core. A name is a noun and a past-tense verb; the line above it says what happened. INFO is the life of
the daemon; WARNING means we recovered, or a document was given up; ERROR means that a person must act,
and the name is a heading in `docs/operating.md`. Nothing is interpolated into a name; figures are fields.
A name that is logged and not listed here, or logged above its level, fails `tests/unit/test_events.py`.
"""

from __future__ import annotations

from typing import Literal

InfoEvent = Literal[
    #: The process runs and has read its settings; the engine is not loaded yet.
    "daemon.started",
    #: The engine works on this host: the canary went through a real child; `detail` says how long it took.
    "canary.converted",
    #: Everything needed to work is there; the first receive follows.
    "daemon.ready",
    #: The first receive of this run succeeded, with or without messages: a deployment waits for this line.
    "queue.answered",
    #: Told to stop; fields say by what and how long documents in flight may go on.
    "daemon.stopping",
    #: The last line of a run.
    "daemon.stopped",
    #: What the engine says of itself: versions, model hashes, OCR backend, languages, threads.
    "engine.declared",
    #: What of the kernel keeps children from files, sockets and processes; `parts` names it.
    "sandbox.checked",
    #: The exec of the process that will fork children.
    "zygote.started",
    #: It has loaded and proved its single thread; fields hold the seconds and bytes that it took.
    "zygote.ready",
    #: A message was read from the queue and holds work.
    "message.received",
    #: A message that asks for nothing (a test event, a removed object) was deleted.
    "message.dropped",
    #: A message was given back to the queue; fields say why and for how long it stays hidden.
    "message.released",
    #: The message is gone from the queue; its result or its dead letter was confirmed before.
    "message.deleted",
    #: A delivery of a document that has ended before; it is only deleted.
    "document.already_settled",
    #: An attempt is durable in the ledger; nothing risky has happened yet.
    "attempt.marked",
    #: We were told to stop; if this attempt is cut off before it ends, it does not count.
    "attempt.excused",
    #: What the ledger's last documents needed was learned; `documents` says how many there were.
    "memory.studied",
    #: A worker was free for a document, and the memory was not; fields say how much it needs and how long it waited.
    "document.held_back",
    #: A child died of a limit that was lowered for a document beside it; the same is done again with a whole share.
    "child.squeezed",
    #: What was to be fetched before its turn is not used, which `reason` explains; the attempt fetches it.
    "ahead.dropped",
    #: The bytes are here: size, type, digest, seconds; `ahead`: begun before its turn, which waited `waited_s` for it.
    "document.fetched",
    #: A page is finished and kept; `debug` only.
    "page.finished",
    #: Pages that earlier attempts finished were found and are not converted again.
    "document.resumed",
    #: A cgroup was delegated to us: each child is held to its memory in a group of its own below `folder`.
    "cgroup.claimed",
    #: No cgroup was delegated to us, which `reason` explains; a child's memory is held by RLIMIT_DATA and samples.
    "cgroup.unavailable",
    #: One process for one document, or one slice of it.
    "child.started",
    #: Something that the engine wrote; `message` is the child's text, bounded and never believed.
    "child.log",
    #: A call to the queue failed for a moment and is made again; `code` says why.
    "queue.retried",
    #: Figures are served to whoever asks for them; `port` is the real one.
    "metrics.served",
    #: A sweep has ended; fields say how much of what it did.
    "sweep.finished",
    #: Ledger, store and queues agree about every document; fields say how many there are.
    "audit.passed",
    #: A sweep has looked for forgotten documents in one source; fields say how many entries it read.
    "source.searched",
    #: A document that nobody had tried is in the queue now.
    "document.enqueued",
    #: A given-up document is back in the queue; fields say which reclaim it is, and after which delay.
    "document.reclaimed",
    #: A parked or settled document is back in the queue because a person asked.
    "document.requeued",
    #: A result that a dead parent had stored was settled from its manifest.
    "attempt.adopted",
    #: A dead letter that is settled, parked or overtaken was removed; `reason` says which.
    "dead_letter.discarded",
    #: Documents were in trouble here, and the canary converts: they are to blame, and the host is not.
    "host.proved",
    #: The canary converts again; receiving goes on.
    "host.trusted",
    #: Notices go out again; fields say how often that had failed.
    "notices.resumed",
    #: A failpoint fired on purpose.
    "failpoint.fired",
]

WarningEvent = Literal[
    #: The canonical line, one per attempt: document, causes, pages, children, seconds, bytes; INFO when converted.
    "attempt.settled",
    #: A child ended; INFO when it brought a result or its share, WARNING otherwise; all figures of its life.
    "child.exited",
    #: A child was killed by us; fields say why.
    "child.killed",
    #: A group could not be made, entered or removed; that child's memory is held by RLIMIT_DATA and samples instead.
    "cgroup.failed",
    #: A child has shown no sign of life for half of `child.stall_s`; fields say where, and whether it uses CPU.
    "child.silent",
    #: A library's own log line; `logger` names the library.
    "library.logged",
    #: No document could be read from a message, or from a part of it; `reason` says why.
    "message.malformed",
    #: A document was given up; its dead letter is confirmed.
    "message.dead_lettered",
    #: The receipt or the lease is no longer ours; the work was stopped and nothing was published.
    "lease.lost",
    #: The store held a result that the ledger did not know of, a newer attempt's or one that a dead parent had sent and
    #: that arrived late; the document was settled by it.
    "result.adopted",
    #: Leases of this host that a dead parent had left were broken; their documents can be claimed at once.
    "lease.broken",
    #: An attempt that goes on while we drain could not be excused; if it is cut off, it counts.
    "attempt.not_excused",
    #: An attempt could not be ended in the ledger; its lease runs out by itself.
    "attempt.left_open",
    #: The queue did not take a message back; it returns by itself when its visibility ends.
    "message.not_released",
    #: Nothing is received for `pause_s`, since more would only fail more.
    "daemon.paused",
    #: A message or lease could not be extended this time; tried again before it runs out.
    "heartbeat.failed",
    #: A finished page could not be kept, found or forgotten; the work goes on, a later attempt may do it again.
    "checkpoint.failed",
    #: The ledger did not say what earlier documents needed; it is learned as they come.
    "memory.not_studied",
    #: A page was converted with less than the whole engine.
    "page.degraded",
    #: Asked for more than this host has; what was asked and what is given.
    "sizing.clamped",
    #: Documents' children died here, and the canary's too: all is given back, nothing is received until one converts.
    "host.suspended",
    #: Another canary of a suspended host has failed; the next one comes after a longer pause.
    "host.canary_failed",
    #: Whether the host is at fault could not be found out: told to stop, or no room on a disk; tried again.
    "host.not_proved",
    #: The note for `bulkhead status` could not be written; all else goes on.
    "host.not_noted",
    #: The zygote ended while it was needed; its children's documents are released and it is started again.
    "zygote.died",
    #: Figures of a sweep or an audit could not be written; the next one tries again.
    "metrics.not_written",
    #: An alert could not be delivered; the log has it.
    "alert.dropped",
    #: systemd did not take what we told it; told again at the next turn.
    "notify.failed",
    #: The kernel lacks a part of the sandbox, or it is off; `missing` says what a child can do therefore.
    "sandbox.limited",
    #: A setting is allowed and looks like a mistake.
    "settings.finding",
]

ErrorEvent = Literal[
    #: A start was refused; `message` says what to change.
    "daemon.refused",
    #: A bug: an exception that nobody expected ended the daemon.
    "daemon.crashed",
    #: A thread that must make progress does not; systemd is told nothing more, and restarts the daemon.
    "daemon.stuck",
    #: The daemon left although slots had not given their messages back; the messages return by themselves.
    "daemon.left_work",
    #: A slot met a bug; the message is released and the slot lives on.
    "slot.failed",
    #: The warm process has more than one thread, so every child is spawned, seconds slower.
    "zygote.not_single_threaded",
    #: The zygote could not be started again.
    "zygote.unavailable",
    #: The queue did not answer within `queue.retry_for_s`; receiving goes on with back-off.
    "queue.unavailable",
    #: The queue's real attributes are dangerous in combination with the settings.
    "queue.finding",
    #: The store did not take a result; the document is released.
    "store.unavailable",
    #: The ledger cannot be written; nothing is started until it can.
    "ledger.unavailable",
    #: Documents were set aside after their last reclaim, or at once; one line for all of one cause and engine.
    "document.parked",
    #: More documents were parked than alerts are good for; one line for all of them, once an hour at most.
    "parking.summed_up",
    #: Ledger, store and queues do not agree; fields count the findings by check.
    "audit.failed",
    #: This host cannot convert its canary, not with a fresh engine either; it receives nothing until it can.
    "host.poisoned",
    #: The destination of notices does not take them; they are kept, and tried again.
    "notices.unreachable",
    #: A disk is full.
    "disk.filled",
]

EventName = InfoEvent | WarningEvent | ErrorEvent
