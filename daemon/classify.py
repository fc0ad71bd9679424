"""What a child's life amounts to: exit status, report and our own doings → Outcome.

Core, and the only reader of wait statuses. In order:

1. A digest-checked result and status 0 is CONVERTED, a finished share of the pages and status 0 is SLICED, even
   when a kill was on its way and came too late; only a lost lease and a breach of protocol overrule it.
2. What we did to the child comes next; its reason is the cause.
3. Then the supervisor's end, a kill by the kernel for want of memory (as the child's cgroup counted it, or judged by
   its peak), and bytes that are no frame.
4. A claim stands only with status 0. Everything else is a crash: above all an end without a result,
   whatever the status, and a result or a claim followed by a signal, since a process that cannot leave
   cleanly was damaged before.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from daemon.bounds import doing
from daemon.model import OCR_MODES, Cause, Exit, KillReason, Outcome, PageMode, Plan, Stage

#: A child that dies by a signal this close to its memory limit died of it: a failed allocation crashes native code.
_NEAR_LIMIT = 0.9
#: Signals that a failed allocation, or the kernel's own OOM killer, ends in.
_MEMORY_SIGNALS = frozenset({signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGTRAP})

_KILL_CAUSES: Mapping[KillReason, Cause] = {
    KillReason.DEADLINE: Cause.TIMEOUT,
    KillReason.STALL: Cause.STALLED,
    KillReason.MEMORY: Cause.MEMORY,
    KillReason.SCRATCH: Cause.SCRATCH,
    KillReason.PROTOCOL: Cause.PROTOCOL,
    KillReason.DRAIN: Cause.DRAINED,
    KillReason.LEASE_LOST: Cause.LEASE_LOST,
    # It had its say and could not leave: no more to be believed than one that died on the way out.
    KillReason.LINGERED: Cause.CRASHED,
}
#: Reasons for which even a complete result is not wanted.
_FINAL_REASONS = frozenset({KillReason.PROTOCOL, KillReason.LEASE_LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Everything that is known of one ended child."""

    child: int
    #: What it was to do.
    plan: Plan
    #: None when nobody could reap it for us.
    exit: Exit | None
    #: Why we killed it; None when we did not.
    kill: KillReason | None = None
    #: The process that forks and reaps children went away first.
    supervisor_gone: bool = False
    #: It said hello, so it was given the document.
    met: bool = True
    #: A digest-checked result arrived.
    converted: bool = False
    #: Its share of the pages arrived, and so many are left; None when it did not say so.
    left: int | None = None
    #: What it said it could not do, and why.
    claim: tuple[Cause, str] | None = None
    #: What was wrong with its frames.
    breach: str | None = None
    stage: Stage = Stage.START
    page: int | None = None
    #: Pages that it finished, and in all where known.
    pages_done: int = 0
    pages: int | None = None
    elapsed_s: float = 0.0
    #: The larger of the kernel's ru_maxrss and our own samples.
    peak_rss_bytes: int = 0
    memory_limit_bytes: int
    #: Its processes that the kernel killed for want of memory, as its cgroup counted them; 0 without a cgroup.
    oom_kills: int = 0
    #: The last sample of its scratch folder, and its limit.
    scratch_bytes: int = 0
    max_scratch_bytes: int = 0
    #: How long the document was allowed to take.
    timeout_s: float
    #: Since its last sign of life, and the CPU that it used meanwhile.
    silent_s: float = 0.0
    silent_cpu_s: float = 0.0
    linger_s: float = 0.0
    traceback: str = ""
    stderr_tail: str = ""


def exit_of(wait_status: int) -> Exit:
    """Read a status as `wait4` returns it."""
    if os.WIFSIGNALED(wait_status):
        return Exit(signal=os.WTERMSIG(wait_status))
    return Exit(status=os.WEXITSTATUS(wait_status))


def signal_name(number: int) -> str:
    """Return `SIGSEGV` and the like; `signal 34` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reads_pictures(plan: Plan, page: int | None) -> bool:
    """Whether pictures of `page` may be read; of the document's pages in general where there is no page."""
    return (plan.default if page is None else plan.mode_of(page)) in OCR_MODES


