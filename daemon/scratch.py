"""A child's scratch folder: how much lies in it, and its removal, whatever the child has made of it.

Edge: the file system. Rules: nothing is followed out of the folder; looking is bounded in depth and number, since what
is looked at may be hostile; what cannot be looked into counts as empty.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

#: More files and folders than any engine makes; each costs an inode, and looking at it costs time.
MOST_ENTRIES: Final = 10_000
#: Folders in folders; deeper ones could not even be named in one path.
MOST_LEVELS: Final = 32
#: What each entry counts at least, since it takes room even when it is empty.
_ENTRY_BYTES: Final = 512
_BLOCK_BYTES: Final = 512


def size_bytes(folder: Path, *, most_bytes: int) -> int:
    """How much lies in `folder`; more than `most_bytes` as soon as that much is found, too many entries or a deep one.

    A file that is there under several names counts for each.
    """
    total, entries = 0, 0
    waiting = [(str(folder), 0)]
    while waiting:
        path, level = waiting.pop()
        with suppress(OSError), os.scandir(path) as found:  # it went away, or hides what it holds
            for entry in found:
                with suppress(OSError):
                    entries += 1
                    total += max(_ENTRY_BYTES, entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, level + 1))
                if total > most_bytes or entries > MOST_ENTRIES or level > MOST_LEVELS:
                    return max(total, most_bytes + 1)
    return total


def remove_tree(folder: Path) -> None:
    """Remove a scratch folder, whatever a child has made of it: modes without rights, a tree too deep for Python."""
    with suppress(OSError):
        folder.rmdir()  # an empty one needs no descriptor, and there may be none
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    # Programs that recurse without a limit; what is left after them is left, and the next start tries again.
    for program in (("/bin/chmod", "-R", "u+rwX"), ("/bin/rm", "-rf")):
        with suppress(OSError):
            subprocess.run(  # noqa: S603 - fixed programs, and a folder that this process made
                [*program, "--", folder], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
