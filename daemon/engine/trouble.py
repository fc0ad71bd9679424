"""What a library's exception means, in words that may be kept.

Engine, but imports nothing native.
"""

from __future__ import annotations

#: What native libraries say when an allocation was refused.
_NO_MEMORY = ("bad_alloc", "malloc", "calloc", "realloc", "cannot allocate", "failed to allocate", "out of memory")


def is_memory(error: BaseException) -> bool:
    """Whether an exception, or one behind it, says that an allocation was refused."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen).lower()
        if isinstance(seen, MemoryError) or any(sign in text for sign in _NO_MEMORY):
            return True
        seen = seen.__cause__
    return False


def say(error: BaseException) -> str:
    """The first line of what was raised, bounded: the rest may be document text or a foreign traceback."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
