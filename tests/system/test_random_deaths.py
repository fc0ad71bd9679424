"""Whenever a child or its parent dies, every document ends, and what ends well is the same bytes as undisturbed.

A search over kill points: which document, page, stage and action, and when the parent goes. The same few are tried each
time, so that a failure can be had again; `KILL_POINT_EXAMPLES=200` tries that many new ones (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.system.daemon_process import NET_S
from tests.system.test_convert import clean_environment

pytestmark = [pytest.mark.engine, pytest.mark.process]

#: Text, a table, pictures of text, several frames; with their numbers of pages.
DOCUMENTS: Mapping[str, int] = {"five-pages.pdf": 5, "table.pdf": 1, "mixed.pdf": 1, "scan.pdf": 1, "fax.tiff": 3}
#: Real ones, with tables and scans among them.
CORPUS: Mapping[str, int] = {"case_03.pdf": 2, "discoverworld_crazy_table4.pdf": 1, "ocr_test.pdf": 1}
ACTIONS = ("segv", "abort", "kill", "exit0", "garbage", "flood", "raise", "oom")
PAGE_POINTS = ("child.page", "child.layout", "child.ocr")
PARENT_POINTS = ("after_mark", "after_fetch", "after_store", "after_settle")
#: How many are tried when nobody asks for more: what fits a minute.
FEW = 4
EXAMPLES = int(os.environ.get("KILL_POINT_EXAMPLES", FEW))


@dataclass(frozen=True, kw_only=True)
class Death:
    """How one document's children die."""

    point: str
    action: str
    #: None where the point has none.
    page: int | None = None
    #: Every child that gets there, not only the first.
    lasting: bool = False

    def failpoint(self, document: str) -> str:
        """In the grammar of `daemon/failpoints.py`."""
        page = "" if self.page is None else f"page={self.page},"
        once = "" if self.lasting else ",attempt=1,child=1"
        return f"{self.point}@{page}doc={document}*{once}={self.action}"

    @property
    def costs_nothing(self) -> bool:
        """Whether the page that it hits is tried again with the whole engine."""
        return not self.lasting and self.point != "child.ocr" and self.action != "oom"


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Everything that happens during one run."""

    deaths: Mapping[str, Death]
    #: The parent is killed when so many pages are finished; None: not so.
    parent_at_page: int | None = None
    #: It kills itself at this point of one document; empty: not so.
    parent_point: str = ""


def deaths(pages: int) -> st.SearchStrategy[Death]:
    """At a page, now and then whatever is tried; or with the result in hand, or before anything."""
    actions = st.sampled_from(ACTIONS)
    at_page = st.builds(
        Death,
        point=st.sampled_from(PAGE_POINTS),
        action=actions,
        page=st.integers(1, pages),
        lasting=st.sampled_from([False, False, False, True]),
    )
    return at_page | st.builds(Death, point=st.sampled_from(["child.result", "child.start"]), action=actions)


@st.composite
def disturbances(draw: st.DrawFn, documents: Mapping[str, int]) -> Disturbance:
    """A death for each document, and for the parent in two cases of three."""
    drawn = {name: draw(deaths(pages)) for name, pages in documents.items()}
    parent = draw(st.sampled_from(["page", "point", ""]))
    point = (
        f"parent.{draw(st.sampled_from(PARENT_POINTS))}@doc={draw(st.sampled_from(sorted(documents)))}*,attempt=1=kill"
    )
    return Disturbance(
        deaths=drawn,
        parent_at_page=draw(st.integers(0, sum(documents.values()) - 1)) if parent == "page" else None,
        parent_point=point if parent == "point" else "",
    )


def convert(paths: Sequence[Path], out: Path, failpoints: str, *, kill_at_page: int | None) -> int:
    """`bulkhead convert` to its end, or until so many pages are finished; its exit status, negative for a signal."""
    environment = clean_environment(
        ALLOW_FAILPOINTS="true", FAILPOINTS=failpoints, LOG__LEVEL="debug", LOG__FORMAT="json"
    )
    command = [sys.executable, "-m", "daemon", "convert", *map(str, paths), "--out", str(out), "--json"]
    finished = 0
    with (
        (out.parent / "told").open("wb") as told,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            if kill_at_page is not None and finished >= kill_at_page:
                process.send_signal(signal.SIGKILL)
                break
            finished += '"page.finished"' in line
        process.stderr.close()
        return process.wait(timeout=NET_S)


def results(paths: Sequence[Path], disturbance: Disturbance, folder: Path) -> dict[str, dict[str, Any]]:
    """Run to the end, however often the parent has to be started; each document's line, manifest and bytes."""
    out = folder / "out"
    out.mkdir()
    once = ";".join(death.failpoint(name) for name, death in disturbance.deaths.items())
    first = ";".join(filter(None, (once, disturbance.parent_point)))
    if convert(paths, out, first, kill_at_page=disturbance.parent_at_page) < 0:
        assert convert(paths, out, once, kill_at_page=None) in {0, 1}
    told = {}
    for line in (folder / "told").read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        name = Path(result["path"]).name
        told[name] = result
        if result["markdown"] is not None:
            place = Path(result["markdown"]).parent
            manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
            told[name] |= {
                "accounts": [
                    {key: page[key] for key in ("page", "state", "engine", "reason")} for page in manifest["pages"]
                ],
                "bytes": [(place / file).read_bytes() for file in ("document.md", "document.json")],
            }
    return told


