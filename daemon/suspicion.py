"""When a host stops believing that its documents are to blame.

Core. A fold over what is seen on one host: `Suspicion` in, `Suspicion` out. Rules: trouble of one document, however
often it is tried, counts once; a document that converts without trouble clears the others' count; only a whole canary
clears the host; one that passes means that the documents are guilty, so a queue of poison documents never stops a
host; a canary that fails stops it, and the second one without a clean document between is told to a person, once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from daemon.model import Cause, Outcome, Stage

#: What a broken host does to a document that is not at fault. Refusals of the document itself are not among them.
TROUBLE = frozenset(
    {
        Cause.CRASHED,
        Cause.PROTOCOL,
        Cause.MEMORY,
        Cause.TIMEOUT,
        Cause.STALLED,
        Cause.ENGINE_ERROR,
        Cause.EMPTY,
        Cause.ZYGOTE_DIED,
    }
)
#: Stages at which nothing was read from a picture yet, and ends that code brings about, not a want of memory or time:
#: a host that is at fault for such a one does the same to a page of letters.
_BEFORE_PICTURES = frozenset({Stage.START, Stage.OPEN, Stage.PARSE})
_BY_CODE = frozenset({Cause.CRASHED, Cause.PROTOCOL, Cause.STALLED, Cause.ENGINE_ERROR})
#: Failed canaries after which a person is told: the second one ran in a fresh zygote.
_TELL_AFTER = 2
#: The exponent's bound; the pause has its own.
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What is held against one host."""

    #: So many different documents in trouble make it owe a canary; at least 1.
    window: int
    #: Different documents in trouble since the last clean one or passed canary, oldest first; at most `window`.
    troubled: tuple[str, ...] = ()
    #: The last canary failed: nothing is received until one passes.
    suspended: bool = False
    #: Canaries that failed since the last clean document.
    failures: int = 0

    @property
    def owes_canary(self) -> bool:
        """Enough documents are in trouble that the host must prove itself."""
        return len(self.troubled) >= self.window

    @property
    def told(self) -> bool:
        """A person must know; it turns true once for a spell, however long that is."""
        return self.failures >= _TELL_AFTER

    def in_trouble(self, document_id: str) -> Suspicion:
        """A child of this document ended badly."""
        if document_id in self.troubled or self.owes_canary:
            return self
        return replace(self, troubled=(*self.troubled, document_id))

    def clean(self) -> Suspicion:
        """A document converted without trouble. What is suspended stays so: the canary alone ends that."""
        return self if self.suspended else replace(self, troubled=(), failures=0)

    def passed(self) -> Suspicion:
        """The canary converted: what is in trouble is so by its own fault."""
        return replace(self, troubled=(), suspended=False)

    def failed(self) -> Suspicion:
        """The canary did not convert, or no child could be started."""
        return replace(self, suspended=True, failures=self.failures + 1)


def letters_answer(outcome: Outcome) -> bool:
    """Whether a canary of letters alone, a fifth of the work, says if the host is to blame for this trouble."""
    return outcome.cause in _BY_CODE and outcome.stage in _BEFORE_PICTURES


def pause_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Seconds until the next canary after so many failed ones: at once in a fresh zygote, then doubled each time."""
    if failures < _TELL_AFTER:
        return 0.0
    return float(min(longest_s, first_s * 2 ** min(failures - _TELL_AFTER, _MOST_DOUBLINGS)))
