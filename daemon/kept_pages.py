"""The finished pages of one document during one attempt.

Shell. Each page that a child hands over is kept twice: in the checkpoints, for whoever comes after this parent, and in
a pack that the next child reads: an unnamed file, as soon as there is a next child or the pack is large. The parent
never looks inside a page.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

import structlog

from daemon import pack
from daemon.checkpoints import Checkpoints
from daemon.decide import Pages
from daemon.errors import WorldError
from daemon.model import Outcome, PageRecord, PageState

log = structlog.get_logger()

#: A pack up to this size needs no file while no child has asked for it: most documents have one child.
_IN_MEMORY_BYTES = 2**20


def forget(checkpoints: Checkpoints, document_id: str) -> None:
    """The document is settled: nothing of its pages is needed again. What cannot be dropped now is dropped later."""
    try:
        checkpoints.drop(document_id)
    except WorldError as error:
        log.warning("checkpoint.failed", document_id=document_id, detail=error.detail)


class KeptPages:
    """What is known of the pages, and where their blobs are."""

    def __init__(self, checkpoints: Checkpoints, document_id: str, *, scratch: Path | None = None) -> None:
        self._checkpoints = checkpoints
        self._document_id = document_id
        self._fingerprint = ""
        self.known = Pages()
        self._scratch = scratch
        self._pack: tempfile.SpooledTemporaryFile[bytes] | None = None

    @property
    def fingerprint(self) -> str:
        """Of what is being converted; empty until `resume`."""
        return self._fingerprint

    @property
    def file(self) -> BinaryIO | None:
        """Blobs of all finished pages, as `pack` lays them out; a child gets it read-only. None without such a page.

        Raises OSError.
        """
        if self._pack is None:
            return None
        self._pack.rollover()
        self._pack.flush()
        return cast("BinaryIO", self._pack)

    def remember(self, outcomes: Sequence[Outcome]) -> None:
        """Learn how many pages there are from whoever opened the document; of two answers the larger one stands."""
        counts = [count for count in (self.known.count, *(o.pages for o in outcomes)) if count is not None]
        if counts:
            self.known = replace(self.known, count=max(counts))

    def resume(self, fingerprint: str) -> None:
        """Take up what earlier attempts at the same bytes, options and engine finished."""
        self._fingerprint = fingerprint
        finished = set()
        try:
            for page, blob in self._checkpoints.each(self._document_id, fingerprint):
                self._append(page, blob)
                finished.add(page)
        except WorldError as error:
            log.warning("checkpoint.failed", detail=error.detail)
        if finished:
            self.known = replace(self.known, finished=frozenset(finished))
            log.info("document.resumed", pages=len(finished))

    def keep(self, record: PageRecord, pages: int) -> None:
        """One more page of `pages` is finished.

        Where the checkpoints do not take it, the work goes on: only a parent that dies would miss it. Raises OSError
        when there is no room for the pack, without which the next child could not go on.
        """
        try:
            self._checkpoints.put(self._document_id, self._fingerprint, record)
        except WorldError as error:
            log.warning("checkpoint.failed", page=record.page, detail=error.detail)
        self._append(record.page, record.blob)
        count = max(pages, self.known.count or 0)
        self.known = Pages(finished=self.known.finished | {record.page}, count=count)
        log.debug("page.finished", page=record.page, pages=pages, state=str(record.report.state))
        if record.report.state in {PageState.DEGRADED, PageState.FAILED}:
            log.warning("page.degraded", page=record.page, state=str(record.report.state), reason=record.report.reason)

    def _append(self, page: int, blob: bytes) -> None:
        if self._pack is None:
            folder = None if self._scratch is None else str(self._scratch)
            self._pack = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=folder)  # noqa: SIM115 - closed by `close`
        self._pack.seek(0, os.SEEK_END)
        self._pack.write(pack.header(page, blob))
        self._pack.write(blob)
        self._pack.flush()

    def close(self) -> None:
        """Give the pack's space back; checkpoints stay until the document settles."""
        if self._pack is not None:
            self._pack.close()
