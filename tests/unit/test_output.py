"""What a child prints is bounded in what is kept, and counted in what is not."""

from __future__ import annotations

import os

from daemon.launch import Output


def test_the_first_is_kept_and_the_rest_counted() -> None:
    """However much a child prints, its parent holds no more than the limit."""
    readable, writable = os.pipe2(os.O_NONBLOCK)
    output = Output(readable, 10)
    os.write(writable, b"123456")
    assert output.read() == 6
    os.write(writable, b"789abcdef")
    assert output.read() == 9
    assert output.read() is None
    os.close(writable)
    assert output.read() == 0
    os.close(readable)
    assert output.tail() == "123456789a"
    assert output.dropped_bytes == 5
