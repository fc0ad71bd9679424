"""What so many workers take together, as proportional set size: each shared page is counted once, in equal parts.

Rules: all processes below this one are counted, and this one: the parent, the zygote, its standby child, the children,
and a spawned child's supervisor. It is looked at while every worker converts: whenever each has finished one more page,
until then the quicker ones wait. Zygote and spawn convert the same pages.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NoReturn

from bench._isolated import Start, isolated
from daemon.children import ChildJob, Deadlines, KillSwitch
from daemon.clock import SystemClock
from daemon.edges import Converter
from daemon.model import MediaType, PageRecord, Plan
from daemon.processes import proportional_bytes, proportional_bytes_below

#: Looked at after so many pages of each; the document has some more, so that nobody is at its end.
SAMPLES = 5
#: A net for a hang; no page of this bench comes near.
_PAGE_S = 300.0


class _SeenEnoughError(Exception):
    """Ends a child from inside its `on_page`."""


def by_workers(document: bytes, counts: Sequence[int]) -> dict[str, object]:
    """Median bytes of all processes by start method and number of workers, and what the zygote's way saves.

    `document` is a PDF of more than `SAMPLES` pages.
    """
    found: dict[Start, dict[str, int]] = {"zygote": {}, "spawn": {}}
    for start, by_count in found.items():
        with isolated(start) as children:
            for count in counts:
                by_count[str(count)] = int(statistics.median(samples_of(children, document, count)))
    saved = {count: found["spawn"][count] - found["zygote"][count] for count in found["zygote"]}
    return {"pss_by_workers_bytes": found, "pss_saved_by_zygote_bytes": saved}


def samples_of(children: Converter, document: bytes, count: int) -> list[int]:
    """Bytes of this process and all below, `SAMPLES` times, while `count` children convert."""
    samples: list[int] = []
    together = threading.Barrier(count, action=lambda: samples.append(_pss_bytes()), timeout=_PAGE_S)

    def on_page(_record: PageRecord, _pages: int) -> None:
        together.wait()
        if len(samples) == SAMPLES:
            raise _SeenEnoughError

    def work(number: int) -> NoReturn:
        try:
            _convert(children, document, number, on_page)
        except _SeenEnoughError:
            raise
        except BaseException:
            together.abort()  # whoever fails leaves nobody waiting
            raise

    with ThreadPoolExecutor(count) as threads:
        for life in [threads.submit(work, number) for number in range(count)]:
            with suppress(_SeenEnoughError):
                life.result()
    return samples


def _convert(children: Converter, document: bytes, number: int, on_page: Callable[[PageRecord, int], None]) -> NoReturn:
    """One child, ended by `on_page`."""
    clock = SystemClock()
    job = ChildJob(document_id=f"bench-{number}", attempt=1, child=1, plan=Plan(), media_type=MediaType.PDF)
    longest_s = _PAGE_S * SAMPLES
    deadlines = Deadlines(started=clock.monotonic(), base_s=longest_s, per_page_s=0.0, longest_s=longest_s)
    with tempfile.TemporaryFile() as file:
        file.write(document)
        file.flush()
        result = children.run(job, file, finished=None, deadlines=deadlines, switch=KillSwitch(), on_page=on_page)
    raise AssertionError(f"the document has more than {SAMPLES} pages: {result.outcome}")


def _pss_bytes() -> int:
    """Proportional set size of this process and of everything below it."""
    return proportional_bytes(os.getpid()) + proportional_bytes_below(os.getpid())
