"""What was seen of one child from its start to its end, put together for `classify.py`.

Shell. `supervise.py` watches and calls it once, when the child is gone; nothing is waited for or decided here.
"""

from __future__ import annotations

from daemon import classify, frames
from daemon.bounds import Bounds, Silence
from daemon.cgroup import Group
from daemon.launch import Ended, Ends, Output
from daemon.model import KillReason
from daemon.report import Report
from daemon.sampling import Sampler


def seen(
    job: frames.Job,
    report: Report,
    ended: Ended | None,
    ends: Ends,
    *,
    kill: KillReason | None,
    supervisor_gone: bool,
    met: bool,
    breach: str | None,
    elapsed_s: float,
    silent_s: float,
    silence: Silence,
    sampler: Sampler,
    group: Group,
    output: Output,
    bounds: Bounds,
) -> classify.Life:
    """The Life of the child of `job`: its report, its end (None: nobody told it), what we did to it and why.

    `silent_s` is how long it was silent when it was killed for that, 0 otherwise; `elapsed_s` counts from its request.
    """
    failure = report.failure
    return classify.Life(
        child=job.child,
        plan=job.plan.plan(),
        exit=None if ended is None else classify.exit_of(ended.wait_status),
        kill=kill,
        supervisor_gone=supervisor_gone,
        met=met,
        converted=report.conversion is not None,
        left=report.left,
        claim=None if failure is None else (failure.cause, failure.detail),
        breach=breach,
        stage=report.stage,
        page=report.page,
        pages_done=len(report.done),
        pages=report.pages,
        elapsed_s=elapsed_s,
        peak_rss_bytes=max(sampler.peak_rss_bytes, 0 if ended is None else ended.max_rss_bytes),
        memory_limit_bytes=bounds.memory_bytes,
        oom_kills=group.oom_kills(),
        scratch_bytes=sampler.scratch_bytes,
        max_scratch_bytes=bounds.max_scratch_bytes,
        timeout_s=bounds.deadlines.allowed_s(report.pages),
        silent_s=silent_s,
        silent_cpu_s=silence.cpu_s,
        linger_s=bounds.linger_s,
        traceback=ends.traceback(),
        stderr_tail=output.tail(),
    )
