"""How many children at once, with how many threads and how much memory each.

Core. Two promises: workers times threads never exceeds the CPUs that this process may use, and the children's limits
together never exceed what the memory leaves, unless the host is too small for even one child. Whatever was asked for
and is not given is said in a note; a note is a sentence for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GIB = 2**30
#: For the parent (about 150 MB), the warm zygote (about 300 MB, shared with its children) and the system.
RESERVE_BYTES = GIB // 2
#: And this part of the memory, for the page cache and what else runs on the host.
RESERVE_SHARE = 16
#: An ordinary document peaks at 800 MB in its child, so below this workers are left out rather than starved.
CHILD_FLOOR_BYTES = GIB
#: The least limit that is ever given to a child: what the engine itself takes, and some pages.
CHILD_MINIMUM_BYTES = GIB // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What fits on this host."""

    #: Children at the same time; at least 1.
    workers: int
    #: Threads of each child's inference; at least 1.
    threads: int
    #: Limit of each child, where nothing speaks for more or less.
    memory_bytes_per_child: int
    #: Memory for all children together; at least a limit for each worker.
    pool_bytes: int
    #: The highest limit that a child may have beside others, or alone: what was asked for, or all there is.
    most_bytes_per_child: int
    #: What was clamped, and why; empty when everything asked for is given.
    notes: tuple[str, ...] = ()


def size(
    *,
    cpus: int,
    memory_bytes: int,
    workers: Literal["auto"] | int,
    threads: int,
    memory_per_child_bytes: int | None,
) -> Sizing:
    """Fit what was asked for into what there is.

    `cpus` and `memory_bytes` are what this process may use, not the machine's; all numbers are at least 1. More of
    either never gives fewer workers. `memory_per_child_bytes` None: the memory is divided among the workers.
    """
    assert min(cpus, memory_bytes, threads) >= 1, "nothing to divide"
    assert workers == "auto" or workers >= 1, "nobody to work"
    notes: list[str] = []
    given_threads = min(threads, cpus)
    if given_threads < threads:
        notes.append(f"threads: {threads} asked for, {given_threads} given: this process may use {_cpus(cpus)}")
    given_workers = _workers_by_cpu(workers, threads=given_threads, cpus=cpus, notes=notes)
    usable_bytes = for_children_bytes(memory_bytes)
    needed_bytes = CHILD_FLOOR_BYTES if memory_per_child_bytes is None else memory_per_child_bytes
    fitting = max(usable_bytes // needed_bytes, 1)
    if fitting < given_workers:
        notes.append(
            f"workers: {given_workers} would fit the CPUs, {fitting} given: each needs {_gib(needed_bytes)}, and "
            f"{_gib(usable_bytes)} of {_gib(memory_bytes)} are left for children"
        )
        given_workers = fitting
    limit_bytes = _limit(memory_per_child_bytes, share_bytes=usable_bytes // given_workers, notes=notes)
    pool_bytes = max(usable_bytes, given_workers * limit_bytes)
    return Sizing(
        workers=given_workers,
        threads=given_threads,
        memory_bytes_per_child=limit_bytes,
        pool_bytes=pool_bytes,
        most_bytes_per_child=pool_bytes if memory_per_child_bytes is None else limit_bytes,
        notes=tuple(notes),
    )


def for_children_bytes(memory_bytes: int) -> int:
    """What `memory_bytes` leave for all children together; 0 and more."""
    return max(memory_bytes - RESERVE_BYTES - memory_bytes // RESERVE_SHARE, 0)


def _workers_by_cpu(workers: Literal["auto"] | int, *, threads: int, cpus: int, notes: list[str]) -> int:
    most = cpus // threads
    if workers == "auto":
        return most
    if workers > most:
        notes.append(
            f"workers: {workers} asked for, {most} given: each has {threads} thread(s), and this process may use "
            f"{_cpus(cpus)}"
        )
    return min(workers, most)


def _limit(asked_bytes: int | None, *, share_bytes: int, notes: list[str]) -> int:
    """A child's limit in bytes, given its share of the memory."""
    wanted_bytes = share_bytes if asked_bytes is None else min(asked_bytes, share_bytes)
    limit_bytes = max(wanted_bytes, CHILD_MINIMUM_BYTES)
    if asked_bytes is not None and limit_bytes < asked_bytes:
        notes.append(
            f"memory of a child: {_gib(asked_bytes)} asked for, {_gib(limit_bytes)} given: this host has no more"
        )
    if limit_bytes > share_bytes:
        notes.append(
            f"memory of a child: {_gib(limit_bytes)} given, and only {_gib(share_bytes)} are left for it: this host is "
            "too small, and its kernel may end any process. Give it more memory."
        )
    elif share_bytes < CHILD_FLOOR_BYTES:
        notes.append(
            f"memory of a child: {_gib(limit_bytes)} given, and an ordinary document may need "
            f"{_gib(CHILD_FLOOR_BYTES)}: some will end for memory. Give this host more."
        )
    return limit_bytes


def _cpus(number: int) -> str:
    return "1 CPU" if number == 1 else f"{number} CPUs"


def _gib(number_bytes: int) -> str:
    return f"{number_bytes / GIB:.2f} GiB"
