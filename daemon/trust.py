"""Whether this host may be believed when it says that documents kill their children.

Shell: joins `suspicion.py` with the canary, for all slots. Rules: no document is settled with a crash on its record
unless a canary that began after the crash has converted, one of letters alone where letters answer for the crash; one
canary at a time; nothing is decided here. A failed canary suspends the host: what is in trouble goes back to the
queue, and nothing of it is held against the document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from daemon.errors import BulkheadError, EngineError, WorldError
from daemon.killswitch import KillSwitch
from daemon.model import Cause
from daemon.suspicion import Suspicion, pause_s

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What one canary came to."""

    passed: bool
    #: Why it failed; how long it took where it passed.
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """What a host needs to prove itself."""

    #: Converts the canary of this number in a child, until the switch is pulled; with its picture, or letters alone.
    #: Raises `WorldError` when it was pulled, and `OSError` when there is no room for a child.
    prove: Callable[[int, KillSwitch, bool], Proof]
    #: Puts a fresh engine in the place of the one that failed. Raises EngineError.
    renew: Callable[[], object]
    #: Ends a `renew` that is still loading.
    abandon: Callable[[], None]
    #: Leaves a note for `bulkhead status`: why the host is suspended; None when it is not.
    note: Callable[[str | None], None]
    #: Called once for a spell, when a person must know.
    on_poisoned: Callable[[str], None]
    first_pause_s: float
    longest_pause_s: float


class Trust:
    """Used by all slots and the loop; without a court, documents are always to blame."""

    def __init__(self, *, window: int = 3, court: Court | None = None) -> None:
        """`window` different documents in trouble make the host owe a canary at once."""
        self._court = court
        self._lock = threading.Lock()
        self._proving = threading.Lock()
        self._suspicion = Suspicion(window=window)
        self._begun = 0
        #: Numbers of the last canaries that passed: whatever they held, and with a picture.
        self._last_passed = 0
        self._last_whole = 0
        self._on_suspended: Callable[[], None] = lambda: None

    def listen(self, on_suspended: Callable[[], None]) -> None:
        """Call this from any thread when the host is suspended."""
        self._on_suspended = on_suspended

    @property
    def suspended(self) -> bool:
        """Nothing may be received until a canary converts."""
        return self._suspicion.suspended

    @property
    def owes_canary(self) -> bool:
        """So many documents are in trouble that one of them asks for a canary now."""
        return self._court is not None and self._suspicion.owes_canary

    @property
    def pause_s(self) -> float:
        """Seconds between the last failed canary and the next one."""
        court = self._court
        if court is None:
            return 0.0
        failures = self._suspicion.failures
        return pause_s(failures, first_s=court.first_pause_s, longest_s=court.longest_pause_s)

    def saw_trouble(self, document_id: str) -> int:
        """A child of this document ended badly; returns the number that an answering canary must exceed."""
        with self._lock:
            self._suspicion = self._suspicion.in_trouble(document_id)
            return self._begun

    def saw_clean(self) -> None:
        """A document converted without trouble."""
        with self._lock:
            self._suspicion = self._suspicion.clean()

    def answer(self, number: int, switch: KillSwitch, *, letters: bool = False) -> None:
        """Return when a canary that began after `number` has converted: then the document is to blame.

        One of `letters` alone will do where these answer for its trouble, unless the host owes a whole one.
        Raises `WorldError(POISON_HOST)` when it does not convert, and like `Court.prove`.
        """
        court = self._court
        if court is None:
            return
        with self._proving:
            if self.suspended:
                raise WorldError(Cause.POISON_HOST, "this host has not proved itself since its canary failed")
            whole = not letters or self._suspicion.owes_canary
            if (self._last_whole if whole else self._last_passed) > number:
                return
            proof = self._prove(court, switch, whole=whole)
        if not proof.passed:
            raise WorldError(Cause.POISON_HOST, f"this host is at fault: {proof.detail}")

    def engine_failed(self, detail: str) -> None:
        """No child can be started, although that was tried several times: as good as a failed canary."""
        if self._court is not None:
            self._judge(self._court, Proof(passed=False, detail=detail))

    def prove_anew(self, switch: KillSwitch) -> None:
        """One try to end a suspension: a fresh engine, then the canary; never raises."""
        court = self._court
        assert court is not None, "without a court, nobody is suspended"
        if switch.reason is not None:
            return
        with self._proving:
            try:
                court.renew()
                self._prove(court, switch, whole=True)
            except EngineError as error:
                if switch.reason is None:
                    self._judge(court, Proof(passed=False, detail=str(error)))
            except (BulkheadError, OSError) as error:
                log.warning("host.not_proved", detail=str(error))
            except Exception as error:
                # A bug here must not leave the host suspended for ever: the next canary is tried all the same.
                log.exception("slot.failed", detail=str(error) or type(error).__name__)

    def abandon(self) -> None:
        """We are told to stop: do not wait for an engine that is loading."""
        if self._court is not None:
            self._court.abandon()

    def _prove(self, court: Court, switch: KillSwitch, *, whole: bool) -> Proof:
        with self._lock:
            self._begun += 1
            number = self._begun
        proof = court.prove(number, switch, whole)
        if proof.passed:
            self._last_passed = number
            self._last_whole = number if whole else self._last_whole
        self._judge(court, proof, whole=whole)
        return proof

    def _judge(self, court: Court, proof: Proof, *, whole: bool = True) -> None:
        with self._lock:
            now = before = self._suspicion
            if not proof.passed:
                now = before.failed()
            elif whole:
                now = before.passed()
            self._suspicion = now
        if proof.passed:
            log.info("host.trusted" if before.suspended else "host.proved", detail=proof.detail)
            if before.suspended:
                court.note(None)
            return
        court.note(proof.detail)
        if not before.suspended:
            log.warning("host.suspended", detail=proof.detail)
            self._on_suspended()
        if now.told and not before.told:
            log.error("host.poisoned", detail=proof.detail)
            court.on_poisoned(proof.detail)
        elif before.suspended:
            log.warning("host.canary_failed", detail=proof.detail, failures=now.failures)
