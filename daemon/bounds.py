"""What is enforced on one child by watching it: instants, lengths, sizes.

Core. Every instant is monotonic and handed in. The document's deadline grows with its pages, as soon as the child
has counted them; silence is measured since the last frame that only work can cause.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The watch looks four times a second. When it comes later than this it was itself stopped, and so was the child.
LATE_S = 2.0
#: Below this share of a CPU during a silence, a child waits for something and does not compute.
_BUSY_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """When a document's conversion must have ended, all its children together.

    What it waits for a child is not the document's time: whoever enforces a deadline adds it.
    """

    #: Monotonic instant at which its first child was asked for.
    started: float
    #: Granted to every document, and never cut by `longest_s`.
    base_s: float
    #: Granted on top for each page.
    per_page_s: float
    #: The allowance does not grow beyond this.
    longest_s: float
    #: How many pages an earlier child counted: without it, a late child would be past its deadline before it has
    #: opened the document again.
    pages: int | None = None

    def allowed_s(self, pages: int | None) -> float:
        """How long the document may take; `pages` is what this child has counted, None while it has not."""
        known = pages or self.pages or 0
        return max(self.base_s, min(self.longest_s, self.base_s + self.per_page_s * known))

    def at(self, pages: int | None) -> float:
        """The monotonic instant at which that time is over."""
        return self.started + self.allowed_s(pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Everything that one child is held to from outside."""

    deadlines: Deadlines
    #: Monotonic instant at which the child was asked for: a zygote may have had to be started first.
    asked: float
    #: Monotonic instant by which it must have said hello.
    start_deadline: float
    stall_s: float
    memory_bytes: int
    #: All of its scratch folder, and files without a name.
    max_scratch_bytes: int
    max_pages: int
    max_output_bytes: int
    max_stderr_bytes: int
    linger_s: float


class Silence:
    """How long a child with a job has shown no sign of life, and how much CPU it used meanwhile."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._since: float | None = None
        self._cpu_from_s: float | None = None
        self._cpu_to_s = 0.0
        self._warned = False

    def end(self, now: float) -> None:
        """It showed a sign of life; the next silence is measured from here."""
        self._since, self._cpu_from_s, self._warned = now, None, False

    def sample(self, cpu_s: float, *, late_s: float = 0.0) -> None:
        """Take in how much CPU the child has used since it began; the first sample of a silence is where it starts.

        `late_s` is how much later than planned this sample comes. A frozen host is nobody's silence.
        """
        if late_s > LATE_S and self._since is not None:
            self._since += late_s
        if self._cpu_from_s is None:
            self._cpu_from_s = cpu_s
        self._cpu_to_s = max(cpu_s, self._cpu_from_s)

    def lasted_s(self, now: float) -> float:
        """Length of the silence; 0 while nothing is expected."""
        return 0.0 if self._since is None else now - self._since

    @property
    def cpu_s(self) -> float:
        """CPU used during the silence, as far as it was sampled."""
        return 0.0 if self._cpu_from_s is None else self._cpu_to_s - self._cpu_from_s

    def is_stall(self, now: float) -> bool:
        """Whether it has lasted too long."""
        return self.lasted_s(now) >= self._stall_s

    def is_worth_a_warning(self, now: float) -> bool:
        """Whether it has lasted half of that; True once in each silence."""
        if self._warned or self.lasted_s(now) < self._stall_s / 2:
            return False
        self._warned = True
        return True

    def ends_at(self) -> float | None:
        """The instant at which it becomes a stall; None while nothing is expected."""
        return None if self._since is None else self._since + self._stall_s


def doing(silent_s: float, cpu_s: float) -> str:
    """Say what a silent child did: a loop is told from a wait."""
    return f"busy: {cpu_s:.1f} s of CPU" if cpu_s >= _BUSY_SHARE * silent_s > 0 else "idle"
