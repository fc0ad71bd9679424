"""One chaos run from its start to its judgement: the storm, the calm, the end.

Rules: documents are sent and the last state is read behind the proxy's back; whoever starts something ends it, in the
reverse order, whatever happens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from bench import _chaos_judge as judges
from bench._chaos_documents import Sent, real, tiny
from bench._chaos_hosts import NOT_RESTARTED
from bench._chaos_places import MAX_ATTEMPTS, keep_ledger
from bench._chaos_scene import RESULTS, Plan, Scene, scene_of
from bench._chaos_trouble import KILLS
from daemon import samples
from daemon.config import load
from daemon.emulator import CREDENTIALS, Emulated
from daemon.sandbox import adopt_orphans, own_children

#: How long the rest of the work may take once calm has returned; a net.
_QUIET_S, _QUIET_PER_DOCUMENT_S = 300.0, 2.0
#: The share of the storm within which all documents are sent.
_SENDING = 0.8
#: How much longer than asked for the storm may last, and the share of messages that may be left when it ends.
_LONGEST_STORM, _LEFT_FOR_CALM = 4.0, 0.1
#: Sweeps that must have begun and ended while the queues were empty; the one that is at it does not count.
_LAST_SWEEPS = 2
_DEPTHS = ("", "NotVisible", "Delayed")
#: How long an orphan may take to end after its parent: the kernel kills it at once, on a busy machine.
_ORPHANS_S = 10.0


def run(plan: Plan, work: Path, *, tell: Callable[[str], None]) -> dict[str, object]:
    """The whole run; its figures, `clean` among them."""
    adopt_orphans()  # so that what outlives its parent becomes ours, and is seen
    started = time.monotonic()
    with scene_of(plan, work) as scene:
        sent = _documents(plan, scene.aws, work)
        storm_s = _storm(plan, scene, sent, tell)
        tell("calm; waiting until nothing is left to do")
        quiet = _settled(scene, len(sent))
        leftovers = _stopped(scene)
        figures = _judged(scene, sent, work, quiet=quiet)
    leftovers["processes"] = _orphans()
    figures |= {
        "left_behind": leftovers,
        "storm_s": round(storm_s, 1),
        "elapsed_s": round(time.monotonic() - started, 1),
    }
    figures["kills_per_minute"] = round(int(str(figures["kills"])) * 60 / storm_s, 1)
    clean = not (figures.pop("wrong") or any(leftovers.values()))
    return {"clean": clean, **figures}


def _documents(plan: Plan, aws: Emulated, work: Path) -> list[Sent]:
    """What is sent; the objects are in the bucket when this returns."""
    if plan.engine == "fake":
        sent = tiny(plan.documents, seed=plan.seed, bucket=aws.bucket)
    else:
        samples.write(work / "samples")
        good = [work / "samples" / sample.name for sample in samples.GOOD]
        sent = real(good, plan.documents, seed=plan.seed, bucket=aws.bucket)
    for each in sent:
        if each.content is not None:
            aws.s3.put_object(Bucket=aws.bucket, Key=f"inbox/{each.name}", Body=each.content)
    return sent


def _storm(plan: Plan, scene: Scene, sent: Sequence[Sent], tell: Callable[[str], None]) -> float:
    """Send everything while everything goes wrong; how long it lasted, in seconds."""
    tell(f"{plan.parents} parents, {len(sent)} documents, {plan.storm_s:.0f} s of trouble, seed {plan.seed}")
    begun = time.monotonic()
    scene.trouble.start()
    try:
        pause_s = plan.storm_s * _SENDING / max(1, len(sent))
        for number, each in enumerate(sent):
            threading.Event().wait(max(0.0, begun + number * pause_s - time.monotonic()))
            for _ in range(each.times):
                scene.aws.sqs.send_message(QueueUrl=scene.aws.queue_url, MessageBody=each.body)
        _await_progress(plan, scene, begun)
    finally:
        scene.trouble.stop()
        scene.faults.calm()
        for host in scene.hosts:
            host.calm()
    return time.monotonic() - begun


def _await_progress(plan: Plan, scene: Scene, begun: float) -> None:
    """Until the storm's time is over and most messages are gone: on a slow machine it lasts longer, up to a bound."""
    until, at_last = begun + plan.storm_s, begun + plan.storm_s * _LONGEST_STORM
    few = plan.documents * _LEFT_FOR_CALM
    while time.monotonic() < until or (sum(_depths(scene.aws).values()) > few and time.monotonic() < at_last):
        threading.Event().wait(0.5)


