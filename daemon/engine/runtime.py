"""What must hold in the process before any native part of the engine is imported.

Engine. Telemetry is off by `ORT_DISABLE_TELEMETRY=1`, the only opt-out that onnxruntime honours, and it
must be set before the import: an onnxruntime that came first is refused. Every inference session of the
process, whoever makes it, gets its thread count here, and its model file is noted for the manifest.
Nothing else in the package sets a thread count.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.engine.networks import fused
from daemon.errors import EngineError

#: Read by OpenMP, OpenBLAS and friends when they are loaded, never again.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TELEMETRY = "ORT_DISABLE_TELEMETRY"

#: The package whose networks see graphs, another size for each page. onnxruntime would keep an allocation plan for
#: each size that it ever saw: 40 MB at the peak after a dozen pages, and no CPU time saved.
_GRAPHS = "pymupdf"

#: Model files in the order in which sessions were made of them.
_models: list[Path] = []
#: Thread counts of the calls of `prepare`.
_prepared: list[int] = []


def prepare(threads: int) -> None:
    """Make the process fit for the engine: no telemetry, `threads` threads per session, no chatter.

    Idempotent. With `threads` of 1 nothing that is loaded afterwards starts a thread.
    Raises EngineError when onnxruntime was imported without the opt-out, when PyMuPDF came first, or when
    a package is not installed.
    """
    if "onnxruntime" in sys.modules and os.environ.get(_TELEMETRY) != "1":
        message = (
            "cannot load the engine: onnxruntime was imported without ORT_DISABLE_TELEMETRY=1, so its telemetry "
            "thread may run. Set the variable before the process imports anything native"
        )
        raise EngineError(message)
    if not _prepared and "pymupdf" in sys.modules:
        message = (
            "cannot load the engine: pymupdf was imported before it, so its models have one thread per CPU. "
            "Load the engine first; the rest of the process may import pymupdf afterwards"
        )
        raise EngineError(message)
    _prepared.append(threads)
    os.environ[_TELEMETRY] = "1"
    for name in _THREAD_VARIABLES:
        os.environ.setdefault(name, str(threads))
    # Libraries that look for files on a hub must not find one.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    _limit_sessions(threads)
    _limit_opencv(threads)
    _quieten()


def loaded_models() -> tuple[Path, ...]:
    """The model files of which this process has made sessions, each once, in order."""
    return tuple(dict.fromkeys(_models))


def thread_names() -> tuple[str, ...]:
    """Names of the threads that this process has, by the kernel's account; one per thread."""
    tasks = Path("/proc/self/task")
    return tuple(sorted((task / "comm").read_text(encoding="utf-8").strip() for task in tasks.iterdir()))


@contextmanager
def quiet() -> Iterator[None]:
    """No log line below an error, whatever level a library gives to its own logger meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _limit_sessions(threads: int) -> None:
    """Give every future InferenceSession `threads` threads, whatever its maker asked for.

    PyMuPDF makes its sessions without a setting, which means one thread per CPU.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - must follow the opt-out
    except ImportError as error:
        raise EngineError(f"cannot load the engine: package onnxruntime is missing ({error})") from error
    session = onnxruntime.InferenceSession
    original = getattr(session.__init__, "unlimited", session.__init__)

    def limited(self: Any, path_or_bytes: Any, sess_options: Any = None, *rest: Any, **named: Any) -> None:
        options = sess_options if sess_options is not None else onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        network = path_or_bytes
        if isinstance(path_or_bytes, (str, os.PathLike)):
            path = Path(path_or_bytes)
            _models.append(path)
            file = path.read_bytes()
            written = fused(file)
            network = path_or_bytes if written is file else written
            if _GRAPHS in path.parts:
                options.enable_mem_pattern = False
        original(self, network, options, *rest, **named)

    limited.unlimited = original  # type: ignore[attr-defined]
    session.__init__ = limited


def _limit_opencv(threads: int) -> None:
    """OpenCV keeps a pool of its own."""
    try:
        import cv2  # noqa: PLC0415 - must follow the thread variables
    except ImportError as error:
        raise EngineError(f"cannot load the engine: package opencv-python-headless is missing ({error})") from error
    cv2.setNumThreads(threads)


def _quieten() -> None:
    """Keep libraries from writing document text, paths or progress to stderr."""
    for name in ("docling", "docling_core", "RapidOCR", "rapidocr", "rapid_layout", "PIL"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"(docling|pymupdf|rapidocr|rapid_layout|PIL)(\..*)?")
