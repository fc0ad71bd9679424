"""Who converts next: workers and memory are handed out together, so that what runs never adds up to more than there is.

Core. `Line` is a value: each method returns the next one. Rules:

- What was granted is a limit that is enforced, and all grants together never exceed the pool.
- The biggest goes first, by memory, then by bytes, then by arrival.
- Whoever was overtaken `MOST_OVERTAKEN` times goes next; until it fits, nobody else begins.
- Nothing idles: while a worker is free and something fits, it begins, but for the rule before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from daemon.sizing import CHILD_FLOOR_BYTES

#: How many that came later may begin before one that waits. A worker idles from then until it fits, so not few; and
#: each costs it a document's time, seconds for most, so not many.
MOST_OVERTAKEN = 8
#: More memory than a share is worth waiting for from this many shares on.
_WORTHWHILE = 1.25

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What there is to hand out."""

    #: Who may convert at the same time; at least 1.
    workers: int
    #: The limit of a child where everybody gets the same; `workers` times this is at most `total_bytes`.
    share_bytes: int
    #: All memory for children.
    total_bytes: int
    #: The highest limit that any child may have; from a share to everything.
    most_bytes: int

    def __post_init__(self) -> None:
        assert min(self.workers, self.share_bytes) >= 1, "nobody to work, or nothing to work with"
        assert self.workers * self.share_bytes <= self.total_bytes, "the shares are more than there is"
        assert self.share_bytes <= self.most_bytes <= self.total_bytes, "a child's limit is more than there is"

    @classmethod
    def of_shares(cls, workers: int, share_bytes: int = CHILD_FLOOR_BYTES) -> Pool:
        """The same for everybody, and never more."""
        total_bytes = workers * share_bytes
        return cls(workers=workers, share_bytes=share_bytes, total_bytes=total_bytes, most_bytes=share_bytes)

    @property
    def ordinary_bytes(self) -> int:
        """What a document needs of which nothing is known."""
        return min(CHILD_FLOOR_BYTES, self.share_bytes)

    @property
    def raised_bytes(self) -> int:
        """The limit for a document that met its share: all but what ordinary ones beside it need.

        Everything, where that would hardly be more than a share; the document is alone then. The share itself, where
        there is no more.
        """
        beside_bytes = self.total_bytes - (self.workers - 1) * self.ordinary_bytes
        wanted_bytes = beside_bytes if beside_bytes >= _WORTHWHILE * self.share_bytes else self.total_bytes
        return min(wanted_bytes, self.most_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one document is expected to need."""

    #: Its peak, with headroom; more than any child may have is taken for that.
    need_bytes: int
    #: Size of the document; 0 where it is not known.
    size_bytes: int = 0
    #: For a person who asks who waits.
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Somebody in the line."""

    ask: Ask
    #: How many that came later began before it.
    overtaken: int = 0
    #: A worker was free for it, and the memory was not.
    held_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Who waits and who converts, each under the number at which it arrived: lower ones came earlier."""

    pool: Pool
    waiting: Mapping[int, Waiting] = field(default_factory=dict)
    #: Bytes that each of those who convert may use.
    granted: Mapping[int, int] = field(default_factory=dict)

    @property
    def free_bytes(self) -> int:
        """Memory that nobody was granted."""
        return self.pool.total_bytes - sum(self.granted.values())

    def asked(self, number: int, ask: Ask) -> Line:
        """`number` asks, for the first time or again. Only between two children: a grant may be taken back.

        A grant that is enough stays, but for what is beyond a share and no longer needed. One that is not is given
        back, and `number` waits in its old place.
        """
        ask = replace(ask, need_bytes=min(max(ask.need_bytes, 1), self.pool.most_bytes))
        grant_bytes = self.granted.get(number)
        if grant_bytes is None:
            before = self.waiting.get(number)
            now = Waiting(ask=ask) if before is None else replace(before, ask=ask, held_back=False)
            return replace(self, waiting={**self.waiting, number: now})
        if ask.need_bytes <= grant_bytes:
            kept_bytes = min(grant_bytes, max(ask.need_bytes, self.pool.share_bytes))
            return replace(self, granted={**self.granted, number: kept_bytes})
        return replace(self, waiting={**self.waiting, number: Waiting(ask=ask)}, granted=_without(self.granted, number))

    def left(self, number: int) -> Line:
        """`number` has ended, or waits no longer."""
        return replace(self, waiting=_without(self.waiting, number), granted=_without(self.granted, number))

    def admitted(self) -> Line:
        """Everybody begins who may, one after the other; `granted` then names them."""
        line = self
        while (number := line.following()) is not None:
            line = line.begun(number)
        return line.looked_over()

    def following(self) -> int | None:
        """Who begins now; None when nobody may."""
        if len(self.granted) >= self.pool.workers:
            return None
        patient = [number for number, waiting in self.waiting.items() if waiting.overtaken >= MOST_OVERTAKEN]
        candidates = [min(patient)] if patient else self.waiting
        free_bytes = self.free_bytes
        fitting = [number for number in candidates if self.waiting[number].ask.need_bytes <= free_bytes]
        return min(fitting, key=self._rank, default=None)

    def _rank(self, number: int) -> tuple[int, int, int]:
        """Biggest first."""
        ask = self.waiting[number].ask
        return (-ask.need_bytes, -ask.size_bytes, number)

    def begun(self, number: int) -> Line:
        """`number` begins, which fits; who did not fit waits for memory from now on."""
        free_bytes = self.free_bytes
        waits = {other: waiting for other, waiting in self.waiting.items() if other != number}
        for other, waiting in tuple(waits.items()):
            earlier, unfit = other < number, waiting.ask.need_bytes > free_bytes
            if earlier or unfit:
                held_back = waiting.held_back or unfit
                waits[other] = replace(waiting, overtaken=waiting.overtaken + earlier, held_back=held_back)
        return replace(self, waiting=waits, granted={**self.granted, number: self._grant_bytes(number)})

    def _grant_bytes(self, number: int) -> int:
        """Its part of what is free, up to a share; but only what it needs, while somebody waits for memory."""
        need_bytes, free_bytes = self.waiting[number].ask.need_bytes, self.free_bytes
        if any(waiting.ask.need_bytes > free_bytes for waiting in self.waiting.values()):
            return need_bytes
        part_bytes = free_bytes // (self.pool.workers - len(self.granted))
        return max(need_bytes, min(self.pool.share_bytes, part_bytes))

    def looked_over(self) -> Line:
        """While a worker is free, whoever waits waits for memory."""
        if len(self.granted) >= self.pool.workers:
            return self
        return replace(
            self, waiting={number: replace(waiting, held_back=True) for number, waiting in self.waiting.items()}
        )


def _without(mapping: Mapping[int, _Value], number: int) -> dict[int, _Value]:
    return {other: value for other, value in mapping.items() if other != number}
