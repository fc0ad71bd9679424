"""What one child has said so far, checked for sense: sizes, digests, page numbers.

Core. `lifecycle.py` says when a kind of frame may come; this says whether its content agrees with what came
before. A conversion is only to be had when the result accounted for every byte and every page.
"""

from __future__ import annotations

import hashlib

from daemon.errors import ProtocolError
from daemon.frames import Chunk, Failure, Frame, PageDone, Result, StageStarted
from daemon.model import ARTEFACTS, Conversion, Stage

#: The one artefact that may be missing.
_OPTIONAL = frozenset({"preview.webp"})


class Report:
    """The frames of one child, taken in one by one."""

    def __init__(self) -> None:
        self.stage: Stage = Stage.START
        self.page: int | None = None
        #: Numbers of the pages that were accounted for.
        self.done: set[int] = set()
        #: How many pages the document has, as soon as the child said so.
        self.pages: int | None = None
        self.failure: Failure | None = None
        self.conversion: Conversion | None = None
        self._parts: dict[str, list[bytes]] = {}

    def accept(self, frame: Frame) -> None:
        """Take one frame in. Raises ProtocolError when it contradicts itself or what came before."""
        match frame:
            case StageStarted():
                self.stage, self.page = frame.stage, frame.page
            case PageDone():
                self._page_done(frame)
            case Chunk():
                self._parts.setdefault(frame.name, []).append(frame.data)
            case Failure():
                self.failure = frame
                if frame.stage is not None:
                    self.stage, self.page = frame.stage, frame.page
            case Result():
                self.conversion = self._conclude(frame)
            case _:
                pass

    def _page_done(self, frame: PageDone) -> None:
        number = frame.account.page
        if self.pages not in {None, frame.pages}:
            raise ProtocolError(f"a document of {self.pages} pages has {frame.pages} now")
        if number > frame.pages or number in self.done:
            raise ProtocolError(f"page {number} of {frame.pages} is accounted for twice, or does not exist")
        self.pages = frame.pages
        self.done.add(number)

    def _conclude(self, result: Result) -> Conversion:
        numbers = [account.page for account in result.pages]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            raise ProtocolError(f"the result's {len(numbers)} pages are not 1, 2, 3, …")
        if self.pages not in {None, len(numbers)}:
            raise ProtocolError(f"the result has {len(numbers)} pages, {self.pages} were announced")
        missing = set(ARTEFACTS) - _OPTIONAL - set(self._parts)
        if missing or set(self._parts) != set(result.artefacts):
            raise ProtocolError(f"the result names {sorted(result.artefacts)}, sent were {sorted(self._parts)}")
        artefacts: dict[str, bytes] = {}
        for name, digest in result.artefacts.items():
            content = b"".join(self._parts.pop(name))
            if len(content) != digest.size_bytes or hashlib.sha256(content).hexdigest() != digest.sha256:
                raise ProtocolError(f"{name} is not the {digest.size_bytes} bytes that the result says")
            artefacts[name] = content
        return Conversion(
            artefacts=artefacts,
            pages=tuple(account.report() for account in result.pages),
            engine=result.engine,
            warnings=result.warnings,
        )
