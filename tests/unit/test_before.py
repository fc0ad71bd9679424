"""`bench.before`: which document counts as slower, whose turn it is, what is told of the rest. Nothing is measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from bench import _before_figures as figures
from bench import before
from bench._before_figures import Left, Pair
from bench._before_side import Answer, Converted, Failed, TooLong
from bench._loop import LoopEnded
from bench._measure import Cost, Doc
from daemon.model import MediaType


def converted(cpu_s: float, markdown: str = "text") -> Converted:
    """By the clock it took twice as long."""
    return Converted(cost=Cost(wall_s=2 * cpu_s, cpu_s=cpu_s), pages=3, markdown=markdown)


def pair(then: Sequence[float], now: Sequence[float], *, texts: tuple[str, str] = ("text", "text")) -> Pair:
    """One document with these CPU seconds."""
    made = Pair(name="a.pdf", pages=3, text_before=texts[0], text_after=texts[1])
    made.before, made.after = ([converted(each).cost for each in side] for side in (then, now))
    return made


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ([1.0, 1.0, 1.0], [1.2, 1.2, 1.2], True),
        ([1.0, 1.0, 1.0], [1.09, 1.09, 1.09], False),
        ([1.0, 1.0, 1.0], [0.5, 0.5, 0.5], False),
        # Upper quartile 1.2 before, lower one 1.15 now: it differs from itself by as much.
        ([1.0, 1.0, 1.0, 1.2, 1.2], [1.1, 1.15, 1.25, 1.3, 1.3], False),
        # One slow turn on either side decides nothing.
        ([1.0, 1.0, 1.0, 1.0, 9.0], [1.2, 1.2, 1.2, 1.2, 1.2], True),
        ([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 9.0], False),
        ([1.0], [1.2], True),
    ],
)
def test_slower_is_a_tenth_and_beyond_its_own_spread(then: list[float], now: list[float], *, expected: bool) -> None:
    """A machine that does other work moves every figure; only what holds against that is told."""
    assert pair(then, now).is_slower is expected


@pytest.mark.parametrize(
    ("texts", "same", "alike"),
    [
        (("one two", "one two"), True, 1.0),
        (("# one two", "one  two"), False, 1.0),
        (("one two three four", "one two three five"), False, 0.75),
        (("one", ""), False, 0.0),
    ],
)
def test_another_text_is_told_by_its_words(texts: tuple[str, str], *, same: bool, alike: float) -> None:
    """Bytes say whether; words say how much."""
    found = pair([1.0], [1.0], texts=texts)
    assert found.is_same is same
    assert found.alike == pytest.approx(alike)


def test_a_row_has_both_sides_and_their_spread() -> None:
    """The keys of the JSON object are what others read."""
    row = json.loads(json.dumps(figures.row(pair([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], texts=("a b", "a c")))))
    assert row == {
        "document": "a.pdf",
        "pages": 3,
        "cpu_before_s": {"median": 2.0, "p25": 1.5, "p75": 2.5, "count": 3},
        "cpu_after_s": {"median": 1.0, "p25": 1.0, "p75": 1.0, "count": 3},
        "cpu_ratio": 0.5,
        "wall_before_s": {"median": 4.0, "p25": 3.0, "p75": 5.0, "count": 3},
        "wall_after_s": {"median": 2.0, "p25": 2.0, "p75": 2.0, "count": 3},
        "wall_ratio": 0.5,
        "slower": False,
        "same_markdown": False,
        "words_alike": 0.5,
    }


def test_a_report_names_what_a_person_must_look_at() -> None:
    """The ratio of all together is of sums: a large document weighs what it weighs."""
    slower, changed = pair([1.0], [2.0]), pair([9.0], [9.0], texts=("a", "b"))
    slower.name, changed.name = "slower.pdf", "changed.pdf"
    left = [Left(name="lost.pdf", before="", after="why"), Left(name="never.pdf", before="why", after="why")]
    told = figures.report([slower, changed], left)
    assert (told["slower"], told["changed"], told["lost"]) == (["slower.pdf"], ["changed.pdf"], ["lost.pdf"])
    assert told["not_compared"][1] == {"document": "never.pdf", "before": "why", "after": "why"}  # type: ignore[index]
    assert told["cpu_ratio"] == 1.1
    assert figures.report([], [])["cpu_ratio"] is None


class Scripted:
    """A side whose answers are written down; all of them keep one list of who was asked."""

    def __init__(self, name: str, asked: list[str], *answers: Answer) -> None:
        self.name, self.asked, self.answers = name, asked, list(answers)

    def convert(self, doc: Doc) -> Answer:
        """The next answer, the last one for ever."""
        del doc
        self.asked.append(self.name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


DOC = Doc(path=Path("a.pdf"), media_type=MediaType.PDF)


def sides(then: Sequence[Answer], now: Sequence[Answer]) -> tuple[dict[str, Scripted], list[str]]:
    """Both, and the list of who is asked."""
    asked: list[str] = []
    return {"before": Scripted("before", asked, *then), "after": Scripted("after", asked, *now)}, asked


def test_sides_take_turns_and_the_first_run_is_not_measured() -> None:
    """None profits from always being second, and what a first conversion loads is nobody's cost."""
    both, asked = sides([converted(9.0), converted(1.0)], [converted(9.0), converted(1.0)])
    found = before.compared(both, DOC, rounds=3, turn=0)
    assert isinstance(found, Pair)
    assert [cost.cpu_s for cost in (*found.before, *found.after)] == [1.0] * 6
    a, b = "before", "after"
    assert asked == [a, b, a, b, b, a, a, b]
    asked.clear()
    before.compared(both, DOC, rounds=1, turn=1)
    assert asked == [b, a, b, a], "another document begins with the other side"


