"""What came of a chaos run, judged from outside: by the store's objects, the ledger's rows and the proxy's record.

Rules: a document is lost unless its whole result lies in the store, or it waits for a person; nothing is taken from the
daemon's own words but what its ledger holds. `bulkhead audit` is the second judge, and reads with its own eyes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench._chaos_documents import UNPUBLISHABLE, Kind, Sent
from bench._chaos_proxy import Record
from daemon.config import Settings
from daemon.model import WORLD_CAUSES, Attempt
from daemon.recovery import Parked, Standing
from daemon.recovery_wiring import opened

_EVENTS = frozenset({"daemon.crashed", "slot.failed"})
#: What an idle parent has open besides connections: standard streams, lock, ledger with its log, inotify-like
#: descriptors of its own, and the zygote's; measured at 12 to 20.
IDLE_DESCRIPTORS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Names, so that a person can look at each; all lists but the first two are empty after a good run."""

    published: int
    parked: int
    #: Harmless documents among the parked: their parents were killed too often.
    harmless_parked: list[str]
    lost: list[str]
    published_twice: list[str]
    #: Published and parked at once, or published although nobody can read it.
    wrongly_published: list[str]
    #: A manifest without its artefacts, or Markdown that is not what the document says.
    wrong_results: list[str]
    too_many_attempts: list[str]
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """What the ledger says in the end."""

    #: By key.
    parked: Mapping[str, Parked]
    #: By the name of what was sent.
    tries: Mapping[str, Standing]


class Store:
    """The results as any reader sees them."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._prefix = prefix
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        self._keys = {item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", ())}

    def has(self, document_id: str, name: str) -> bool:
        """Whether this object lies there."""
        return f"{document_id}/{name}" in self._keys

    def get(self, document_id: str, name: str) -> bytes:
        """Its bytes."""
        key = f"{self._prefix}{document_id}/{name}"
        content: bytes = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content


def standings(sent: Sequence[Sent], settings: Settings) -> Standings:
    """What the ledger has of every document that was sent, and all that is parked."""
    documents = [each for each in sent if each.document_id is not None]
    with opened(settings, command="bench.chaos") as edges:
        return Standings(
            parked={entry.key: entry for entry in edges.recovery.parked()},
            tries={each.name: edges.recovery.standing(each.document_id or "") for each in documents},
        )


def write_down(path: Path, standings: Standings, record: Record) -> None:
    """Ledger and record as JSON, for whoever must explain a finding."""
    told = {"manifests_put": record.manifests_put, **asdict(standings)}
    path.write_text(json.dumps(told, default=str, indent=1), encoding="utf-8")


def judge(sent: Sequence[Sent], standings: Standings, *, store: Store, record: Record, max_attempts: int) -> Judgement:
    """Look at every document that was sent."""
    documents = [each for each in sent if each.document_id is not None]
    parked, tries = standings.parked, standings.tries
    published = {each.name for each in documents if store.has(each.document_id or "", "manifest.json")}
    waiting = {each.name for each in documents if each.document_id in parked}
    missing = {each.name for each in documents} - published - waiting
    return Judgement(
        published=len(published),
        parked=len(parked),
        harmless_parked=sorted(each.name for each in documents if each.name in waiting and _is_harmless(each)),
        lost=sorted(missing) + _lost_messages(sent, parked.values()),
        published_twice=sorted(
            each.name for each in documents if len(record.manifests.get(each.document_id or "", ())) > 1
        ),
        wrongly_published=sorted(
            each.name
            for each in documents
            if each.name in published and (each.name in waiting or each.kind in UNPUBLISHABLE)
        ),
        wrong_results=sorted(each.name for each in documents if each.name in published and not _is_right(each, store)),
        too_many_attempts=sorted(
            name
            for name, standing in tries.items()
            if rounds(standing.attempts, max_attempts) > 1 + len(standing.reclaims)
        ),
        attempts=sum(len(standing.attempts) for standing in tries.values()),
    )


def _is_harmless(sent: Sent) -> bool:
    return sent.kind not in UNPUBLISHABLE


def _lost_messages(sent: Iterable[Sent], parked: Iterable[Parked]) -> list[str]:
    """Messages that nobody can read are parked under their own ids, so they are told by their bodies."""
    bodies = {entry.body for entry in parked}
    return [each.name for each in sent if each.kind is Kind.GARBAGE and each.body not in bodies]


def rounds(attempts: Iterable[Attempt], max_attempts: int) -> int:
    """How many times `max_attempts` the document must have been granted for these attempts, in their order; at least 1.

    Only what counts is counted: no attempt that ended for a reason of the world. Once a round is spent, an attempt
    that gives the document up without opening it may be killed at that any number of times.
    """
    begun, spent = 1, 0
    for attempt in attempts:
        if not _counts(attempt):
            continue
        if spent < max_attempts:
            spent += 1
        elif any(outcome.child for outcome in attempt.outcomes):
            begun, spent = begun + 1, 1
    return begun


def _counts(attempt: Attempt) -> bool:
    cause = attempt.last_cause
    return attempt.ended_at is None or (cause is not None and cause not in WORLD_CAUSES)


def _is_right(sent: Sent, store: Store) -> bool:
    """All artefacts are there; where no page was lost and the text is known, it is that text."""
    assert sent.document_id is not None, "only documents are published"
    if not all(store.has(sent.document_id, name) for name in ("document.md", "document.json")):
        return False
    manifest: Mapping[str, Any] = json.loads(store.get(sent.document_id, "manifest.json"))
    states = {page["state"] for page in manifest["pages"]}
    unhurt = not states & {"failed", "degraded"}
    return sent.markdown is None or not unhurt or store.get(sent.document_id, "document.md") == sent.markdown


def bugs(logs: Iterable[Path]) -> list[str]:
    """Lines of logs that only a bug can write: an exception that nobody expected, or what is no line of ours."""
    found = []
    for log in logs:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                # Its writer was killed in mid-sentence; or a command's last words, whose status is counted.
                if line.startswith(("{", "bulkhead: ")):
                    continue
                found.append(f"{log.name}: {line[:300]}")
                continue
            if event.get("event") in _EVENTS:
                found.append(f"{log.name}: {line[-600:]}")
    return found


def descriptors(pid: int) -> list[str]:
    """What a process has open besides its TCP connections, which its clients keep."""
    connections = set()
    for name in ("tcp", "tcp6"):
        lines = Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        connections |= {f"socket:[{line.split()[9]}]" for line in lines}
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link not in connections]


def scratch(states: Iterable[Path]) -> list[str]:
    """Files and folders that are left in scratch."""
    return [str(path) for state in states for path in (state / "scratch").rglob("*")]
