"""Is anything lost when everything dies? `python -m bench.chaos [--json]`.

Several real daemons on one queue, one ledger and one bucket, through a proxy that injects faults; documents that crash,
hang and cannot be read; parents, zygotes, children and sweeps that are killed at random times and at named points; a
disk that fills, clocks that move, services that refuse. Then calm, until nothing is left to do; then judgement, by
`bulkhead audit` and by `_chaos_judge.py`. Status 0 exactly when nothing is wrong.

Rules: one seed draws documents, faults and deaths (not how they interleave); bounded in time and number; leaves no
process, mount or file behind, but for the folder that explains what was wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench._chaos_run import run
from bench._chaos_scene import Plan
from bench._measure import machine, prepared


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--engine", choices=["fake", "real"], default="fake", help="tiny documents, or real ones")
    parser.add_argument("--ledger", choices=["sqlite", "dynamodb"], default="sqlite")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--parents", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=240.0, help="how long things go wrong; then calm")
    parser.add_argument("--troubles-per-minute", type=float, default=120.0)
    parser.add_argument("--faults", type=float, default=0.05, help="share of requests that are hit")
    parser.add_argument("--skew", type=float, default=600.0, help="how far clocks move, in seconds")
    parser.add_argument("--longest-wait", type=int, default=15, help="longer waits in the queue are cut, in seconds")
    parser.add_argument("--reclaims", type=int, default=3, help="returns to the queue before a document is parked")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="a new folder for ledger and logs; unset: kept where something was wrong"
    )
    options = parser.parse_args(argv)
    plan = Plan(
        engine=options.engine,
        ledger=options.ledger,
        documents=options.documents,
        parents=options.parents,
        storm_s=options.seconds,
        troubles_per_minute=options.troubles_per_minute,
        faults=options.faults,
        skew_s=options.skew,
        longest_wait_s=options.longest_wait,
        reclaims=options.reclaims,
        seed=options.seed,
    )
    errors = Console(stderr=True)
    with prepared() as load_before:
        figures = _explained(plan, options.keep, tell=lambda text: errors.print(text, style="dim", soft_wrap=True))
    told = {"bench": "chaos", **machine(load_before), "plan": asdict(plan), **figures}
    print(json.dumps(told) if options.json else "\n".join(f"{name:24}{value}" for name, value in told.items()))
    return 0 if told["clean"] else 1


def _explained(plan: Plan, keep: Path | None, *, tell: Callable[[str], None]) -> Mapping[str, object]:
    """The run's figures; what explains them is in `keep`, or in a folder that is named unless the run was clean."""
    work = keep or Path(tempfile.mkdtemp(prefix="bench-chaos-"))
    work.mkdir(parents=True, exist_ok=True)
    figures: Mapping[str, object] = {"clean": False}
    try:
        figures = run(plan, work, tell=tell)
    finally:
        if keep is None and figures["clean"]:
            shutil.rmtree(work)
        else:
            tell(f"ledger, record and logs are kept in {work}")
    return figures


if __name__ == "__main__":
    sys.exit(main())
