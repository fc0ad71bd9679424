"""Text layers: language is left alone, whatever language it is; what no font maps, and what was shifted, is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.triage import contradicted, plainly_garbage, shifted_by, suspicious

ENGLISH = (
    "The committee found that most of the delays in the delivery of goods to the harbour were caused by "
    "a single crane, which had been out of order since the beginning of March and was not repaired in time."
)
GERMAN = (
    "Die Prüfung der Anlage ergab, dass ein großer Teil der Mängel auf die Verkabelung zurückzuführen ist, "
    "die nicht nach den Regeln der Technik verlegt und auf Dauer nicht für den Betrieb geeignet war."
)
FINNISH = (
    "Kaupunginhallitus päätti kokouksessaan, että uuden kirjaston rakentaminen aloitetaan keväällä ja "
    "valmistuu seuraavan vuoden syksyllä, mikäli rahoitus saadaan järjestettyä suunnitellulla tavalla."
)
KOREAN = (
    "회의에서는 내년도 예산안과 새로운 도서관 건립 계획에 대해 논의하였으며 다음 달까지 결론을 내리기로 하였다. " * 2
)
ARABIC = (
    "ناقشت اللجنة في اجتماعها الأخير خطة بناء المكتبة الجديدة وقررت تأجيل القرار إلى الشهر المقبل لحين توفر التمويل. "
    * 2
)
CODES = "AX-2201 BZ-9917 CQ-1180 4711-B 0815-C XK-2290 " * 4


def shifted(text: str, by: int) -> str:
    """As a subset font without a map shows it."""
    return "".join(chr(ord(c) - by) for c in text)


@pytest.mark.parametrize("text", [ENGLISH, GERMAN, FINNISH, KOREAN, ARABIC, CODES, "", "12"])
def test_writing_is_no_garbage(text: str) -> None:
    """No language, and no table of codes, is taken for garbage by its characters."""
    assert plainly_garbage(text) == ""


@pytest.mark.parametrize("by", [29, 31, 3, -7])
@pytest.mark.parametrize("text", [ENGLISH, GERMAN])
def test_shifted_codes(text: str, by: int) -> None:
    """Prose whose codes were all shifted, blanks too, is known, and by how much."""
    assert shifted_by(shifted(text, by)) == by
    assert plainly_garbage(shifted(text, by)) == f"its codes are shifted by {by}"


@pytest.mark.parametrize(
    "lost",
    ["GLYPH<c=3,font=/AAAAAA+Cambria>", "(cid:17)", "\ufffd\ue001", "\ue012\ue013", "\U000f0001\u0378", "\x07\x06"],
)
def test_unmapped_glyphs(lost: str) -> None:
    """Glyphs without a character are counted however a parser writes them."""
    assert "has no character" in plainly_garbage("\n".join(["Title of it"] + [f"{lost * 5} {lost * 3}"] * 10))
    assert "has no character" in plainly_garbage("\n".join(["Title of it"] + [lost * 80] * 10))
    assert plainly_garbage(f"{ENGLISH} {lost * 5}") == ""


def test_lost_leaders_are_no_garbage() -> None:
    """Dots without a character, by the hundred, between words and page numbers."""
    assert plainly_garbage("\n".join(f"Chapter about cranes \ufffd{chr(0xFFFD) * 90} {n}" for n in range(20))) == ""


def test_columns_of_digits_are_not_shifted() -> None:
    """Whatever letters a shift makes of them, they are no prose."""
    assert shifted_by("\n".join(f"{n} {n % 7} {n % 10} {n * 31 % 97}" for n in range(80))) == 0


def test_a_wrong_code_page() -> None:
    """UTF-8 that was decoded as Windows-1252 is known by its sequences; accents as such are not."""
    umlauts = "Für größere Übungen müssen Prüfer zusätzliche Gebühren zahlen, falls nötig auch höhere Zuschläge. "
    assert "wrong code page" in plainly_garbage(umlauts.encode().decode("cp1252"))
    assert plainly_garbage(umlauts) == ""
    assert plainly_garbage("Â São João, à tarde: «façanha», coração, pão e mãe. " * 4) == ""


@pytest.mark.parametrize(
    ("text", "doubtful"), [(ENGLISH, False), (GERMAN, False), (FINNISH, True), (KOREAN, False), (CODES, False)]
)
def test_what_is_compared_with_the_picture(text: str, doubtful: bool) -> None:  # noqa: FBT001 - a table's column
    """Only Latin prose in no known language is worth a look."""
    assert suspicious(text) is doubtful


def test_the_picture_decides() -> None:
    """An honest layer in an unknown language stays; one whose lines the picture does not show goes."""
    lines = FINNISH.split(",")
    assert contradicted(lines, lambda n: lines[n].upper()) == ""
    assert "says something else" in contradicted(lines, lambda _: "quarterly report on cranes and harbours")
    assert contradicted(lines, lambda _: "") == ""
    assert contradicted([], lambda _: "x") == ""


@given(st.text(max_size=400))
def test_any_text_is_judged(text: str) -> None:
    """No text makes it raise, and the verdict is a sentence or nothing."""
    assert isinstance(plainly_garbage(text), str)
    assert isinstance(suspicious(text), bool)
