"""What one child has said so far, checked for sense: sizes, digests, page numbers.

Core. `lifecycle.py` says when a kind of frame may come; this says whether its content agrees with what came
before and with the child's plan. A page is finished when its blob has the size and the digest that its account
says; a conversion is only to be had when the result accounted for every byte and every page.
"""

from __future__ import annotations

import hashlib

from daemon.errors import ProtocolError
from daemon.frames import BlobChunk, Chunk, Failure, Frame, Opened, PageDone, Result, Sliced, StageStarted
from daemon.model import ARTEFACTS, Conversion, PageRecord, Plan, Stage
from daemon.pack import MAX_BLOB_BYTES

#: The one artefact that may be missing.
_OPTIONAL = frozenset({"preview.webp"})


class Report:
    """The frames of one child, taken in one by one."""

    def __init__(self, plan: Plan, *, max_pages: int) -> None:
        """`max_pages` is what an honest child refuses by itself; the parent's own memory depends on it."""
        self.stage: Stage = Stage.START
        self.page: int | None = None
        #: Numbers of the pages that this child finished.
        self.done: set[int] = set()
        #: How many pages the document has, as soon as the child said so.
        self.pages: int | None = None
        self.failure: Failure | None = None
        #: How many pages are left, once the child said that its share is done.
        self.left: int | None = None
        self.conversion: Conversion | None = None
        self._plan = plan
        self._max_pages = max_pages
        self._parts: dict[str, list[bytes]] = {}
        #: The blob that is coming in, and whose it is.
        self._blob = bytearray()
        self._blob_page: int | None = None

    def accept(self, frame: Frame) -> PageRecord | None:
        """Take one frame in; returns the page that it finished, if it did.

        Raises ProtocolError when it contradicts itself, the plan or what came before.
        """
        match frame:
            case StageStarted():
                self.stage, self.page = frame.stage, frame.page
            case Opened():
                self._opened(frame)
            case BlobChunk():
                self._take_blob(frame)
            case PageDone():
                return self._page_done(frame)
            case Chunk():
                self._parts.setdefault(frame.name, []).append(frame.data)
            case Failure():
                self.failure = frame
                if frame.stage is not None:
                    self.stage, self.page = frame.stage, frame.page
            case Sliced():
                self._sliced(frame)
            case Result():
                self.conversion = self._conclude(frame)
            case _:
                pass
        return None

    def _opened(self, frame: Opened) -> None:
        if self.pages is not None:
            raise ProtocolError(f"a document of {self.pages} pages was opened again, and has {frame.pages} now")
        if frame.pages > self._max_pages:
            raise ProtocolError(f"{frame.pages} pages were announced, {self._max_pages} are allowed")
        self.pages = frame.pages

    def _take_blob(self, frame: BlobChunk) -> None:
        if self._blob_page is None:
            self._expect(frame.page)
            self._blob_page = frame.page
        if self._blob_page != frame.page:
            raise ProtocolError(f"bytes of page {frame.page} amid those of page {self._blob_page}")
        if len(self._blob) + len(frame.data) > MAX_BLOB_BYTES:
            raise ProtocolError(f"page {frame.page} has more than {MAX_BLOB_BYTES} bytes")
        self._blob += frame.data

    def _expect(self, page: int) -> None:
        """Refuse a page that does not exist, that nobody asked for, or that is finished."""
        if self.pages is None or page > self.pages:
            raise ProtocolError(f"page {page} does not exist: {self.pages or 'no'} pages were announced")
        if page in self.done:
            raise ProtocolError(f"page {page} is finished twice")
        if not self._plan.wants(page) or len(self.done) >= self._plan.most_pages:
            raise ProtocolError(f"page {page} is not this child's to convert")

    def _page_done(self, frame: PageDone) -> PageRecord:
        page = frame.account.page
        self._expect(page)
        if self._blob_page not in {None, page}:
            raise ProtocolError(f"page {page} is finished amid the bytes of page {self._blob_page}")
        blob = bytes(self._blob)
        self._blob, self._blob_page = bytearray(), None
        if len(blob) != frame.size_bytes or hashlib.sha256(blob).hexdigest() != frame.sha256:
            raise ProtocolError(f"page {page} is not the {frame.size_bytes} bytes that its account says")
        self.done.add(page)
        return PageRecord(page=page, report=frame.account.report(), blob=blob)

    def _sliced(self, frame: Sliced) -> None:
        if not self.done:
            raise ProtocolError("a share of the pages is done, and none was finished")
        if self.pages is None or frame.left > self.pages - len(self.done):
            raise ProtocolError(f"{frame.left} pages are left of {self.pages}, and {len(self.done)} are done")
        self.left = frame.left

    def _conclude(self, result: Result) -> Conversion:
        numbers = [account.page for account in result.pages]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            raise ProtocolError(f"the result's {len(numbers)} pages are not 1, 2, 3, …")
        if self.pages != len(numbers):
            raise ProtocolError(f"the result has {len(numbers)} pages, {self.pages or 'none'} were announced")
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
