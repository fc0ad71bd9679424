"""What documents needed on this host, by kind and size: a bounded memory of peaks, and what they let expect.

Core. Rules: nothing here grows with the number of documents; a peak that was cut off by a limit says nothing of what a
document needs, so it is not learned with the others; without enough peaks nothing is said.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import splitext

from daemon.model import Cause, MediaType, Outcome

#: Peaks that are kept for each kind and size: the last ones, so that a new engine or other documents are soon believed.
_WINDOW = 64
#: Fewer peaks than that have no 95th percentile.
_ENOUGH = 20
#: The part of the peaks that a prediction is not below.
_QUANTILE = 0.95
#: On top of it; a limit is met by what a sample or the kernel counts besides.
_HEADROOM = 1.25
#: Sizes fall into classes, each eight times as wide as the one before: below 64 KiB, 512 KiB, 4 MiB, 32 MiB, 256 MiB.
_SMALLEST_BYTES, _WIDER, _CLASSES = 2**16, 8, 6
#: Kinds by the suffix of a name, before the bytes say it.
_SUFFIXES: Mapping[str, MediaType] = {
    ".pdf": MediaType.PDF,
    ".png": MediaType.PNG,
    ".jpg": MediaType.JPEG,
    ".jpeg": MediaType.JPEG,
    ".tif": MediaType.TIFF,
    ".tiff": MediaType.TIFF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is known of a document before it is opened."""

    #: None where neither bytes nor name have told.
    media_type: MediaType | None = None
    #: None until the bytes are here.
    size_bytes: int | None = None

    @property
    def size_class(self) -> int | None:
        """From 0; None where the size is not known."""
        if self.size_bytes is None:
            return None
        times = max(self.size_bytes / _SMALLEST_BYTES, 1.0)
        return min(math.ceil(math.log(times, _WIDER)), _CLASSES - 1)


def by_name(uri: str) -> MediaType | None:
    """What the name of a document promises."""
    return _SUFFIXES.get(splitext(uri.partition("?")[0])[1].lower())


class Peaks:
    """The last peaks of each kind and size; not safe to use from several threads."""

    def __init__(self) -> None:
        self._seen: dict[tuple[MediaType | None, int | None], deque[int]] = {}

    def learn(self, traits: Traits, outcomes: Sequence[Outcome]) -> None:
        """Take in how children of such a document ended."""
        for outcome in outcomes:
            if outcome.peak_rss_bytes and outcome.cause is not Cause.MEMORY:
                for key in {(traits.media_type, traits.size_class), (traits.media_type, None)}:
                    self._seen.setdefault(key, deque(maxlen=_WINDOW)).append(outcome.peak_rss_bytes)

    def expected_bytes(self, traits: Traits) -> int | None:
        """What such a document hardly goes beyond; None where too little is known.

        By kind and size where enough of them were seen, else by kind.
        """
        for key in ((traits.media_type, traits.size_class), (traits.media_type, None)):
            peaks = sorted(self._seen.get(key, ()))
            if len(peaks) >= _ENOUGH:
                return round(_HEADROOM * peaks[math.ceil(_QUANTILE * len(peaks)) - 1])
        return None
