"""Log lines: what arrives, in which form, and what never does."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from daemon import log as log_module
from daemon import redact
from daemon.config import LogSettings
from daemon.redact import REDACTED, Limits, scrub, scrub_text

CANARY = "Xq7canaryXq7canary"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A pipe's end, with logging set up on it and put back afterwards."""
    root = logging.getLogger()
    before = list(root.handlers), root.level
    target = io.StringIO()
    log_module.configure(LogSettings(), stream=target)
    yield target
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written, decoded; a line that is no JSON fails the test."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_pipe_gets_one_json_object_per_line(stream: io.StringIO) -> None:
    """Whoever reads the journal by machine must never meet a line that is not JSON."""
    structlog.get_logger().info("daemon.started", workers=2, note="two\nlines", ratio=float("nan"))
    (line,) = lines(stream)
    assert line["event"] == "daemon.started"
    assert line["level"] == "info"
    assert line["workers"] == 2
    assert line["note"] == "two\nlines"
    assert line["at"].endswith("Z")


def test_terminal_gets_readable_lines(stream: io.StringIO) -> None:
    """A person at a terminal must not have to read JSON, nor be shown a credential."""
    terminal = Terminal()
    log_module.configure(LogSettings(), stream=terminal)
    structlog.get_logger().info("daemon.started", workers=2, api_key=CANARY)
    assert "daemon.started" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    assert CANARY not in terminal.getvalue()
    assert stream.getvalue() == ""


def test_levels_below_the_chosen_one_are_not_written(stream: io.StringIO) -> None:
    """`log.level` is the least severe level that is written."""
    log_module.configure(LogSettings(level="warning"), stream=stream)
    structlog.get_logger().info("daemon.started")
    structlog.get_logger().warning("sizing.clamped")
    assert [line["event"] for line in lines(stream)] == ["sizing.clamped"]


def test_library_lines_are_events_too(stream: io.StringIO) -> None:
    """A library's text is a field, bound to the same document, and its debug lines (bodies, headers) never show."""
    log_module.configure(LogSettings(level="debug"), stream=stream)
    with log_module.bound(document_id="d-1", attempt=2):
        logging.getLogger("botocore.endpoint").debug("response body %s", CANARY)
        logging.getLogger("botocore.endpoint").warning("retrying %s", "PutObject")
    (line,) = lines(stream)
    assert (line["event"], line["logger"]) == ("library.logged", "botocore.endpoint")
    assert line["message"] == "retrying PutObject"
    assert (line["document_id"], line["attempt"]) == ("d-1", 2)


def test_warnings_of_python_are_lines(stream: io.StringIO) -> None:
    """`warnings.warn` must not write bare text between JSON lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old thing", UserWarning, stacklevel=1)
    (line,) = lines(stream)
    assert line["event"] == "library.logged"
    assert "old thing" in line["message"]


def test_document_and_attempt_end_with_their_block(stream: io.StringIO) -> None:
    """A line of the next document must not bear the last one's id."""
    with log_module.bound(document_id="d-1", attempt=2):
        structlog.get_logger().info("attempt.marked")
    structlog.get_logger().info("message.received")
    first, second = lines(stream)
    assert (first["document_id"], first["attempt"]) == ("d-1", 2)
    assert "document_id" not in second


