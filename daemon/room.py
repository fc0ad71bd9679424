"""Room for the children of one document: asked for, waited for, given back.

Shell. Rules: a child runs only under a limit that was granted to its turn. What a neighbour's need took from a child
(a limit below a share) never costs a document anything: what died of it is done again with a whole share, and only
that counts. What died of a whole share goes down the ladder, and its next try may have more, until more was no help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from daemon.admission import Ask
from daemon.children import ChildResult
from daemon.clock import Clock
from daemon.heartbeat import InHand
from daemon.memory import Memory
from daemon.model import Cause, Document, Outcome, Plan
from daemon.not_now import raise_if_stopped
from daemon.peaks import Traits, by_name
from daemon.turns import Turn

log = structlog.get_logger()


def wait_for(
    turn: Turn, ask: Ask, held: InHand, *, clock: Clock, meanwhile: Callable[[], None] = lambda: None
) -> float:
    """Return when it is its turn and there is room, and after how many seconds. Raises like `raise_if_stopped`.

    `meanwhile` is called once if there is anything to wait for; it must not wait itself.
    """
    began = clock.monotonic()
    turn.ask(ask)
    if not turn.called:
        meanwhile()
    if not turn.wait(held.switch):
        raise_if_stopped(held)
    waited_s = clock.monotonic() - began
    if (waiting := turn.held_back) is not None:
        log.info(
            "document.held_back",
            document_id=ask.name,
            need_bytes=waiting.ask.need_bytes,
            granted_bytes=turn.memory_bytes,
            overtaken=waiting.overtaken,
            waited_s=round(waited_s, 3),
        )
    return waited_s


class Room:
    """The memory of one attempt's children, one after the other."""

    def __init__(self, memory: Memory, turn: Turn, held: InHand, document: Document, *, clock: Clock) -> None:
        self._memory = memory
        self._turn = turn
        self._held = held
        self._document = document
        self._clock = clock
        #: Known better once the bytes are here.
        self.traits = Traits(media_type=by_name(document.uri))
        #: Pages that died of a whole share; 0: the document, when no page was in hand.
        self._short: set[int] = set()
        #: The last child had more than a share, and used it. At first: it may need it, for all that this attempt knows.
        self._needs_more = True

    def remember(self, outcomes: Collection[Outcome]) -> None:
        """What earlier attempts came to, as far as it counts."""
        self._short |= {outcome.page or 0 for outcome in outcomes if outcome.cause is Cause.MEMORY}
        self._needs_more = not self._short

    def live(self, plan: Plan, run: Callable[[int, float], ChildResult]) -> ChildResult:
        """Live one child's life as soon as there is room; `waited_s` of what comes out holds the waiting too.

        `run` is called with the limit in bytes, and with the seconds that the document has waited; a second time, when
        a lowered limit ended the first child. Raises like `wait_for`, and what `run` raises.
        """
        waited_s = self._wait(self._ask(plan))
        result = run(self._turn.memory_bytes, waited_s)
        if result.outcome.cause is Cause.MEMORY and self._turn.memory_bytes < self._memory.pool.share_bytes:
            log.info("child.squeezed", limit_bytes=self._turn.memory_bytes, child=result.outcome.child)
            waited_s += result.waited_s + result.outcome.elapsed_s
            waited_s += self._wait(self._memory.share(self._document, self.traits))
            result = run(self._turn.memory_bytes, waited_s)
        self._learn(plan, result.outcome)
        return replace(result, waited_s=result.waited_s + waited_s)

    def _wait(self, ask: Ask) -> float:
        return wait_for(self._turn, ask, self._held, clock=self._clock)

    def _ask(self, plan: Plan) -> Ask:
        memory, document = self._memory, self._document
        due = self._needs_more or (plan.only or 0) in self._short
        if due and memory.more_helps(document.id):
            return memory.raised(document, self.traits)
        return memory.ordinary(document, self.traits)

    def _learn(self, plan: Plan, outcome: Outcome) -> None:
        limit_bytes, share_bytes = self._turn.memory_bytes, self._memory.pool.share_bytes
        self._memory.learn(self._document.id, self.traits, outcome, limit_bytes=limit_bytes)
        died = outcome.cause is Cause.MEMORY
        self._needs_more = not died and share_bytes < outcome.peak_rss_bytes <= limit_bytes
        if died:
            self._short.add(outcome.page or 0)
        else:
            self._short.discard(plan.only or 0)
