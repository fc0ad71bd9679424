"""What a calibration measures, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.calibration import (
    HOPELESS,
    ROUNDS,
    Combination,
    Run,
    Turn,
    copies,
    hopeless_after_s,
    next_turn,
    plan,
    sample,
    slices,
    worth_beginning,
)
from daemon.sizing import GIB


def pair(workers: int, threads: int, pages_per_child: int = 40) -> Combination:
    """A combination."""
    return Combination(workers=workers, threads=threads, pages_per_child=pages_per_child)


def pairs(cpus: int, memory_bytes: int = 512 * GIB) -> list[tuple[int, int]]:
    """Workers and threads of the plan for a host, in order."""
    planned = plan(cpus=cpus, memory_bytes=memory_bytes, memory_per_child_bytes=None, pages_per_child=40)
    return [(each.workers, each.threads) for each in planned.combinations]


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(2, 1), (1, 1), (1, 2)]),
        (4, [(4, 1), (3, 1), (2, 1), (1, 1), (2, 2), (1, 2), (1, 3), (1, 4)]),
        (6, [(6, 1), (4, 1), (2, 1), (1, 1), (3, 2), (2, 2), (1, 2), (1, 4), (1, 6)]),
    ],
)
def test_the_plan(cpus: int, expected: list[tuple[int, int]]) -> None:
    """All pairs of a small host, the most workers of one thread first; steps on a larger one."""
    assert pairs(cpus) == expected


@given(cpus=st.integers(1, 256), memory_gib=st.integers(1, 512))
def test_never_more_than_the_host_has(cpus: int, memory_gib: int) -> None:
    """What is planned is given in full; what is not given is shown, with the reason; nothing is both, or twice."""
    planned = plan(cpus=cpus, memory_bytes=memory_gib * GIB, memory_per_child_bytes=None, pages_per_child=40)
    assert planned.combinations, "one worker always fits"
    assert len(set(planned.combinations)) == len(planned.combinations)
    assert not set(planned.combinations) & planned.refused.keys()
    for each in (*planned.combinations, *planned.refused):
        assert each.workers * each.threads <= cpus
    assert all(planned.refused.values())
    everything = {(each.workers, each.threads) for each in (*planned.combinations, *planned.refused)}
    assert {(cpus, 1), (1, 1), (1, cpus)} <= everything


def test_a_host_with_little_memory() -> None:
    """Workers that memory does not bear are not tried and not hidden."""
    planned = plan(cpus=4, memory_bytes=4 * GIB, memory_per_child_bytes=None, pages_per_child=40)
    assert pair(4, 1) in planned.refused
    assert "each needs 1.00 GiB" in planned.refused[pair(4, 1)]
    assert planned.combinations[0] == pair(3, 1)


@pytest.mark.parametrize(
    ("current", "longest", "expected"),
    [
        (40, 0, []),
        (40, 10, []),
        (40, 11, [10]),
        (40, 25, [10, 20]),
        (40, 41, [10, 20, 80]),
        (40, 1000, [10, 20, 80, 160]),
        (15, 15, [10]),
        (15, 16, [10, 20]),
        (7, 8, [10]),
    ],
)
def test_slices(current: int, longest: int, expected: list[int]) -> None:
    """A value that no document reaches is the same as any other such value: at most one of them is tried."""
    assert [each.pages_per_child for each in slices(pair(2, 1, current), longest_pages=longest)] == expected


FILES = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=6), st.integers(0, 10_000), max_size=40)


@given(FILES, st.integers(1, 50))
def test_the_sample_is_even_over_size(sizes: dict[str, int], most: int) -> None:
    """As many as asked for, each once; one of each part of the files ordered by size; the same whoever asks."""
    taken = sample(sizes, most)
    assert len(taken) == len(set(taken)) == min(most, len(sizes))
    ordered = sorted(sizes, key=lambda name: (sizes[name], name))
    ranks = [ordered.index(name) for name in taken]
    files, parts = len(ordered), len(taken)
    assert all(part * files - parts < rank * parts < (part + 1) * files for part, rank in enumerate(ranks))
    assert sample(dict(reversed(sizes.items())), most) == taken
    moved = sample({f"/elsewhere/{name}": size for name, size in sizes.items()}, most)
    assert tuple(name.removeprefix("/elsewhere/") for name in moved) == taken


def test_the_sample_is_drawn() -> None:
    """Within a part of equal sizes it is not the first name that is taken: names follow from what documents are."""
    taken = [sample({f"{letter}{number}": 5 for number in range(9)}, 1)[0] for letter in "abcdefghij"]
    assert len({name[1] for name in taken}) > 1


@given(st.integers(1, 50), st.lists(st.integers(1, 64), min_size=1, max_size=5))
def test_the_batch_keeps_all_workers_busy(documents: int, workers: list[int]) -> None:
    """Four documents for each of the most workers, and no copy more than that needs."""
    planned = [pair(number, 1) for number in workers]
    number = copies(documents, planned)
    assert number >= 1
    assert number * documents >= 4 * max(workers)
    assert number == 1 or (number - 1) * documents < 4 * max(workers)


def turns(planned: list[Combination], given_up: set[Combination] | None = None) -> list[Turn]:
    """All turns, in order."""
    begun: list[Turn] = []
    while (turn := next_turn(planned, begun, given_up or set(), rounds=ROUNDS)) is not None:
        begun.append(turn)
    return begun


def test_each_round_begins_with_another() -> None:
    """Nothing profits from always being first, or from always following the same one."""
    planned = [pair(1, 1), pair(2, 1), pair(1, 2)]
    taken = turns(planned)
    assert len(taken) == len(set(taken)) == ROUNDS * 3
    firsts = [next(turn for turn in taken if turn.round == number).combination for number in range(1, ROUNDS + 1)]
    assert firsts == [planned[number % 3] for number in range(ROUNDS)]
    assert [turn.round for turn in taken] == sorted(turn.round for turn in taken)


def test_what_is_given_up_has_no_turn() -> None:
    """And the others go on."""
    taken = turns([pair(1, 1), pair(2, 1)], {pair(2, 1)})
    assert [turn.combination for turn in taken] == [pair(1, 1)] * ROUNDS


def test_what_comes_later_catches_up() -> None:
    """Slices are added after the first round, and are measured in it too: only rounds that are shared compare."""
    first = [Turn(combination=pair(1, 1), round=1), Turn(combination=pair(2, 1), round=1)]
    turn = next_turn([pair(1, 1), pair(2, 1), pair(2, 1, 10)], first, set(), rounds=1)
    assert turn == Turn(combination=pair(2, 1, 10), round=1)


def run(number: int, elapsed_s: float) -> Run:
    """A run of a round."""
    return Run(
        turn=Turn(combination=pair(1, 1), round=number),
        documents=4,
        failed=0,
        pages=4,
        elapsed_s=elapsed_s,
        peak_memory_bytes=1,
        largest_child_bytes=1,
        starved=0,
        spawned=False,
    )


def test_what_has_lost_is_stopped() -> None:
    """By the fastest of the same round: the host may have been quieter in another one."""
    runs = [run(1, 10.0), run(1, 8.0), run(2, 50.0)]
    assert hopeless_after_s(runs, number=1) == HOPELESS * 8
    assert hopeless_after_s(runs, number=2) == HOPELESS * 50
    assert hopeless_after_s(runs, number=3) is None


def test_what_would_not_end_is_not_begun() -> None:
    """By its own longest turn; what was never tried is, as long as there is time."""
    assert worth_beginning(left_s=10.1, took_s=[3.0, 10.0])
    assert not worth_beginning(left_s=10.0, took_s=[3.0, 10.0])
    assert worth_beginning(left_s=0.1, took_s=[])
    assert not worth_beginning(left_s=0.0, took_s=[])