def test_exceptions_are_structured_and_without_locals(stream: io.StringIO) -> None:
    """A traceback is data; local variables, which may hold a page's text, are not in it."""

    def fail() -> None:
        page_text = CANARY
        raise ValueError(len(page_text))

    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("daemon.crashed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert line["exception"][0]["exc_type"] == "ValueError"
    assert line["exception"][0]["frames"][-1]["name"] == "fail"
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("aws_secret_access_key", CANARY),
        ("session_token", CANARY),
        ("sentry_dsn", f"https://{CANARY}@sentry.example/1"),
        ("receipt_handle", CANARY),
        ("uri", f"https://b.s3.amazonaws.com/k.pdf?X-Amz-Signature={CANARY}&X-Amz-Date=1"),
        ("uri", f"https://someone:{CANARY}@example.org/k.pdf"),
        ("detail", f"cannot fetch https://example.org/a?sig={CANARY}: 403"),
        ("detail", f"aws_secret_access_key = {CANARY}"),
        ("detail", f'{{"SessionToken": "{CANARY}"}}'),
        ("detail", f"Authorization: Bearer {CANARY}"),
        ("key_id", "AKIAIOSFODNN7CANARY1"),
        ("nested", {"headers": {"Authorization": CANARY}}),
        ("nested", [{"password": CANARY}]),
        ("body", CANARY),
        ("markdown", CANARY),
        ("blob", CANARY.encode()),
    ],
)
def test_credentials_and_content_never_reach_the_stream(stream: io.StringIO, field: str, value: object) -> None:
    """Whoever reads the logs must not be able to act as the daemon, or to read a document."""
    structlog.get_logger().info("message.received", **{field: value})
    assert "canary" not in stream.getvalue().lower()


def test_fencing_token_is_no_secret(stream: io.StringIO) -> None:
    """The number that orders attempts must stay readable."""
    structlog.get_logger().info("attempt.settled", fencing_token=3, detail="stage ocr, tokens: none")
    (line,) = lines(stream)
    assert line["fencing_token"] == 3
    assert line["detail"] == "stage ocr, tokens: none"


def test_line_never_exceeds_what_journald_keeps_whole(stream: io.StringIO) -> None:
    """A hostile child that logs megabytes must not break the journal's JSON."""
    fields = {f"field_{n}": "ä" * 100_000 for n in range(20)}
    structlog.get_logger().info("child.log", **fields, deep={"a": [["x" * 9_000] * 40] * 40})
    assert len(stream.getvalue().encode()) <= log_module.MAX_LINE_BYTES + 1
    (line,) = lines(stream)
    assert line["event"] == "child.log"


def test_closed_stream_hurts_nobody(stream: io.StringIO) -> None:
    """The daemon must not die because nobody reads its stderr."""
    stream.close()
    structlog.get_logger().info("daemon.started")


class Rude:
    """A value whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


def test_value_without_text_is_named_by_its_type() -> None:
    """A log line must not raise, whatever is passed in."""
    assert scrub(Rude()) == "[Rude, whose text raised RuntimeError]"


def test_shortened_text_says_how_much_is_missing() -> None:
    """A reader must know that there was more."""
    assert scrub_text("a" * 20, limit=5) == "aaaaa… (15 more)"


def test_name_that_is_no_unicode_can_be_written() -> None:
    """A file's name may hold a lone surrogate, which no stream takes."""
    assert scrub_text("a\ud800b").encode() == b"a\\ud800b"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES, key=st.text(max_size=12))
def test_scrubbed_values_are_strict_json(value: object, key: str) -> None:
    """Totality: any value becomes JSON, UTF-8 without surrogates, and finite."""
    json.dumps(scrub(value, key=key, limits=Limits(text=64)), allow_nan=False, ensure_ascii=False).encode("utf-8")


@given(text=st.text(), secret=st.text(alphabet="abcdefXYZ0123456789", min_size=12, max_size=40))
def test_presigned_query_is_masked_wherever_it_stands(text: str, secret: str) -> None:
    """A URL's query is masked in the middle of any text."""
    masked = scrub_text(f"{text} https://bucket.example/key?X-Amz-Signature={secret} {text}", limit=10_000)
    assert f"={secret}" not in masked
    assert REDACTED in masked


@pytest.mark.parametrize("rule", [pattern for pattern, _ in redact._TEXT_RULES], ids=range(len(redact._TEXT_RULES)))
@given(data=st.data())
def test_whatever_a_rule_knows_is_masked(rule: re.Pattern[str], data: st.DataObject) -> None:
    """Most texts are told to be harmless at one glance; none that a rule matches may be among them."""
    text = data.draw(st.from_regex(rule, fullmatch=True))
    assert REDACTED in scrub_text(text, limit=10_000)
