"""What systemd is told: ready, alive, what we do, and that we are leaving (sd_notify(3)).

Edge: the datagram socket in `NOTIFY_SOCKET`. Rules: without that variable nothing is sent and no thread is started; the
variables are taken out of the environment, so that nothing below us can speak for us; no failure of the socket ever
reaches the daemon. WATCHDOG=1 is sent only while every thread that must make progress does (`pulse.py`): a daemon that
only looks alive is restarted.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from daemon.clock import Clock, SystemClock
from daemon.errors import BulkheadError
from daemon.pulse import Beating, Pulse
from daemon.redact import scrub_text
from daemon.standing import Phase, Standing

log = structlog.get_logger()

#: The manager reads its socket at once; one that is too busy to do so is asked again at the next turn.
_SEND_TIMEOUT_S = 1.0
#: The longest sentence; `systemctl status` shows one line.
_STATUS_CHARACTERS = 400
#: How often there is something to say, at most: a watchdog is fed four times within its time.
_TURN_S, _TURNS_PER_WATCHDOG = 1.0, 4
#: What one turn asks for while starting or draining: enough to miss some turns on a busy machine.
_EXTENSION_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long what may take, in seconds."""

    #: From the first instruction to READY.
    start_s: float
    #: From the request to stop to the end of the process.
    stop_s: float
    #: One round of the heartbeats: a single call with all its retries.
    heartbeat_s: float
    #: One request for messages with all its retries.
    receive_s: float


class NotifySocket:
    """The manager's end of the line."""

    def __init__(self, address: str) -> None:
        """`address` is a path, or begins with `@` for a name in the abstract namespace."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._failed = False

    def send(self, **fields: str | int) -> bool:
        """Send one message; whether it was taken."""
        text = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            # Anew each time: a manager that was started again listens at the same address on another socket.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ours:
                ours.settimeout(_SEND_TIMEOUT_S)
                ours.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._failed:
                log.warning("notify.failed", detail=errno.errorcode.get(error.errno or 0, str(error)))
            self._failed = True
            return False
        self._failed = False
        return True


class Service:
    """This process as systemd sees it; silent when nobody listens."""

    def __init__(
        self,
        notify: NotifySocket | None = None,
        *,
        watchdog_s: float | None = None,
        pulse: Pulse | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._notify = notify
        self._clock = clock or SystemClock()
        self.pulse = pulse or Pulse(self._clock)
        self.watchdog_s = watchdog_s
        self._standing: Callable[[], Standing] = lambda: Standing(phase=Phase.STARTING)
        self._bounds = Bounds(start_s=0.0, stop_s=0.0, heartbeat_s=0.0, receive_s=0.0)
        self._began = self._clock.monotonic()
        self._stop_asked: float | None = None
        self._ready = False
        self._told: dict[str, str | int] = {}
        self._said_late: frozenset[Beating] = frozenset()
        self._closing = threading.Event()
        self._turning = threading.Lock()

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Service:
        """The service that `environ` describes; its variables are gone afterwards."""
        address = environ.pop("NOTIFY_SOCKET", "")
        watchdog_s = _watchdog_s(environ)
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            environ.pop(name, None)
        if not address.startswith(("/", "@")):
            return cls()
        return cls(NotifySocket(address), watchdog_s=watchdog_s)

    def start(self, bounds: Bounds) -> None:
        """Begin to speak: while starting, that it goes on, for as long as `bounds` allow."""
        self._bounds = bounds
        if self._notify is not None:
            threading.Thread(target=self._run, name="notifier", daemon=True).start()

    def ready(self, standing: Callable[[], Standing]) -> None:
        """Everything is there; from now on `standing` is asked, from another thread, what the daemon does."""
        self._standing = standing
        self._ready = True
        self.turn()

    @contextmanager
    def hearing_the_end(self) -> Iterator[None]:
        """What ends the daemon inside is told as its last sentence, which `systemctl status` shows afterwards too."""
        try:
            yield
        except BaseException as error:  # whatever ends the daemon, an interruption too, is its last sentence
            self._closing.set()
            with self._turning:
                self._send(
                    STATUS=_line(f"ended: {error}" if isinstance(error, BulkheadError) else f"ended by {error!r}")
                )
            raise

    def close(self) -> None:
        """Say no more."""
        self._closing.set()

    def turn(self) -> None:
        """Say what there is to say now; called by the notifier's thread, and by tests."""
        with self._turning:
            now = self._clock.monotonic()
            standing = self._standing()
            if self._ready and not self._told.get("READY"):
                self._tell(READY=1)
            self._tell(STATUS=_line(standing.sentence(now=self._clock.now(), monotonic_s=now)))
            if standing.phase is Phase.DRAINING:
                self._tell(STOPPING=1)
            if self._may_extend(standing.phase, now):
                self._send(EXTEND_TIMEOUT_USEC=int(_EXTENSION_S * 1e6))
            if self._ready and self.watchdog_s and not self._late():
                self._send(WATCHDOG=1)

    def _run(self) -> None:
        turn_s = min(_TURN_S, self.watchdog_s / _TURNS_PER_WATCHDOG) if self.watchdog_s else _TURN_S
        while not self._closing.is_set():
            self.turn()
            self._closing.wait(turn_s)

    def _may_extend(self, phase: Phase, now: float) -> bool:
        """Whether more time is due: a start and a drain get it up to their bounds, and not beyond."""
        if phase is Phase.DRAINING:
            self._stop_asked = now if self._stop_asked is None else self._stop_asked
            return now < self._stop_asked + self._bounds.stop_s
        return not self._ready and now < self._began + self._bounds.start_s

    def _late(self) -> frozenset[Beating]:
        """Who should have come round and has not; said once for each spell, since systemd will end us for it."""
        assert self.watchdog_s, "asked only with a watchdog"
        slack_s = self.watchdog_s / 2
        bounds = {
            Beating.LOOP: slack_s,
            Beating.HEARTBEAT: self._bounds.heartbeat_s + slack_s,
            Beating.RECEIVER: self._bounds.receive_s + slack_s,
        }
        ages = self.pulse.ages()
        late = frozenset(who for who, age_s in ages.items() if age_s > bounds[who])
        for who in sorted(late - self._said_late):
            log.error("daemon.stuck", thread=str(who), silent_s=round(ages[who], 1))
        self._said_late = late
        return late

    def _tell(self, **fields: str | int) -> None:
        """Send what has not been told yet; what was not taken is told again at the next turn."""
        news = {name: value for name, value in fields.items() if self._told.get(name) != value}
        if news and self._send(**news):
            self._told |= news

    def _send(self, **fields: str | int) -> bool:
        return self._notify is not None and self._notify.send(**fields)


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """The watchdog's time, if it is meant for this process; text that is no number counts as none."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    meant = not pid or pid == str(os.getpid())
    return int(usec) / 1e6 if meant and usec.isdecimal() and int(usec) else None


def _line(text: str) -> str:
    """One line without credentials."""
    return " ".join(scrub_text(text, limit=_STATUS_CHARACTERS).split())