def test_who_is_slower_at_first_is_measured_again() -> None:
    """Of dozens of documents some are slower by chance, and twice in a row hardly any."""
    slow_at_first = [converted(1.0), converted(1.2), converted(1.2), converted(1.0)]
    both, _ = sides([converted(1.0)], slow_at_first)
    found = before.compared(both, DOC, rounds=2, turn=0)
    assert isinstance(found, Pair)
    assert len(found.before) == len(found.after) == 4
    assert not found.is_slower
    both, _ = sides([converted(1.0)], [converted(1.2)])
    found = before.compared(both, DOC, rounds=2, turn=0)
    assert isinstance(found, Pair)
    assert found.is_slower


BROKEN = Failed(reason="it broke")


@pytest.mark.parametrize(
    ("then", "now", "expected", "lost"),
    [
        ([converted(1.0)], [BROKEN], Left(name="a.pdf", before="", after="it broke"), True),
        ([BROKEN], [converted(1.0)], Left(name="a.pdf", before="it broke", after=""), False),
        ([BROKEN], [BROKEN], Left(name="a.pdf", before="it broke", after="it broke"), False),
        ([converted(1.0)], [converted(1.0), BROKEN], Left(name="a.pdf", before="", after="it broke"), True),
        ([converted(1.0), BROKEN], [converted(1.0)], Left(name="a.pdf", before="it broke", after=""), False),
    ],
)
def test_what_fails_is_listed(then: list[Answer], now: list[Answer], expected: Left, *, lost: bool) -> None:
    """On whichever side, at whichever turn; the next document is compared all the same."""
    both, _ = sides(then, now)
    found = before.compared(both, DOC, rounds=2, turn=0)
    assert found == expected
    assert expected.is_lost is lost


def test_long_documents_are_counted() -> None:
    """How many were left out must be seen: a comparison of half of the corpus is no comparison of it."""
    both, asked = sides([TooLong(pages=21)], [TooLong(pages=21)])
    assert before.measure(both, [DOC, DOC], rounds=3, tell=lambda _: None) == ([], [], 2)
    assert len(asked) == 4