def classify(life: Life) -> Outcome:
    """Conclude what `life` was; total, and never raises."""
    cause, sentence = _cause(life)
    return Outcome(
        cause=cause,
        detail=f"{sentence} {_figures(life)}",
        child=life.child,
        ocr=reads_pictures(life.plan, life.page),
        mode=_mode(life),
        pages_done=life.pages_done,
        pages=life.pages,
        signal=signal_name(life.exit.signal) if life.exit is not None and life.exit.signal is not None else None,
        stage=life.stage,
        page=life.page,
        elapsed_s=life.elapsed_s,
        peak_rss_bytes=life.peak_rss_bytes,
        traceback=life.traceback,
        stderr_tail=life.stderr_tail,
    )


def _mode(life: Life) -> PageMode | None:
    return None if life.page is None else life.plan.mode_of(life.page)


def _cause(life: Life) -> tuple[Cause, str]:
    left_cleanly = life.exit is not None and life.exit.status == 0
    if left_cleanly and life.kill not in _FINAL_REASONS:
        if life.converted:
            return Cause.CONVERTED, "converted"
        if life.left is not None:
            return Cause.SLICED, f"its share is converted, {life.left} pages are left,"
    if life.kill is not None:
        return _KILL_CAUSES[life.kill], _killed(life, life.kill)
    if life.supervisor_gone or life.exit is None:
        return Cause.ZYGOTE_DIED, f"the zygote went away under the child {_where(life)}"
    return _ended(life, life.exit)


def _ended(life: Life, end: Exit) -> tuple[Cause, str]:
    """Conclude from an end that was none of our doing."""
    if not life.met:
        said = f" ({life.claim[1]})" if life.claim is not None else ""
        return Cause.ZYGOTE_DIED, f"the child {_end(end)} before it had seen the document{said}"
    if end.signal == signal.SIGKILL and life.oom_kills:
        return Cause.MEMORY, f"{_end(end)} from the kernel, for want of memory, {_where(life)}"
    if end.signal in _MEMORY_SIGNALS and life.peak_rss_bytes >= _NEAR_LIMIT * life.memory_limit_bytes:
        return Cause.MEMORY, f"{_end(end)} at its memory limit {_where(life)}"
    if life.breach is not None and end.signal is None:
        return Cause.PROTOCOL, f"cannot believe the child: {life.breach}; it {_end(end)}"
    if life.claim is not None and end.status == 0:
        cause, detail = life.claim
        return cause, f"{detail.rstrip('.')};"
    return Cause.CRASHED, _crash(life, end)


def _killed(life: Life, reason: KillReason) -> str:
    """Say why we killed it, with the figure that was passed."""
    where = _where(life)
    match reason:
        case KillReason.DEADLINE:
            why = f"at its deadline of {life.timeout_s:.1f} s {where}"
        case KillReason.STALL:
            what = doing(life.silent_s, life.silent_cpu_s)
            why = f"after {life.silent_s:.1f} s without a sign of life {where} ({what})"
        case KillReason.MEMORY:
            why = f"at its memory limit {where}"
        case KillReason.SCRATCH:
            why = (
                f"with {_mb(life.scratch_bytes)} in its scratch folder, {_mb(life.max_scratch_bytes)} allowed, {where}"
            )
        case KillReason.PROTOCOL:
            why = f"because it is not to be believed: {life.breach or 'its frames were refused'}"
        case KillReason.DRAIN:
            why = f"because we were told to stop, {where}"
        case KillReason.LEASE_LOST:
            why = f"because the lease is no longer ours, {where}"
        case KillReason.LINGERED:
            said = "sent its result" if life.converted else "said its last"
            why = f"because it {said} and did not leave within {life.linger_s:.1f} s, {where}"
    return f"killed {why}"


def _crash(life: Life, end: Exit) -> str:
    if life.converted:
        return f"{_end(end)} after its result, which is not trusted,"
    if life.left is not None:
        return f"{_end(end)} after its share of the pages,"
    if life.claim is not None:
        return f"{_end(end)} after it reported {life.claim[0]}"
    return f"{_end(end)} {_where(life)}" if end.signal is not None else f"{_end(end)} without a result {_where(life)}"


def _end(end: Exit) -> str:
    return f"left with status {end.status}" if end.signal is None else f"killed by {signal_name(end.signal)}"


def _where(life: Life) -> str:
    of = "" if life.pages is None else f" of {life.pages}"
    return f"in {life.stage}" + ("" if life.page is None else f" of page {life.page}{of}")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MB"


def _figures(life: Life) -> str:
    pages = f", {life.pages_done} of {life.pages} pages done" if life.pages is not None else ""
    peak, limit = _mb(life.peak_rss_bytes), _mb(life.memory_limit_bytes)
    return f"after {life.elapsed_s:.1f} s, peak {peak} of {limit} allowed{pages}"
