"""The note of who waits for memory, beside the ledger, for `bulkhead status`.

Edge: one small file in `state_dir`, there only while somebody waits. Rules: it is written whole or not at all; it
decides nothing; that it cannot be written or read is no reason to stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import structlog

from daemon.clock import Clock
from daemon.turns import HeldBack

log = structlog.get_logger()

_NAME = "held_back.json"


def notes(state_dir: Path, *, clock: Clock, pid: int) -> Callable[[HeldBack], None]:
    """What writes the note. Removes one that a dead parent left."""
    path = state_dir / _NAME

    def note(waiting: HeldBack) -> None:
        try:
            if not waiting:
                path.unlink(missing_ok=True)
                return
            rows = [{"document_id": name, "need_bytes": need_bytes} for name, need_bytes in waiting]
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps({"at": clock.now().isoformat(), "pid": pid, "documents": rows}), "utf-8")
            whole.replace(path)
        except OSError as error:
            log.warning("host.not_noted", detail=str(error))

    note(())
    return note


def held_back(state_dir: Path) -> list[dict[str, object]]:
    """Who waits for memory by the daemon's last word, first come first; empty where nothing can be read."""
    try:
        fields = json.loads((state_dir / _NAME).read_text("utf-8"))
        return [
            {"document_id": str(row["document_id"]), "need_bytes": int(row["need_bytes"])}
            for row in fields["documents"]
        ]
    except (OSError, ValueError, KeyError, TypeError):  # mostly: there is no such file
        return []