def test_a_corpus_is_its_folders_of_good_documents(tmp_path: Path) -> None:
    """Documents that are broken on purpose are in others; what is named is taken instead."""
    for name in ("a/x.pdf", "b/x.pdf", "d/x.pdf", "a/folder/x.pdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"%PDF-1.7")
    (tmp_path / "a" / "notes.txt").write_text("no document", encoding="utf-8")
    assert [doc.path for doc in before.chosen(tmp_path, [])] == [tmp_path / "a/x.pdf", tmp_path / "b/x.pdf"]
    assert [doc.path for doc in before.chosen(tmp_path, [tmp_path / "d/x.pdf"])] == [tmp_path / "d/x.pdf"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of one as is asked for before a process is begun."""
    (tmp_path / "old" / "daemon" / "engine").mkdir(parents=True)
    (tmp_path / "old" / "daemon" / "engine" / "pipeline.py").touch()
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")
    return tmp_path / "old"


def run(checkout: Path, answers: Mapping[Path, Answer], monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    """The exit status with sides that always give these answers; LoopEnded for a checkout without one."""

    class Always:
        def __init__(self, checkout: Path, **limits: Any) -> None:
            assert limits == {"pages": 7, "longest_s": 60.0}
            self.checkout = checkout

        def __enter__(self) -> Self:
            if self.checkout not in answers:
                raise LoopEnded("cannot measure: the in-process loop ended with status 1; see above")
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def convert(self, doc: Doc) -> Answer:
            del doc
            return answers[self.checkout]

    monkeypatch.setattr(before, "Side", Always)
    return before.main(["--checkout", str(checkout), "--pages", "7", *more, str(checkout.parent / "a.pdf")])


HERE = Path(before.__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("then", "now", "status"),
    [
        (converted(1.0), converted(1.0, "another"), 0),
        (converted(1.0), converted(1.2), 1),
        (converted(1.0), BROKEN, 1),
        (BROKEN, converted(1.0), 0),
        (BROKEN, BROKEN, 0),
        (TooLong(pages=8), TooLong(pages=8), 0),
    ],
)
def test_the_exit_status_says_whether_anything_got_worse(
    checkout: Path, then: Answer, now: Answer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower, or lost; another text may be a better one. As a table and as JSON."""
    for form in ("--json", "--rounds=2"):
        assert run(checkout, {checkout: then, HERE: now}, monkeypatch, form) == status


def test_json_says_what_it_was_compared_with(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object on stdout; what is on its way is told on stderr."""
    run(checkout, {checkout: converted(1.0), HERE: converted(2.0)}, monkeypatch, "--json")
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["bench"], told["checkout"], told["rounds"]) == ("before", str(checkout), 3)
    assert (told["most_pages"], told["too_many_pages"], told["slower"]) == (7, 0, ["a.pdf"])
    assert "1 of 1: a.pdf" in err


def test_a_checkout_whose_engine_does_not_load_is_no_slower_document(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1 would be read as a finding."""
    assert run(checkout, {HERE: converted(1.0)}, monkeypatch) == 2
    assert "cannot measure" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--checkout", "{here}"], "no daemon/engine/pipeline.py"),
        (["--checkout", "{here}/old", "{here}/missing.pdf"], "missing.pdf cannot be found"),
        (["--checkout", "{here}/old", "--corpus", "{here}"], "no document"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    checkout: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before two engines are loaded for it."""
    assert before.main([argument.format(here=checkout.parent) for argument in arguments]) == 2
    assert said in capsys.readouterr().err


def test_no_round_at_all_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing would be measured, and nothing be slower."""
    with pytest.raises(SystemExit, match="2"):
        before.main(["--checkout", str(checkout), "--rounds", "0"])
    assert "--rounds 1" in capsys.readouterr().err
