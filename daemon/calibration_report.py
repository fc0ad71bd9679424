"""What a calibration says: its table, its JSON lines, and the settings it recommends as TOML.

Core. The fragment is a whole settings file of its own: everything but the settings stands in comments, and nothing
that a document or its name says goes into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from daemon.calibration import Combination, Run
from daemon.calibration_choice import Choice, Figures, figures

_MB: Final = 10**6
#: Comments wrap here.
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One combination as it is shown: measured, or why not."""

    combination: Combination
    figures: Figures | None
    #: Empty when it was measured as often as the others.
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """For `--json`; rates and figures are null where nothing was measured."""
        of, its = self.combination, self.figures
        rates = [] if its is None else list(its.rates.values())
        return {
            "workers": of.workers,
            "threads": of.threads,
            "pages_per_child": of.pages_per_child,
            "children": None if its is None else _children(its),
            "rounds": len(rates),
            "documents_per_minute": None if its is None else round(its.median, 2),
            "documents_per_minute_lowest": round(min(rates), 2) if rates else None,
            "documents_per_minute_highest": round(max(rates), 2) if rates else None,
            "pages_per_minute": None if its is None else round(its.pages_per_minute, 2),
            "peak_memory_bytes": None if its is None else its.peak_memory_bytes,
            "largest_child_bytes": None if its is None else its.largest_child_bytes,
            "failed": None if its is None else its.failed,
            "ended_for_memory": None if its is None else its.starved,
            "note": self.note,
        }

    def as_cells(self) -> dict[str, str]:
        """For a table; the keys are its columns."""
        of, its = self.combination, self.figures
        cells = {"workers": str(of.workers), "threads": str(of.threads), "pages a child": str(of.pages_per_child)}
        if its is None:
            blank = ("children", "documents/min", "pages/min", "memory, MB", "largest child, MB", "failed")
            return cells | dict.fromkeys(blank, "-") | {"note": self.note}
        rates = its.rates.values()
        spread = f" ({min(rates):.1f} to {max(rates):.1f}, n={len(rates)})" if len(rates) > 1 else " (n=1)"
        return cells | {
            "children": _children(its),
            "documents/min": f"{its.median:.1f}{spread}",
            "pages/min": f"{its.pages_per_minute:.1f}",
            "memory, MB": f"{its.peak_memory_bytes / _MB:.0f}",
            "largest child, MB": f"{its.largest_child_bytes / _MB:.0f}",
            "failed": str(its.failed),
            "note": self.note,
        }


def rows(runs: Sequence[Run], planned: Sequence[Combination], why_not: Mapping[Combination, str]) -> tuple[Row, ...]:
    """Every planned and every refused combination, by threads, then workers, then pages a child."""
    measured = {each.combination: each for each in figures(runs)}
    every = dict.fromkeys((*planned, *why_not))
    in_order = sorted(every, key=lambda each: (each.threads, each.workers, each.pages_per_child))
    return tuple(
        Row(
            combination=each,
            figures=measured.get(each),
            note=why_not.get(each, "" if each in measured else "not measured: the time was over"),
        )
        for each in in_order
    )


def settings_toml(of: Combination) -> str:
    """The three settings, as they stand in a settings file."""
    return f"workers = {of.workers}\nthreads = {of.threads}\n\n[child]\npages_per_child = {of.pages_per_child}\n"


def fragment(choice: Choice, shown: Sequence[Row], *, about: Mapping[str, str], notes: Sequence[str]) -> str:
    """The settings with the table above them. `about` says when, where and with what it was measured."""
    lines = ["Written by `bulkhead calibrate`. Take what you want of it into your settings.", ""]
    lines += [f"{name}: {value}" for name, value in about.items()]
    lines += ["", *_aligned([row.as_cells() for row in shown]), ""]
    lines += [line for sentence in (choice.because, *notes) for line in _wrapped(sentence)]
    commented = [f"# {_printable(line)}".rstrip() for line in lines]
    return "\n".join(commented) + "\n\n" + settings_toml(choice.figures.combination)


def _children(its: Figures) -> str:
    return "spawned" if its.spawned else "forked"


def _aligned(cells: Sequence[Mapping[str, str]]) -> list[str]:
    """One line per row under a line of column names; the last column is as long as it is."""
    columns = list(cells[0])
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in columns}
    return [
        "  ".join(row[name].ljust(widths[name]) for name in columns).rstrip()
        for row in ({name: name for name in columns}, *cells)
    ]


def _wrapped(sentence: str) -> list[str]:
    lines = [""]
    for word in sentence.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _printable(line: str) -> str:
    """TOML forbids control characters in comments, and a line end would end the comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)
