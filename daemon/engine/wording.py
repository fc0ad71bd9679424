"""Text that may be kept anywhere, and what a library's exception means.

Engine, but imports nothing native.
"""

from __future__ import annotations

import re

#: What native libraries say when an allocation was refused.
_NO_MEMORY = ("bad_alloc", "malloc", "calloc", "realloc", "cannot allocate", "failed to allocate", "out of memory")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with lone surrogates and NUL replaced, so that it can be written as UTF-8 anywhere."""
    return _SURROGATES.sub("�", text).replace("\x00", "�")


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
    return clean(lines[0] if lines else type(error).__name__)[:200]
