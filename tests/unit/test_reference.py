"""The reference page is made from the code, and nobody can forget to make it."""

from __future__ import annotations

import pytest

from daemon import reference
from daemon.config import fields
from daemon.errors import ExitStatus


def test_committed_page_is_what_the_code_says() -> None:
    """A page that drifted misleads whoever is paged: run `make reference` and commit it."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()


def test_page_lists_every_setting_and_exit_status() -> None:
    """The generator must not lose an entry."""
    page = reference.page()
    for name in fields():
        assert f"`BULKHEAD_{'__'.join(name).upper()}`" in page
    for status in ExitStatus:
        assert f"| `{status.value}` | {status.name.lower()} |" in page


def test_check_refuses_a_page_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` is a gate: it writes nothing and fails."""
    monkeypatch.setattr(reference, "page", lambda: "something else")
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    with pytest.raises(SystemExit, match="differs from the code"):
        reference.main()
