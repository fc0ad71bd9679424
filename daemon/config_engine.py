"""Settings of the processes that open documents, and of what they convert with.

Edge, without I/O. `config.py` reads them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from daemon.config_section import Section
from daemon.config_values import Bytes, MemoryLimit, Names, Seconds


class ChildSettings(Section):
    """The processes that open documents."""

    start: Literal["zygote", "spawn"] = "zygote"
    """`zygote`: forked from one warm process; `spawn`: a fresh interpreter each, seconds slower."""
    document_timeout_s: Seconds = 900.0
    """Deadline of one document's conversion, all its children together; then SIGKILL and the dead-letter queue."""
    document_timeout_per_page_s: Annotated[float, Field(ge=0, le=3600)] = 15.0
    """Added to the deadline for each page of the document."""
    longest_document_timeout_s: Seconds = 14_400.0
    """The deadline never grows beyond this."""
    stall_s: Seconds = 120.0
    """Without a sign of life from one page and stage for so long, the child is killed; a warning comes at half."""
    pages_per_child: Annotated[int, Field(ge=1, le=100_000)] = 40
    """Pages that one child converts before a fresh one goes on; bounds a child's memory in long documents."""
    sandbox: Literal["auto", "required", "off"] = "auto"
    """`auto`: what the kernel has keeps a child from files, sockets and processes; `required`: or no start; `off`."""
    start_timeout_s: Seconds = 60.0
    """Deadline for the zygote to be warm, and for a spawned child to say hello."""
    linger_s: Seconds = 5.0
    """How long a child may take to leave after its result."""
    memory_bytes: MemoryLimit = None
    """Highest limit of one child; unset: what there is, less a reserve, over the workers; more after a death of it."""
    max_output_bytes: Bytes = 512 * 2**20
    """Sum of all frames that one child may send."""
    max_stderr_bytes: Bytes = 64 * 2**10
    """How much of a child's stdout and stderr is kept; the rest is counted and dropped."""
    max_scratch_bytes: Bytes = 2 * 2**30
    """How much a child's scratch folder may hold; also its largest file."""


class EngineSettings(Section):
    """What a child converts with; checked at start, written into every manifest."""

    ocr_backend: Literal["rapidocr-onnxruntime"] = "rapidocr-onnxruntime"
    """The declared OCR engine; a start is refused when the installed one is another."""
    languages: Names = ("zh", "en")
    """Languages that OCR must be able to read; a start is refused when the models cannot."""
    max_pages: Annotated[int, Field(gt=0)] = 5_000
    """A document with more pages (or frames) is dead-lettered as `too_large`."""
    page_budget_px: Annotated[int, Field(ge=100_000)] = 4_000_000
    """Most pixels of a page's picture for layout and OCR, whatever the page's size on paper."""
    image_budget_px: Annotated[int, Field(ge=1_000_000)] = 64_000_000
    """Most pixels of an image document's frame as it is decoded; a larger one is scaled while decoding or refused."""
    preview_budget_px: Annotated[int, Field(ge=100)] = 800
    """Long edge at which the first page is rendered for `preview.webp`."""