def judge(name: str, line: Mapping[str, Any], plain: Mapping[str, Any], death: Death) -> None:
    """One document's end, against its undisturbed one."""
    assert line["status"] in {"converted", "partial", "failed"}, name
    if death.costs_nothing:
        assert line["status"] == "converted", (name, line["cause_detail"])
    if line["markdown"] is None:
        assert death.lasting or plain["pages"] == 1, (name, line["cause_detail"])
        return
    assert [page["page"] for page in line["accounts"]] == list(range(1, plain["pages"] + 1)), name
    assert sum(line["pages_by_state"].values()) == line["pages"] == plain["pages"], name
    if death.costs_nothing:
        assert line["accounts"] == plain["accounts"], name
    if line["accounts"] == plain["accounts"]:
        assert line["bytes"] == plain["bytes"], name


def search(paths: Mapping[str, Path], plain: Mapping[str, dict[str, Any]], disturbance: Disturbance) -> None:
    """One example."""
    note(str(disturbance))
    with tempfile.TemporaryDirectory(prefix="kill-points-") as folder:
        told = results([*paths.values()], disturbance, Path(folder))
    assert told.keys() == paths.keys(), "every document has its line"
    for name, line in told.items():
        judge(name, line, plain[name], disturbance.deaths[name])


def undisturbed(paths: Mapping[str, Path], folder: Path) -> dict[str, dict[str, Any]]:
    """What the documents become when nothing happens."""
    told = results([*paths.values()], Disturbance(deaths={}), folder)
    assert {line["status"] for line in told.values()} == {"converted"}, told
    return told


few = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES == FEW,
    database=None,
    deadline=None,
    phases=[Phase.generate] if EXAMPLES == FEW else [Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture(scope="module")
def plain(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The samples, undisturbed."""
    return undisturbed({name: samples / name for name in DOCUMENTS}, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.timeout(60 * max(10, EXAMPLES))
@given(disturbance=disturbances(DOCUMENTS))
@few
def test_any_kill_point(samples: Path, plain: dict[str, dict[str, Any]], disturbance: Disturbance) -> None:
    """Whatever dies when: every document ends, its pages add up, and where all end well it is the same bytes."""
    search({name: samples / name for name in DOCUMENTS}, plain, disturbance)


def real(corpus: Path) -> dict[str, Path]:
    """Where the real documents lie."""
    return {name: next(corpus.glob(f"?/{name}")) for name in CORPUS}


@pytest.fixture(scope="module")
def plain_corpus(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The real ones, undisturbed."""
    return undisturbed(real(corpus), tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.corpus
@pytest.mark.timeout(60 * max(10, EXAMPLES))
@given(disturbance=disturbances(CORPUS))
@settings(few, max_examples=2 if EXAMPLES == FEW else EXAMPLES)
def test_any_kill_point_of_real_documents(
    corpus: Path, plain_corpus: dict[str, dict[str, Any]], disturbance: Disturbance
) -> None:
    """The same for documents that people made."""
    search(real(corpus), plain_corpus, disturbance)
