"""Sizing: properties for all hosts, and the sentences that a person reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from daemon.sizing import CHILD_FLOOR_BYTES, CHILD_MINIMUM_BYTES, GIB, RESERVE_BYTES, Sizing, size

Workers = Literal["auto"] | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What there is, and what is asked for; by default an ordinary host and the default settings."""

    cpus: int = 8
    memory_bytes: int = 64 * GIB
    workers: Workers = "auto"
    threads: int = 1
    memory_per_child_bytes: int | None = None

    def size(self) -> Sizing:
        """`sizing.size` of this host."""
        return size(
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
            workers=self.workers,
            threads=self.threads,
            memory_per_child_bytes=self.memory_per_child_bytes,
        )


HOSTS = st.builds(
    Host,
    cpus=st.integers(1, 512),
    memory_bytes=st.integers(1, 4096 * GIB),
    workers=st.one_of(st.just("auto"), st.integers(1, 1024)),
    threads=st.integers(1, 64),
    memory_per_child_bytes=st.one_of(st.none(), st.integers(CHILD_MINIMUM_BYTES, 64 * GIB)),
)


@given(HOSTS)
def test_never_more_than_the_cpus(host: Host) -> None:
    """Whatever is asked for: at least one worker and thread, and never more runnable threads than CPUs."""
    sizing = host.size()
    assert sizing.workers >= 1
    assert sizing.threads >= 1
    assert sizing.workers * sizing.threads <= host.cpus
    assert sizing.memory_bytes_per_child >= CHILD_MINIMUM_BYTES


@given(HOSTS)
def test_never_more_than_the_memory(host: Host) -> None:
    """Children that all reach their limit must not end the daemon; only one minimal child may be too much."""
    sizing = host.size()
    total = sizing.workers * sizing.memory_bytes_per_child
    minimal = (sizing.workers, sizing.memory_bytes_per_child) == (1, CHILD_MINIMUM_BYTES)
    assert minimal or total <= host.memory_bytes - RESERVE_BYTES


@given(HOSTS, st.integers(0, 64), st.integers(0, 64 * GIB))
def test_a_larger_host_never_does_less(host: Host, more_cpus: int, more_bytes: int) -> None:
    """Moving to a larger machine must not lose workers, as long as their threads stay the same."""
    larger = replace(host, cpus=host.cpus + more_cpus, memory_bytes=host.memory_bytes + more_bytes)
    before, after = host.size(), larger.size()
    assert after.threads >= before.threads
    assert after.workers >= before.workers or after.threads > before.threads


@given(HOSTS, st.integers(1, 1024), st.integers(0, 64))
def test_asking_for_more_never_gives_less(host: Host, workers: int, more: int) -> None:
    """A higher setting gives at least as many workers, and `auto` at least as many as any number."""
    given_workers = replace(host, workers=workers).size().workers
    assert replace(host, workers=workers + more).size().workers >= given_workers
    assert replace(host, workers="auto").size().workers >= given_workers


@given(HOSTS)
def test_silence_means_as_asked(host: Host) -> None:
    """Without a note, everything is as it was asked for; nothing is clamped in silence."""
    sizing = host.size()
    as_asked = (
        host.workers in {"auto", sizing.workers}
        and host.threads == sizing.threads
        and host.memory_per_child_bytes in {None, sizing.memory_bytes_per_child}
        and (host.workers != "auto" or sizing.workers == host.cpus // sizing.threads)
    )
    assert as_asked or sizing.notes


def test_auto_on_an_ordinary_host() -> None:
    """`auto` uses every CPU and divides what memory is left, and has nothing to explain."""
    sizing = Host(cpus=8, memory_bytes=64 * GIB, threads=2).size()
    left = 64 * GIB - RESERVE_BYTES - 4 * GIB
    assert sizing == Sizing(
        workers=4, threads=2, memory_bytes_per_child=left // 4, pool_bytes=left, most_bytes_per_child=left
    )


@given(HOSTS)
def test_no_child_may_have_more_than_all_of_them(host: Host) -> None:
    """A limit for everybody fits the pool; nobody gets more than the pool, nor more than an operator asked for."""
    sizing = host.size()
    assert sizing.workers * sizing.memory_bytes_per_child <= sizing.pool_bytes
    assert sizing.memory_bytes_per_child <= sizing.most_bytes_per_child <= sizing.pool_bytes
    assert host.memory_per_child_bytes is None or sizing.most_bytes_per_child == sizing.memory_bytes_per_child


def test_more_workers_than_cpus() -> None:
    """The classic: 16 workers on 2 CPUs finish nothing; the note says what is given and why."""
    sizing = Host(cpus=2, workers=16).size()
    assert sizing.workers == 2
    assert sizing.notes == ("workers: 16 asked for, 2 given: each has 1 thread(s), and this process may use 2 CPUs",)


def test_more_threads_than_cpus() -> None:
    """Threads are cut first, so that one worker is left."""
    sizing = Host(cpus=1, threads=4).size()
    assert (sizing.workers, sizing.threads) == (1, 1)
    assert sizing.notes == ("threads: 4 asked for, 1 given: this process may use 1 CPU",)


def test_little_memory_leaves_workers_out() -> None:
    """One child that can work is better than four that starve."""
    sizing = Host(cpus=4, memory_bytes=3 * GIB).size()
    assert sizing.workers == 2
    assert sizing.memory_bytes_per_child >= CHILD_FLOOR_BYTES
    assert "workers: 4 would fit the CPUs, 2 given: each needs 1.00 GiB" in sizing.notes[0]


def test_memory_that_was_asked_for_is_kept_by_fewer_workers() -> None:
    """A limit for large documents is worth more than a second worker."""
    sizing = Host(cpus=4, memory_bytes=16 * GIB, workers=4, memory_per_child_bytes=6 * GIB).size()
    assert (sizing.workers, sizing.memory_bytes_per_child) == (2, 6 * GIB)


def test_memory_that_is_not_there() -> None:
    """A limit beyond the host's memory protects nobody; it is clamped and said."""
    sizing = Host(memory_bytes=4 * GIB, memory_per_child_bytes=8 * GIB).size()
    assert (sizing.workers, sizing.memory_bytes_per_child) == (1, 4 * GIB - RESERVE_BYTES - GIB // 4)
    assert any("8.00 GiB asked for, 3.25 GiB given" in note for note in sizing.notes)


def test_host_that_is_too_small() -> None:
    """Half a GiB in all: it starts, with one worker, and says that it may not hold."""
    sizing = Host(memory_bytes=GIB // 2).size()
    assert (sizing.workers, sizing.memory_bytes_per_child) == (1, CHILD_MINIMUM_BYTES)
    assert "this host is too small" in sizing.notes[-1]
