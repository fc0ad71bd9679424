"""What a child can have without end: memory, files, threads, processes. Commands of the fake engine."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path


def map_shared() -> None:
    """Fill shared memory, which RLIMIT_DATA does not count, without end."""
    held = []
    while True:
        block = mmap.mmap(-1, 2**24)
        block.write(b"\x01" * 2**24)
        held.append(block)
        threading.Event().wait(0.01)


def hold(number_bytes: int) -> None:
    """Take so much private memory, and touch all of it."""
    assert len(b"\x01" * number_bytes) == number_bytes


def fill_memfds() -> None:
    """Fill memory that only descriptors hold, without end; nothing of it is mapped."""
    while True:
        os.write(os.memfd_create("hidden"), b"\x01" * 2**24)
        threading.Event().wait(0.01)


def fill_scratch(*, keep_names: bool) -> None:
    """Write small files without end, and keep them open; without names they cannot be found in the folder."""
    for number in itertools.count():
        path = Path(f"file-{number}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"\x01" * 2**20)
        if keep_names:
            os.close(descriptor)
        else:
            path.unlink()
        threading.Event().wait(0.01)


def make_files() -> None:
    """Use up inodes without using up bytes."""
    for number in itertools.count():
        Path(f"empty-{number}").touch()


def make_folders() -> None:
    """Hide a file deeper than any path can say."""
    for _ in range(2000):
        os.mkdir("d")  # noqa: PTH102  as deep as no Path can name
        os.chdir("d")
    Path("file").write_bytes(b"x")
    threading.Event().wait()


def start_threads() -> str:
    """As many as there may be; told, and left waiting."""
    number = 0
    with suppress(RuntimeError):
        while True:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            number += 1
    return str(number)


def leave_grandchild(pid_file: Path, *, own_session: bool) -> None:
    """Fork a process that would stay for a long time, and go on when its pid is on disk."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        if own_session:
            os.setsid()
        pid_file.write_text(str(os.getpid()), encoding="ascii")
        os.write(writable, b".")
        threading.Event().wait(9_999)
        os._exit(0)
    os.read(readable, 1)


def burst(*, in_memfd: bool = False) -> None:
    """Take half a gigabyte of shared memory as fast as it goes: a look may miss it, the kernel does not."""
    step, steps = b"\x01" * 2**22, 128
    if in_memfd:
        descriptor = os.memfd_create("burst")
        for _ in range(steps):
            os.write(descriptor, step)
    else:
        block = mmap.mmap(-1, steps * len(step))
        for _ in range(steps):
            block.write(step)


def burst_below() -> None:
    """Let a child of the child be the greedy one, and wait for it."""
    pid = os.fork()
    if pid == 0:
        try:
            burst()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
