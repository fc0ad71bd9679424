"""The switch by which any thread ends the children of one delivery.

Edge: one eventfd, so that whoever watches a child sees it in the same poll as everything else.
"""

from __future__ import annotations

import os
import threading
import weakref

from daemon.model import KillReason

#: After the switches were pulled and fetches cancelled, how long slots may take to give their messages back.
LAST_WORDS_S = 5.0


class KillSwitch:
    """Lets any thread end a child, and says why; the first reason stands, for every later child too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: KillReason | None = None
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._event)

    @property
    def reason(self) -> KillReason | None:
        """Why it was pulled; None when it was not."""
        return self._reason

    def pull(self, reason: KillReason) -> None:
        """End the child that is watched with this switch, now and whenever another is."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
                os.eventfd_write(self._event, 1)

    def fileno(self) -> int:
        """Return a descriptor that is readable from the first pull on."""
        return self._event
