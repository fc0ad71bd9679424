"""How many bytes may lie on this host's disk for documents whose turn has not come, all of them together.

Edge: threads, and what the file system says is free. Rules: what a sender declares is reserved before it comes; what
comes is counted whatever was declared; who goes beyond is told by an error, never made to wait. What is counted here
ends with the turn: from then on the bytes are an attempt's, and no business of this file.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from daemon.errors import BulkheadError


class BeyondQuotaError(BulkheadError):
    """These bytes may not be here before their turn."""


class Quota:
    """What may be fetched ahead; safe to use from several threads. By default nothing."""

    def __init__(self, most_bytes: int = 0, *, folder: Path = Path("/"), keep_free_bytes: int = 0) -> None:
        """Nothing is taken that would leave less than `keep_free_bytes` free where `folder` lies."""
        self.most_bytes = most_bytes
        self._folder = folder
        self._keep_free_bytes = keep_free_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """What is taken now, by all parts."""
        return self._used_bytes

    def part(self) -> Part:
        """Room for one fetch, which has none yet. The caller ends it."""
        return Part(self)

    def take(self, more_bytes: int) -> None:
        """Only for a part that grows. Raises `BeyondQuotaError`, or `OSError` when the disk cannot be asked."""
        with self._lock:
            if self._used_bytes + more_bytes > self.most_bytes:
                raise BeyondQuotaError(f"more than fetch.ahead_bytes, {self.most_bytes} in all")
            disk = os.statvfs(self._folder)
            if disk.f_bavail * disk.f_frsize - more_bytes < self._keep_free_bytes:
                raise BeyondQuotaError(f"the disk would have less than {self._keep_free_bytes} bytes free")
            self._used_bytes += more_bytes

    def give_back(self, size_bytes: int) -> None:
        """Only for a part that ends."""
        with self._lock:
            self._used_bytes -= size_bytes


class Part:
    """What one fetch has of the quota, until it is ended."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._lock = threading.Lock()
        self._taken_bytes = 0
        self._ended = False

    def reach(self, size_bytes: int) -> None:
        """The document has, or will have, this many bytes in all; anything goes once this is ended.

        Raises like `Quota.take`.
        """
        with self._lock:
            if not self._ended:
                more_bytes = max(size_bytes - self._taken_bytes, 0)
                self._quota.take(more_bytes)
                self._taken_bytes += more_bytes

    def end(self) -> None:
        """It counts no longer; harmless when it was ended before."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._quota.give_back(self._taken_bytes)
