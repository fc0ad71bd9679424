"""Why a child's life, or an attempt, ended as it did, and whose problem that is.

Core. A new cause needs a row in `decide.py` and, where a page can be at fault, in `ladder.py`; their tests fail
without it.
"""

from __future__ import annotations

from enum import StrEnum


class Problem(StrEnum):
    """Whose problem a failure is; it decides what becomes of the message."""

    #: Dead-letter: another try on another host would end the same way.
    DOCUMENT = "document"
    #: Release with back-off: the document was not at fault, and the attempt is not counted.
    WORLD = "world"
    #: Refuse to start, or stop receiving: a person must change something first.
    OPERATOR = "operator"


class Cause(StrEnum):
    """Why a child's life, or an attempt, ended as it did."""

    #: The child reported a valid result and left with status 0.
    CONVERTED = "converted"
    #: The child converted its share of the pages and left with status 0; a fresh one goes on.
    SLICED = "sliced"

    # The document killed, or outlasted, its child. Transient: an engine change may cure it.
    #: A signal that we did not send, or an end without a result, whatever the exit status.
    CRASHED = "crashed"
    #: Bytes that are no frame, frames out of order, or more than the limit: the child is not to be believed.
    PROTOCOL = "protocol"
    #: The document's deadline passed and the child was killed.
    TIMEOUT = "timeout"
    #: No sign of life from one page and stage for `child.stall_s`; the child was killed.
    STALLED = "stalled"
    #: The child reached its memory limit (it said so, or it was killed for it).
    MEMORY = "memory"
    #: The child's scratch folder grew beyond `child.max_scratch_bytes`; the child was killed.
    SCRATCH = "scratch"
    #: The engine raised an exception and the child lived to tell.
    ENGINE_ERROR = "engine_error"
    #: Every page was read and there is no text, although there is ink.
    EMPTY = "empty"
    #: Pages were lost, and `retry.partial` does not let a partial result be published.
    INCOMPLETE = "incomplete"
    #: The parent died in that many attempts that the document is not tried again.
    PARENT_DIED = "parent_died"
    #: SQS's redrive policy moved its message: it was received too often, and nobody ended it.
    REDRIVEN = "redriven"

    # Permanent: never reclaimed until the bytes change or a person asks.
    ENCRYPTED = "encrypted"
    #: Neither `%PDF-` nor one of the image types.
    NOT_A_DOCUMENT = "not_a_document"
    NO_PAGES = "no_pages"
    #: More bytes, pages or frames than the settings allow.
    TOO_LARGE = "too_large"
    #: It calls itself a document, and no parser can open it.
    MALFORMED = "malformed"
    #: The message, not the document: no URI could be read from it.
    MALFORMED_MESSAGE = "malformed_message"
    #: 404: the object is gone, or never was.
    SOURCE_MISSING = "source_missing"
    #: The URI is one that the settings do not allow (scheme, root folder, private address).
    SOURCE_REFUSED = "source_refused"

    # The world's: released, costs no attempt.
    #: 403, 5xx, throttling, DNS, TLS or a fetch that passed its deadline.
    SOURCE_UNAVAILABLE = "source_unavailable"
    STORE_UNAVAILABLE = "store_unavailable"
    QUEUE_UNAVAILABLE = "queue_unavailable"
    DISK_FULL = "disk_full"
    #: Our receipt or lease is no longer ours; whoever holds it now decides.
    LEASE_LOST = "lease_lost"
    #: We were told to stop.
    DRAINED = "drained"
    #: The process that forks children went away under this child.
    ZYGOTE_DIED = "zygote_died"
    #: Children died here, and so did the canary's: the host is at fault, and no failure of this attempt is believed.
    POISON_HOST = "poison_host"


#: Causes that a retry can never cure while the bytes stay as they are.
PERMANENT_CAUSES = frozenset(
    {
        Cause.ENCRYPTED,
        Cause.NOT_A_DOCUMENT,
        Cause.NO_PAGES,
        Cause.TOO_LARGE,
        Cause.MALFORMED,
        Cause.MALFORMED_MESSAGE,
        Cause.SOURCE_MISSING,
        Cause.SOURCE_REFUSED,
    }
)

#: Causes for which the document was not at fault: the message is released and no attempt is counted.
WORLD_CAUSES = frozenset(
    {
        Cause.SOURCE_UNAVAILABLE,
        Cause.STORE_UNAVAILABLE,
        Cause.QUEUE_UNAVAILABLE,
        Cause.DISK_FULL,
        Cause.LEASE_LOST,
        Cause.DRAINED,
        Cause.ZYGOTE_DIED,
        Cause.POISON_HOST,
    }
)


def problem_of(cause: Cause) -> Problem:
    """Whose problem `cause` is. `CONVERTED` is nobody's and must not be asked."""
    assert cause is not Cause.CONVERTED, "a converted document is no problem"
    return Problem.WORLD if cause in WORLD_CAUSES else Problem.DOCUMENT
