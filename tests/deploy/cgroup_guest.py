"""What `test_cgroup.py` runs as the daemon's unit in its machine: a parent, greedy children, and what became of them.

Prints one JSON object. Nothing is judged here.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import structlog

from daemon import cgroup
from daemon.cgroup_find import find
from daemon.cgroup_tree import Tree, pids
from daemon.children import ChildJob, Children, Deadlines, KillSwitch
from daemon.clock import SystemClock
from daemon.config import Settings
from daemon.config_engine import ChildSettings
from daemon.model import MediaType, Plan

MEMORY_BYTES = 128 * 2**20
TREE = Tree()
#: The greedy ones take more than that where RLIMIT_DATA does not count: shared, in a memfd, in a child of the child.
DOCUMENTS = ("a\nb", "a\nburst", "a\nburst-memfd", "a\nburst-below", "a")


def main() -> None:
    """Live one parent's life."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    began = time.monotonic()
    place = find()
    groups = cgroup.claim(place)
    told: dict[str, Any] = {"base": str(place.base or ""), "reason": place.reason, "uid": os.geteuid()}
    if groups is not None:
        with tempfile.TemporaryDirectory(dir=os.environ["STATE_DIRECTORY"]) as scratch:
            told |= lives(groups, Path(scratch))
    json.dump(told | {"elapsed_s": round(time.monotonic() - began, 1)}, sys.stdout)


def lives(groups: cgroup.Groups, scratch: Path) -> dict[str, Any]:
    """One child after the other, and the tree between them."""
    children = Children(
        # Without a sandbox, which would deny the memfd and the grandchild that the kernel is to count.
        settings=Settings(child=ChildSettings(start_timeout_s=200, sandbox="off")),
        memory_bytes=MEMORY_BYTES,
        scratch_root=scratch,
        clock=SystemClock(),
        engine_factory="fake_engine:load",
        engine_path=str(Path(__file__).parent),
        groups=groups,
    )
    children.start()
    told: dict[str, Any] = {"pid": os.getpid(), "zygote": children.zygote_pid, "tree": tree(groups.base)}
    told["limits"] = [TREE.read(groups.base / name) for name in ("cgroup.subtree_control", "cgroup.controllers")]
    told["lives"] = [life(children, groups, text) for text in DOCUMENTS]
    told["tree_after"] = tree(groups.base)
    children.stop()
    told["tree_at_end"] = tree(groups.base)
    return told


def life(children: Children, groups: cgroup.Groups, text: str) -> dict[str, Any]:
    """What became of one document, and what its child's group looked like from its second page on."""
    seen: list[Any] = []
    with tempfile.TemporaryFile() as document, structlog.testing.capture_logs() as logs:
        document.write(text.encode())
        document.flush()
        result = children.run(
            ChildJob(document_id="d", attempt=1, child=1, plan=Plan(), media_type=MediaType.PDF),
            document,
            finished=None,
            deadlines=Deadlines(started=time.monotonic(), base_s=120, per_page_s=0, longest_s=120),
            switch=KillSwitch(),
            on_page=lambda _record, _pages: seen.append(tree(groups.base)),
        )
    (line,) = [line for line in logs if line["event"] == "child.exited"]
    kept = ("pid", "cause", "signal", "page", "oom_kills", "cgroup_peak_bytes", "peak_rss_bytes", "detail", "elapsed_s")
    return {"text": text, "tree": seen[0], "waited_s": result.waited_s} | {name: line[name] for name in kept}


def tree(base: Path) -> dict[str, list[int]]:
    """The groups below `base`, with their processes; `base` itself is the empty name."""
    return {"": pids(TREE, base)} | {name: pids(TREE, base / name) for name in TREE.groups(base)}


if __name__ == "__main__":
    main()
