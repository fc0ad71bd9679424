"""Parked documents are told to a person: one alert for each problem, and a digest instead of a storm.

Shell. Rules: log → mark as told → write down when, so a sweep that is killed tells again rather than never. A problem
(`Parked.fingerprint`) that was told within `AGAIN_AFTER`, and more than `MOST_ALERTS` new ones at once, wait for the
digest, which comes every `DIGEST_EVERY` at most. Everything parked is counted in exactly one alert or digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import structlog

from daemon.clock import Clock
from daemon.recovery import Parked, Recovery

log = structlog.get_logger()

#: New problems that one sweep tells each by itself; an upgrade gone wrong can make hundreds.
MOST_ALERTS = 10
#: More documents of a problem that was told are no news for so long.
AGAIN_AFTER = timedelta(hours=24)
DIGEST_EVERY = timedelta(hours=1)
#: Documents that one alert names, and problems that a digest does.
NAMED = 10
#: Names of notes: when a problem was told, and when the last digest was.
TOLD, DIGEST = "told ", "told in a digest"


def tell(recovery: Recovery, *, clock: Clock, note: Callable[[str, str, str], bool]) -> None:
    """Tell all that is parked and untold; `note` is told what would be done, and says whether to do it."""
    now = clock.now()
    untold = [each for each in recovery.parked() if not (each.alerted or each.retrying)]
    problems = [list(group) for _, group in groupby(sorted(untold, key=_fingerprint), key=_fingerprint)]
    news = [each for each in problems if not _recent(recovery.note(_told(each)), AGAIN_AFTER, now)]
    news.sort(key=len, reverse=True)
    at_once = news[:MOST_ALERTS]
    for members in at_once:
        first = members[0]
        if note("alerted", first.key, f"{len(members)} parked: {' '.join(filter(None, first.fingerprint))}"):
            _alert(members)
            recovery.mark_alerted([each.key for each in members], now=now)
            recovery.write_note(_told(members), now.isoformat())
    _digest(recovery, [each for each in problems if each not in at_once], now=now, note=note)


def _digest(
    recovery: Recovery, problems: Sequence[Sequence[Parked]], *, now: datetime, note: Callable[[str, str, str], bool]
) -> None:
    members = [parked for problem in problems for parked in problem]
    if not members or _recent(recovery.note(DIGEST), DIGEST_EVERY, now):
        return
    if note("digested", members[0].key, f"{len(members)} parked, of {len(problems)} problems"):
        causes = Counter(str(each.cause) for each in members)
        worst = sorted(problems, key=len, reverse=True)[:NAMED]
        log.error(
            "parking.summed_up",
            count=len(members),
            problems=len(problems),
            causes=", ".join(f"{cause} {count}" for cause, count in causes.most_common()),
            worst=", ".join(f"{each[0].problem} {each[0].cause} {len(each)}" for each in worst),
            documents=", ".join(each.key for each in members[:NAMED]),
            detail=f"{len(members)} more parked, of {len(problems)} problems, since the last alert or digest",
            fingerprint=[],
        )
        recovery.mark_alerted([each.key for each in members], now=now)
        recovery.write_note(DIGEST, now.isoformat())


def _fingerprint(parked: Parked) -> tuple[str, ...]:
    return parked.fingerprint


def _told(members: Sequence[Parked]) -> str:
    return f"{TOLD}{members[0].problem}"


def _recent(written: str | None, length: timedelta, now: datetime) -> bool:
    """Whether it was within `length`; one that cannot be read, or lies in the future, was not."""
    try:
        return written is not None and timedelta(0) <= now - datetime.fromisoformat(written) < length
    except (ValueError, TypeError):  # damaged, or without a time zone
        return False


def _alert(members: Sequence[Parked]) -> None:
    first = members[0]
    log.error(
        "document.parked",
        cause=str(first.cause),
        signal=first.signal,
        stage=None if first.stage is None else str(first.stage),
        build=first.build,
        problem=first.problem,
        count=len(members),
        documents=", ".join(each.key for each in members[:NAMED]),
        detail=f"{len(members)} parked: {first.cause}. The first: {first.detail}",
        fingerprint=list(first.fingerprint),
    )
