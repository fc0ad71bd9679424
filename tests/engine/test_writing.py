"""Writing that runs from right to left, or has no blanks."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from daemon.engine import runtime
from tests.engine.conftest import Worker

pytestmark = pytest.mark.engine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    runtime.prepare(1)
    import pymupdf

FIRST = "שלום לכולם, זה הטור הראשון ויש בו מספרים כמו 2024 ומילים כמו Python בתוך המשפט."
SECOND = "הטור השני ממשיך את הטור הימני (והוא נמצא משמאל), ולכן קוראים אותו אחריו ולא לפניו."
CHINESE = "这是一个没有空格的句子，它很长，所以必须分成好几行才能放进这个窄窄的栏里，而行与行之间不能出现空格。"  # noqa: RUF001


def written(path: Path, *columns: tuple[pymupdf.Rect, str]) -> Path:
    """A page with HTML text in columns, its glyphs placed one by one as MuPDF does."""
    with pymupdf.open() as document:
        page = document.new_page()
        for place, text in columns:
            page.insert_htmlbox(place, text)
        document.subset_fonts()
        document.save(path)
    return path


def test_hebrew_columns(worker: Worker, tmp_path: Path) -> None:
    """Lines, numbers, Latin words and brackets come out as they are read, and the right column before the left one."""
    html = '<p style="direction:rtl;text-align:right">{}</p>'
    left, right = pymupdf.Rect(60, 72, 290, 400), pymupdf.Rect(320, 72, 540, 400)
    path = written(
        tmp_path / "hebrew.pdf", (left, html.format(f"{SECOND} " * 3)), (right, html.format(f"{FIRST} " * 3))
    )
    assert worker.convert(path).markdown == " ".join([FIRST] * 3 + [SECOND] * 3)


def test_chinese_lines_close_up(worker: Worker, tmp_path: Path) -> None:
    """A line's end is no blank where the writing has none."""
    path = written(tmp_path / "chinese.pdf", (pymupdf.Rect(72, 72, 300, 400), f"<p>{CHINESE}</p>"))
    assert worker.convert(path).markdown == CHINESE


@pytest.mark.corpus
def test_arabic_words_are_whole(worker: Worker, corpus: Path) -> None:
    """Where a parser cuts words and stops off, they are put together again."""
    text = worker.convert(corpus / "b" / "right_to_left_01.pdf").markdown
    assert "قرارات أكثر دقة بناءً على استنتاجات قائمة على البيانات." in text
