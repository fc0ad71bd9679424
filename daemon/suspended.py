"""The note that a suspended host leaves beside its ledger, for `bulkhead status`.

Edge: one small file in `state_dir`. Rules: it is written whole or not at all; it decides nothing; that it cannot be
written or read is no reason to stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import structlog

from daemon.clock import Clock

log = structlog.get_logger()

_NAME = "suspended.json"
#: Of a detail; the log has all of it.
_DETAIL_CHARACTERS = 1_000


def notes(state_dir: Path, *, clock: Clock, pid: int) -> Callable[[str | None], None]:
    """What writes the note: a reason to be suspended, None when it is over. Removes one that a dead parent left."""
    path, since = state_dir / _NAME, ""

    def note(detail: str | None) -> None:
        nonlocal since
        try:
            if detail is None:
                since = ""
                path.unlink(missing_ok=True)
                return
            since = since or clock.now().isoformat()
            fields = {"since": since, "detail": detail[:_DETAIL_CHARACTERS], "pid": pid}
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps(fields), encoding="utf-8")
            whole.replace(path)
        except OSError as error:
            log.warning("host.not_noted", detail=str(error))

    note(None)
    return note


def suspension(state_dir: Path, *, now: datetime) -> dict[str, object] | None:
    """What the daemon of this folder noted; None when it is not suspended, or when there is nothing to be read."""
    try:
        fields = json.loads((state_dir / _NAME).read_text(encoding="utf-8"))
        since = datetime.fromisoformat(fields["since"])
        detail, pid = str(fields["detail"]), int(fields["pid"])
    except (OSError, ValueError, KeyError, TypeError):  # mostly: there is no such file
        return None
    for_s = round((now - since).total_seconds(), 1)
    return {"since": since.isoformat(), "suspended_s": for_s, "pid": pid, "detail": detail}
