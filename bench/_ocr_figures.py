"""The arithmetic of `bench.ocr`: costs by page, and how alike the words of two readings are. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from bench._fidelity_scores import f1, score
from bench._fidelity_text import words
from bench._measure import median, ratio

#: From here on every character is a word: radicals, kana, ideographs, Hangul, wide forms.
_FIRST_CJK = "\u2e80"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One document, converted once with one choice."""

    choice: str
    document: str
    #: Pages that went through the OCR stage.
    pages: int
    #: Seconds that the OCR stage took, of this process's CPU and by the clock.
    cpu_s: float
    wall_s: float
    #: CPU seconds of the whole conversion.
    whole_cpu_s: float
    #: Lines of the text layer and those that were read.
    texts: tuple[str, ...]
    #: None where only some pages were converted.
    markdown: str | None


def bag(texts: Iterable[str]) -> list[str]:
    """Words in no order; CJK characters are words of their own."""
    found: list[str] = []
    for word in words(" ".join(texts)):
        for wide, part in groupby(word, key=lambda char: char >= _FIRST_CJK):
            characters = list(part)
            found += characters if wide else ["".join(characters)]
    return found


def alike(known: Iterable[str], read: Iterable[str]) -> float | None:
    """F1 of two bags of words, 0 to 1; None where neither holds any."""
    return f1(bag(known), bag(read))


def rows(
    runs: Sequence[Run], *, known: Mapping[str, Sequence[str]], careful: str, production: str
) -> list[dict[str, object]]:
    """A row for each choice, in the order of their first runs.

    Costs are medians over the rounds of the mean over all pages; `cpu_ratio` is over the production's runs of the same
    documents; `words` and `agreement` are means over documents of the first round, since every round reads the same.
    """
    careful_texts = {run.document: run.texts for run in runs if run.choice == careful}
    found: list[dict[str, object]] = []
    for choice in dict.fromkeys(run.choice for run in runs):
        own = [run for run in runs if run.choice == choice]
        once = {run.document: run for run in own}
        beside = [run for run in runs if run.choice == production and run.document in once]
        found.append(
            {
                "choice": choice,
                "documents": len(once),
                "pages": sum(run.pages for run in once.values()),
                "cpu_s_per_page": median([_per_page(turn, "cpu_s") for turn in _rounds(own)]),
                "wall_s_per_page": median([_per_page(turn, "wall_s") for turn in _rounds(own)]),
                "cpu_ratio": _over(own, beside),
                "words": _mean(alike(known[name], run.texts) for name, run in once.items() if name in known),
                "agreement": _mean(alike(careful_texts[name], run.texts) for name, run in once.items()),
            }
        )
    return found


def by_document(runs: Sequence[Run], *, known: Mapping[str, Sequence[str]]) -> dict[str, dict[str, dict[str, object]]]:
    """For each document and choice: CPU seconds of the stage (median over rounds) and words."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for run in runs:
        costs = [each.cpu_s for each in runs if (each.document, each.choice) == (run.document, run.choice)]
        told = known.get(run.document)
        words_read = None if told is None else _rounded(alike(told, run.texts))
        found.setdefault(run.document, {})[run.choice] = {"cpu_s": median(costs), "words": words_read}
    return found


def factor(runs: Sequence[Run], *, production: str, stock: str, reference: str | None) -> dict[str, object] | None:
    """One document, converted whole by production and by stock: how much faster, and how good each text is."""
    ours, theirs = ([run for run in runs if run.choice == name] for name in (production, stock))
    if not ours or not theirs:
        return None
    ours_s, theirs_s = (statistics.median(run.whole_cpu_s for run in side) for side in (ours, theirs))

    def words_of(run: Run) -> float | None:
        return None if reference is None or run.markdown is None else _rounded(score(reference, run.markdown)["words"])

    return {
        "whole_cpu_s": round(ours_s, 3),
        "stock_whole_cpu_s": round(theirs_s, 3),
        "times_faster": round(ratio(theirs_s, ours_s), 2),
        "ocr_times_faster": round(ratio(*(statistics.median(run.cpu_s for run in side) for side in (theirs, ours))), 1),
        "words": words_of(ours[0]),
        "stock_words": words_of(theirs[0]),
    }


def _rounds(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs of one choice by round: the n-th of each document."""
    turns: list[list[Run]] = []
    seen: dict[str, int] = {}
    for run in runs:
        turn = seen[run.document] = seen.get(run.document, -1) + 1
        turns += [[]] if turn == len(turns) else []
        turns[turn].append(run)
    return turns


def _per_page(runs: Sequence[Run], field: str) -> float:
    return ratio(sum(getattr(run, field) for run in runs), sum(run.pages for run in runs))


def _over(own: Sequence[Run], beside: Sequence[Run]) -> float | None:
    if not beside:
        return None
    return round(ratio(sum(run.cpu_s for run in own), sum(run.cpu_s for run in beside)), 2)


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return _rounded(statistics.fmean(there)) if there else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