def _settled(scene: Scene, documents: int) -> bool:
    """Wait until both queues stay empty while two whole sweeps look for more; whether that came about."""
    scene.sweeps.hurry()
    deadline, sweeps = time.monotonic() + _QUIET_S + documents * _QUIET_PER_DOCUMENT_S, None
    while time.monotonic() < deadline:
        done = scene.sweeps.done[0]
        if sum(_depths(scene.aws).values()):
            sweeps = None
        elif sweeps is None:
            sweeps = done
        elif done > sweeps + _LAST_SWEEPS:
            return True
        threading.Event().wait(0.25)
    return False


def _depths(aws: Emulated) -> dict[str, int]:
    names = [f"ApproximateNumberOfMessages{which}" for which in _DEPTHS]
    found = {}
    for url in (aws.queue_url, aws.dead_letter_url):
        attributes = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        found[url.rpartition("/")[2]] = sum(int(attributes[name]) for name in names)
    return found


def _stopped(scene: Scene) -> dict[str, list[str]]:
    """End the daemons as an operator would; what they had open, and what they leave behind."""
    scene.sweeps.stop()
    found: dict[str, list[str]] = {"descriptors": [], "statuses": []}
    for host in scene.hosts:
        if host.pid is not None and len(held := judges.descriptors(host.pid)) > judges.IDLE_DESCRIPTORS:
            found["descriptors"] += [f"{host.name}: {link}" for link in held]
    for host in scene.hosts:
        if (status := host.stop()) != 0:
            found["statuses"].append(f"{host.name} left with {status} when it was told to stop")
    found["scratch"] = judges.scratch(host.state for host in scene.hosts)
    return found


def _orphans() -> list[str]:
    """Processes below us that nobody has ended. Those that have ended and that nobody awaited are awaited here."""
    deadline = time.monotonic() + _ORPHANS_S
    while living := [pid for pid in own_children() if os.waitpid(pid, os.WNOHANG) == (0, 0)]:
        if time.monotonic() > deadline:
            return [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in living]
        threading.Event().wait(0.1)
    return []


def _judged(scene: Scene, sent: Sequence[Sent], work: Path, *, quiet: bool) -> dict[str, object]:
    """Figures, and under `wrong` whether any of them may not be; what explains them is in `work` afterwards."""
    findings = _audited(scene)
    store = judges.Store(scene.aws.s3, scene.aws.bucket, RESULTS)
    settings = load(environ=scene.quiet_env)
    os.environ.update(CREDENTIALS)  # of the embedded AWS, for what is read in this process
    standings = judges.standings(sent, settings)
    judged = judges.judge(sent, standings, store=store, record=scene.record, max_attempts=MAX_ATTEMPTS)
    keep_ledger(scene.disk, work)
    judges.write_down(work / "record.json", standings, scene.record)
    named = {name: value for name, value in asdict(judged).items() if isinstance(value, list)}
    ends: Counter[int] = sum((host.ends for host in scene.hosts), Counter())
    bugs = judges.bugs([*(host.log for host in scene.hosts), scene.sweeps.log])
    refused = {status: times for status, times in ends.items() if status in NOT_RESTARTED}
    kills = {name: scene.trouble.done[name] for name in KILLS}
    harmless = named.pop("harmless_parked")
    wrong = [not quiet, findings, refused, scene.sweeps.wrong(), bugs, scene.record.early_deletions, *named.values()]
    return {
        "documents": len(sent),
        "messages": sum(each.times for each in sent),
        "published": judged.published,
        "parked": judged.parked,
        **{name: len(value) for name, value in named.items()},
        "deleted_too_early": len(scene.record.early_deletions),
        "harmless_parked": len(harmless),
        "audit_findings": len(findings),
        "kills": sum(kills.values()),
        "kills_by_kind": kills,
        "troubles": {name: times for name, times in scene.trouble.done.items() if name not in KILLS},
        "disk": scene.disk.reason or "filled",
        "requests": scene.record.requests,
        "faults_injected": dict(scene.faults.done),
        "attempts": judged.attempts,
        "parents_ended_by_status": {str(status): times for status, times in sorted(ends.items())},
        "sweeps_by_status": {str(status): times for status, times in sorted(scene.sweeps.done.items())},
        "starts_refused": sum(refused.values()),
        "bugs": len(bugs),
        "queues_empty": quiet,
        "wrong": any(wrong),
        "named": {name: value[:20] for name, value in named.items() if value}
        | {name: value[:20] for name, value in (("audit", findings), ("bugs", bugs)) if value},
    }


def _audited(scene: Scene) -> list[str]:
    """The lines of `bulkhead audit`."""
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "audit", "--json"],
        env=scene.quiet_env,
        capture_output=True,
        text=True,
        check=False,
        timeout=_QUIET_S,
    )
    lines = [json.dumps(json.loads(line)) for line in done.stdout.splitlines()]
    return lines or ([] if done.returncode == 0 else [f"status {done.returncode}: {done.stderr[-1000:]}"])
