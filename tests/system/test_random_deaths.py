"""Children that die at random points, in random ways: the results are the same bytes as undisturbed ones.

Seeded, so that a failure can be had again. Only deaths that leave every page its whole engine are drawn; what a page
loses by the others is `test_pages.py`'s.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.system.test_convert import bulkhead, lines

pytestmark = [pytest.mark.engine, pytest.mark.process]

#: Text, a table, pictures of text, several frames; with their numbers of pages.
DOCUMENTS: Mapping[str, int] = {"five-pages.pdf": 5, "table.pdf": 1, "mixed.pdf": 1, "scan.pdf": 1, "fax.tiff": 3}
DEATHS = ("segv", "abort", "kill", "exit0", "garbage", "flood")


def results(samples: Path, out: Path, **settings: str) -> dict[str, tuple[bytes, bytes, int]]:
    """Markdown, JSON and the number of crashes by document."""
    told = lines(bulkhead("convert", *(samples / name for name in DOCUMENTS), "--out", out, "--json", **settings))
    assert [line["status"] for line in told] == ["converted"] * len(DOCUMENTS), told
    return {
        Path(line["path"]).name: (
            Path(line["markdown"]).read_bytes(),
            Path(line["markdown"]).with_name("document.json").read_bytes(),
            line["crashes"],
        )
        for line in told
    }


@pytest.fixture(scope="module")
def undisturbed(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, bytes, int]]:
    """What the documents become when nothing happens."""
    return results(samples, tmp_path_factory.mktemp("undisturbed"))


def deaths(seed: int) -> str:
    """One failpoint for each document: its first child dies at a random page, or with its result in hand."""
    drawn = random.Random(seed)
    points = []
    for name, pages in DOCUMENTS.items():
        where = drawn.choice([f"child.page@page={drawn.randint(1, pages)},", "child.result@"])
        points.append(f"{where}doc={name}*,child=1={drawn.choice(DEATHS)}")
    return ";".join(points)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_bytes_whenever_a_child_dies(
    samples: Path, undisturbed: dict[str, tuple[bytes, bytes, int]], tmp_path: Path, seed: int
) -> None:
    """Every document loses its first child, and none of its text; pages finished before are not converted again."""
    disturbed = results(samples, tmp_path, ALLOW_FAILPOINTS="true", FAILPOINTS=deaths(seed))
    for name, (markdown, lossless, crashes) in disturbed.items():
        assert crashes == 1, deaths(seed)
        assert (markdown, lossless) == undisturbed[name][:2], f"{name}: {deaths(seed)}"
