"""Everything that runs in a chaos run, and what is asked of it.

Rules: whoever starts something ends it, in the reverse order, whatever happens; nothing goes wrong before every daemon
has been ready once.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench._chaos_faults import Faults, Service
from bench._chaos_hosts import Host
from bench._chaos_places import Asked, environment, small_disk, state_dir
from bench._chaos_proxy import Proxy, Record
from bench._chaos_trouble import Disk, Sweeps, Trouble
from daemon.emulator import Emulated, emulated
from daemon.errors import ResourceError

#: How the results lie in the bucket.
RESULTS = "results/"
SWEEP_EVERY_S = 5.0
#: Loading the real engine three times at once takes tens of seconds on a busy machine.
_READY_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Asked):
    """What is asked for."""

    documents: int
    parents: int
    #: How long things go wrong.
    storm_s: float
    troubles_per_minute: float
    #: Share of requests that are hit.
    faults: float
    #: How far clocks move.
    skew_s: float
    #: Waits that the queue or the daemon would make longer are cut to this; see `_chaos_proxy.py`.
    longest_wait_s: int
    seed: int


@dataclass(slots=True)
class Scene:
    """Everything that runs."""

    aws: Emulated
    disk: Disk
    record: Record
    faults: Faults
    hosts: list[Host]
    sweeps: Sweeps
    trouble: Trouble
    #: The environment of a command that is not disturbed.
    quiet_env: dict[str, str]


@contextmanager
def scene_of(plan: Plan, work: Path) -> Iterator[Scene]:
    """The scene, with all daemons ready and sweeps running; ended on leaving."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(work / "disk", engine=plan.engine))
        aws = stack.enter_context(emulated(work / "emulator.log"))
        record, faults = Record(), Faults(seed=plan.seed, share=plan.faults, now=time.monotonic)
        proxy = Proxy(
            aws.endpoint_url,
            faults=faults,
            record=record,
            results=f"/{aws.bucket}/{RESULTS}",
            dead_url=aws.dead_letter_url,
            longest_s=plan.longest_wait_s,
        )
        stack.callback(proxy.close)
        operator = state_dir(disk, "operator", ledger=plan.ledger)
        quiet_env = environment(aws, aws.endpoint_url, work, ask=plan, state=operator)
        if plan.ledger == "dynamodb":
            create = [sys.executable, "-m", "daemon", "ledger", "create"]
            subprocess.run(create, env=quiet_env, capture_output=True, check=True)
        env = environment(aws, proxy.url, work, ask=plan, state=operator)
        sweeps = Sweeps(env=env, log=work / "sweep.log", every_s=SWEEP_EVERY_S)
        hosts = [
            stack.enter_context(_host(f"host-{number}", plan, disk, work, env)) for number in range(1, plan.parents + 1)
        ]
        _await_ready(hosts, work)
        sweeping = threading.Thread(target=sweeps.run, name="sweeps")
        sweeping.start()
        stack.callback(sweeping.join)
        stack.callback(sweeps.stop)
        yield Scene(
            aws=aws,
            disk=disk,
            record=record,
            faults=faults,
            hosts=hosts,
            sweeps=sweeps,
            trouble=trouble_of(plan, hosts, sweeps=sweeps, faults=faults, disk=disk),
            quiet_env=quiet_env,
        )


def trouble_of(plan: Plan, hosts: Sequence[Host], *, sweeps: Sweeps, faults: Faults, disk: Disk) -> Trouble:
    """What goes wrong with these hosts, once it is started."""
    return Trouble(
        hosts,
        sweeps=sweeps,
        faults=faults,
        disk=disk,
        services=[Service.SQS, Service.S3, *([Service.DYNAMODB] if plan.ledger == "dynamodb" else [])],
        per_minute=plan.troubles_per_minute,
        skew_s=plan.skew_s,
        one_clock=plan.ledger == "sqlite",  # a file is one machine's
        seed=plan.seed,
    )


@contextmanager
def _host(name: str, plan: Plan, disk: Disk, work: Path, env: dict[str, str]) -> Iterator[Host]:
    """A host that has ended afterwards."""
    state = state_dir(disk, name, ledger=plan.ledger)
    host = Host(name, engine=plan.engine, state=state, work=work, env=env, seed=f"{plan.seed} {name}")
    try:
        yield host
    finally:
        host.stop()


def _await_ready(hosts: Sequence[Host], work: Path) -> None:
    """Until every host has been ready once; raises `ResourceError` after a while."""
    deadline = time.monotonic() + _READY_S
    while not all(host.is_ready() for host in hosts):
        if time.monotonic() > deadline:
            raise ResourceError(f"cannot begin: not every daemon became ready within {_READY_S:.0f} s; see {work}")
        threading.Event().wait(0.2)
