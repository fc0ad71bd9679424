"""What a calibration says: a table for a person, lines for a program, and settings that load."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.calibration import Combination, Run, Turn
from daemon.calibration_choice import choose
from daemon.calibration_report import fragment, rows, settings_toml
from daemon.config import Settings, load

TWO = Combination(workers=2, threads=1, pages_per_child=40)
FOUR = Combination(workers=4, threads=1, pages_per_child=40)
SPAWNED = Combination(workers=1, threads=2, pages_per_child=40)
SLICED = Combination(workers=2, threads=1, pages_per_child=10)


def run(of: Combination, number: int, elapsed_s: float) -> Run:
    """60 documents of two pages."""
    return Run(
        turn=Turn(combination=of, round=number),
        documents=60,
        failed=1,
        pages=120,
        elapsed_s=elapsed_s,
        peak_memory_bytes=1_234_000_000,
        largest_child_bytes=555_000_000,
        starved=0,
        spawned=of.threads > 1,
    )


RUNS = [run(TWO, 1, 60.0), run(TWO, 2, 30.0), run(SPAWNED, 1, 600.0)]
ROWS = rows(RUNS, [TWO, SPAWNED, SLICED], {FOUR: "does not fit"})


def test_every_combination_has_its_row() -> None:
    """What was not measured is there too, with the reason; in an order that a person can compare in."""
    assert [row.combination for row in ROWS] == [SLICED, TWO, FOUR, SPAWNED]
    cells = [row.as_cells() for row in ROWS]
    assert [row["documents/min"] for row in cells] == ["-", "90.0 (60.0 to 120.0, n=2)", "-", "6.0 (n=1)"]
    assert [row["note"] for row in cells] == ["not measured: the time was over", "", "does not fit", ""]
    assert [row["children"] for row in cells] == ["-", "forked", "-", "spawned"]
    assert cells[1]["pages/min"] == "180.0"
    assert cells[1]["memory, MB"] == "1234"
    assert cells[1]["failed"] == "1"
    assert len({tuple(row) for row in cells}) == 1, "one set of columns"


def test_lines_for_a_program() -> None:
    """The same keys whether it was measured or not; what was not is null."""
    measured, unmeasured = ROWS[1].as_json(), ROWS[2].as_json()
    assert measured.keys() == unmeasured.keys()
    assert json.loads(json.dumps(measured))["documents_per_minute_lowest"] == 60.0
    assert measured["peak_memory_bytes"] == 1_234_000_000
    assert unmeasured["documents_per_minute"] is None
    assert unmeasured["rounds"] == 0


def loaded(tmp_path: Path, text: str) -> Settings:
    """As `bulkhead run --config` reads it."""
    file = tmp_path / "calibrated.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, environ={})


def test_the_fragment_is_a_settings_file(tmp_path: Path) -> None:
    """It loads, says what was recommended, and its comments hold the table, the reason and the notes."""
    choice = choose(RUNS, memory_bytes=10**10, pages_per_child=40)
    assert choice is not None
    text = fragment(choice, ROWS, about={"Host": "here"}, notes=["It was busy."])
    got = loaded(tmp_path, text)
    assert (got.workers, got.threads, got.child.pages_per_child) == (2, 1, 40)
    changed = got.model_copy(update={"workers": "auto"})
    assert changed == Settings(), "and nothing else"
    assert "# Host: here" in text
    assert "# It was busy." in text
    assert "90.0 (60.0 to 120.0, n=2)" in text
    assert "does not fit" in text
    assert choice.because.split()[0] in text


@settings(max_examples=30)
@given(st.dictionaries(st.text(), st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_nothing_breaks_out_of_a_comment(about: dict[str, str], notes: list[str]) -> None:
    """A host may have any name: a line end in it must not become a setting."""
    choice = choose(RUNS, memory_bytes=10**10, pages_per_child=40)
    assert choice is not None
    read = tomllib.loads(fragment(choice, ROWS, about=about, notes=notes))
    assert read == tomllib.loads(settings_toml(TWO))
