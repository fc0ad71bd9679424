"""Which setting is recommended: the cases that a person would judge, and what must hold for any figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.calibration import Combination, Run, Turn
from daemon.calibration_choice import LEAST_DIFFERENCE, UNKNOWN_NOISE, Choice, choose, difference, figures

GB = 10**9
#: Workers, threads, pages a child.
Key = tuple[int, int, int]
ONE, TWO, FOUR = (1, 1, 40), (2, 1, 40), (4, 1, 40)


def run(key: Key, number: int, rate: float, *, failed: int = 0, starved: int = 0, memory_bytes: int = GB) -> Run:
    """A run of 60 documents that makes `rate` a minute; a rate of 0 has no result."""
    workers, threads, pages = key
    return Run(
        turn=Turn(combination=Combination(workers=workers, threads=threads, pages_per_child=pages), round=number),
        documents=60 if rate else 0,
        failed=failed,
        pages=120,
        elapsed_s=3600 / rate if rate else 60.0,
        peak_memory_bytes=memory_bytes,
        largest_child_bytes=GB // 2,
        starved=starved,
        spawned=threads > 1,
    )


def choice(rates: Mapping[Key, Sequence[float]], **more: Mapping[Key, int]) -> Choice:
    """The choice among combinations with one rate per round; `more` are figures of a combination."""
    runs = [
        run(key, number, rate, **{name: by_key[key] for name, by_key in more.items() if key in by_key})
        for key, its in rates.items()
        for number, rate in enumerate(its, start=1)
    ]
    found = choose(runs, memory_bytes=8 * GB, pages_per_child=40)
    assert found is not None
    return found


def key(found: Choice) -> Key:
    """What was chosen."""
    of = found.figures.combination
    return of.workers, of.threads, of.pages_per_child


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # Twice as fast in each round.
        ({ONE: [50, 52, 48], TWO: [100, 104, 96]}, TWO),
        # The host slowed down in the second round: both did, so their ratio stands.
        ({ONE: [50, 25, 50], TWO: [100, 50, 100]}, TWO),
        # 5 % faster in the median, and slower in one round of three.
        ({TWO: [100, 100, 100], FOUR: [110, 105, 90]}, TWO),
        # Steadily 2 % faster: nobody pays two workers for it.
        ({TWO: [100, 100, 100], FOUR: [102, 102, 102]}, TWO),
        # Steadily 10 % faster.
        ({TWO: [100, 100, 100], FOUR: [110, 110, 111]}, FOUR),
        # The same, in one round only: not known to be steady.
        ({TWO: [100], FOUR: [110]}, TWO),
        ({TWO: [100], FOUR: [120]}, FOUR),
        # As fast with fewer workers of more threads, and no fewer CPUs.
        ({TWO: [100, 100, 100], (1, 2, 40): [100, 101, 100]}, (1, 2, 40)),
        # Slices that make no difference: the value in force stays.
        ({(2, 1, 10): [101, 100, 100], TWO: [100, 100, 100], (2, 1, 160): [100, 101, 101]}, TWO),
        # No shared round: judged as one round.
        ({ONE: [95], TWO: [100]}, ONE),
    ],
)
def test_what_a_person_would_choose(rates: Mapping[Key, Sequence[float]], expected: Key) -> None:
    """The fastest, and of those that are as fast within the noise the smallest."""
    assert key(choice(rates)) == expected


def test_the_reason_is_honest() -> None:
    """A difference that is noise is called so, and so is one that only one round has shown."""
    smaller = choice({TWO: [100, 100, 100], FOUR: [110, 105, 90]})
    assert "The difference is within the noise" in smaller.because
    assert smaller.fastest.combination.workers == 4
    once = choice({TWO: [100], FOUR: [120]})
    assert "17% less, where up to 10% is taken for noise, since only one round has both" in once.because
    steady = choice({ONE: [50, 52, 48], TWO: [100, 104, 96]})
    assert "50% less, where up to 3% is noise over 3 rounds" in steady.because
    alone = choice({ONE: [50]})
    assert "nothing else was measured" in alone.because


def test_what_loses_documents_is_not_recommended() -> None:
    """However fast, where another loses none; and it is said."""
    found = choice({TWO: [100, 100], FOUR: [200, 200]}, failed={FOUR: 1})
    assert key(found) == TWO
    assert "Not considered" in found.because
    assert "4 workers" in found.because
    assert key(choice({TWO: [100, 100], FOUR: [200, 200]}, failed={TWO: 1, FOUR: 1})) == FOUR
    assert key(choice({TWO: [100, 100], FOUR: [200, 200]}, starved={FOUR: 1})) == TWO


def test_what_does_not_fit_the_memory_is_not_recommended() -> None:
    """8 GB are there. Where nothing fits, what needs least is taken."""
    assert key(choice({TWO: [100, 100], FOUR: [200, 200]}, memory_bytes={FOUR: 9 * GB})) == TWO
    assert key(choice({TWO: [100, 100], FOUR: [200, 200]}, memory_bytes={FOUR: 9 * GB, TWO: 10 * GB})) == FOUR


def test_less_memory_decides_between_slices() -> None:
    """As fast, and a third of the memory: then the value in force gives way."""
    found = choice({(2, 1, 10): [100, 100], TWO: [100, 100]}, memory_bytes={(2, 1, 10): GB, TWO: 3 * GB})
    assert key(found) == (2, 1, 10)
    close = choice({(2, 1, 10): [100, 100], TWO: [100, 100]}, memory_bytes={(2, 1, 10): GB, TWO: GB + GB // 20})
    assert key(close) == TWO


def test_nothing_is_made_up() -> None:
    """Without a result there is no recommendation."""
    assert choose([], memory_bytes=GB, pages_per_child=40) is None
    assert choose([run(ONE, 1, 0, failed=60)], memory_bytes=GB, pages_per_child=40) is None


KEYS = st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from([10, 40]))
RUNS = st.builds(
    run,
    KEYS,
    st.integers(1, 5),
    st.one_of(st.just(0.0), st.floats(1, 1000)),
    failed=st.integers(0, 2),
    starved=st.integers(0, 1),
    memory_bytes=st.integers(1, 16 * GB),
)


@given(st.lists(RUNS, min_size=1, max_size=20, unique_by=lambda each: each.turn))
def test_whatever_was_measured(runs: list[Run]) -> None:
    """Only what has a result is recommended; it loses no more than others, and is neither larger nor really slower."""
    found = choose(runs, memory_bytes=8 * GB, pages_per_child=40)
    useful = [each for each in figures(runs) if min(each.rates.values()) > 0]
    if found is None:
        assert not useful
        return
    assert found.figures in useful
    assert found.figures.failed == min(each.failed for each in useful)
    assert found.because
    if found.figures is not found.fastest:
        assert not difference(found.figures, found.fastest).real
        assert found.figures.median <= found.fastest.median
        chosen, fastest = found.figures.combination, found.fastest.combination
        assert chosen.workers * chosen.threads <= fastest.workers * fastest.threads
    as_good = [
        each
        for each in useful
        if each.failed == found.figures.failed
        and each.starved == found.figures.starved
        and each.peak_memory_bytes <= 8 * GB
    ]
    assert all(each.median <= found.fastest.median for each in as_good)


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(1, 1000)), min_size=1, max_size=5))
def test_noise_is_what_the_rounds_show(rates: list[tuple[float, float]]) -> None:
    """Never below the least difference; with one round the assumed one; otherwise how far the ratios lie apart."""
    slow, fast = figures(
        [
            run(key, number, rate)
            for number, both in enumerate(rates, start=1)
            for key, rate in zip((ONE, TWO), both, strict=True)
        ]
    )
    apart = difference(slow, fast)
    ratios = [first / second for first, second in rates]
    assert apart.rounds == len(rates)
    assert apart.noise >= LEAST_DIFFERENCE
    if len(rates) == 1:
        assert apart.noise == UNKNOWN_NOISE
        assert apart.gap == pytest.approx(1 - ratios[0])
    else:
        assert apart.noise == pytest.approx(max(max(ratios) - min(ratios), LEAST_DIFFERENCE))
        assert 1 - max(ratios) - 1e-9 <= apart.gap <= 1 - min(ratios) + 1e-9
