"""One side of `bench.before`: the process of one checkout, begun again after whatever ended it.

Rules: which `daemon` a process has is what it says itself, and it is checked each time that one begins. A document that
ends its process, or keeps it longer than the limit, costs that document and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench._loop import Loop, LoopEnded
from bench._measure import Cost, Doc

_SCRIPT = Path(__file__).with_name("_before_loop.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """One conversion of one document."""

    cost: Cost
    pages: int
    markdown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """It was opened and put down: it has more pages than are compared."""

    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """There is no conversion, and why."""

    reason: str


Answer = Converted | TooLong | Failed


class Side:
    """A process that converts with the `daemon` of one checkout; end it by leaving the `with`."""

    def __init__(self, checkout: Path, *, pages: int, longest_s: float) -> None:
        """`pages` is the most that a document may have, `longest_s` the most that it may take."""
        self._checkout = checkout.resolve()
        self._pages = pages
        self._longest_s = longest_s
        self._loop: Loop | None = None

    def __enter__(self) -> Self:
        """Wait until the engine is loaded. Raises LoopEnded."""
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process."""
        self._end()

    def convert(self, doc: Doc) -> Answer:
        """Convert and wait, `longest_s` at most. Raises LoopEnded when no process can be begun after that."""
        if self._loop is None:
            self._begin()
        assert self._loop is not None, "begun"
        asked = {"path": str(doc.path.resolve()), "media_type": doc.media_type, "pages": self._pages}
        try:
            answer = self._loop.ask(asked, within_s=self._longest_s)
        except TimeoutError:
            self._end()
            return Failed(reason=f"took longer than {self._longest_s:g} s")
        except LoopEnded as ended:
            self._end()
            return Failed(reason=str(ended))
        return _understood(answer)

    def _begin(self) -> None:
        # -P: neither the script's folder nor the current one is looked at before PYTHONPATH; an editable install comes
        # after it.
        loop = Loop("-P", str(_SCRIPT), environment={"PYTHONPATH": str(self._checkout)})
        self._loop = loop
        try:
            ready = loop.ready()
        except LoopEnded:
            self._end()
            raise
        found = Path(ready["daemon"])
        assert found == self._checkout / "daemon", f"the daemon of {self._checkout} is measured, not {found}"

    def _end(self) -> None:
        if self._loop is not None:
            self._loop.kill()
            self._loop.close()
            self._loop = None


def _understood(answer: dict[str, Any]) -> Answer:
    if "failed" in answer:
        return Failed(reason=answer["failed"])
    if "too_long" in answer:
        return TooLong(pages=answer["too_long"])
    cost = Cost(wall_s=answer["wall_s"], cpu_s=answer["cpu_s"])
    return Converted(cost=cost, pages=answer["pages"], markdown=answer["markdown"])
