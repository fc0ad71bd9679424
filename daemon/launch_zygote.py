"""The zygote as its parent sees it: started by exec, asked for children, started again when it has died.

Edge: processes. Each zygote has a thread of its own that starts it, reads what it prints and reaps it: the kernel
binds a child's life to the *thread* that forked it, so that thread lives exactly as long as the zygote.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

import structlog

from daemon import sandbox
from daemon.clock import Clock
from daemon.errors import EngineError, ExitStatus
from daemon.launch import Ends, EngineSpec, Handle
from daemon.processes import end_marked

log = structlog.get_logger()

#: A zygote that dies is started again this often for one child, each time after twice as long.
RESTARTS = 3
_FIRST_BACKOFF_S = 0.2
#: How long a zygote may take to end its children and leave.
_STOP_S = 5.0
_MESSAGE_BYTES = 2**18
#: Marks the zygote and everything below it, so that what outlived it can be found.
_MARK_VARIABLE = "DAEMON_ZYGOTE_MARK"


class NotSingleThreadedError(EngineError):
    """The warm process has more than one thread, so it must not fork."""


class ZygoteLostError(EngineError):
    """It did not get as far as to say what is missing: it was killed from outside, or its host was too slow.

    Unlike a part that is missing this may pass, so the status is one with which systemd starts the daemon again.
    """

    status = ExitStatus.UNAVAILABLE


class Zygote:
    """One life of the zygote, from exec to its end."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._control, self._its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        token = os.urandom(16).hex()
        self.mark = f"{_MARK_VARIABLE}={token}".encode()
        self._environment = sandbox.environment(os.environ) | {_MARK_VARIABLE: token}
        self._printed: deque[str] = deque(maxlen=20)
        self._started: SimpleQueue[subprocess.Popen[str] | OSError] = SimpleQueue()
        self._stopping = False
        #: As Popen says it; None while it lives.
        self._status: int | None = None
        self.ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="zygote-keeper", daemon=True)
        self._keeper.start()
        process = self._started.get()
        self._its_control.close()
        if isinstance(process, OSError):
            self._control.close()
            raise EngineError(f"cannot start the zygote: {process}; check memory and the limit of processes")
        self._process = process
        self.pid = process.pid

    def _keep(self) -> None:
        """Start it, keep the last lines that it prints, reap it."""
        try:
            process = subprocess.Popen(  # noqa: S603  our own interpreter with our own module
                [*self._spec.command("daemon.zygote"), "--control", str(self._its_control.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(self._its_control.fileno(),),
                env=self._environment,
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            self.ended.set()
            self._started.put(error)
            return
        self._started.put(process)
        assert process.stdout is not None, "stdout is a pipe"
        with process.stdout:
            while line := process.stdout.readline(500):
                self._printed.append(line.rstrip())
        self._status = process.wait()
        self.ended.set()
        if not self._stopping:
            log.warning("zygote.died", zygote_pid=process.pid, status=self._status, printed=list(self._printed)[-5:])

    def await_ready(self, timeout_s: float) -> dict[str, object]:
        """Wait until it is warm and return the engine's manifest.

        Raises NotSingleThreadedError, ZygoteLostError, and EngineError with its own words when it cannot load.
        """
        self._control.settimeout(timeout_s)
        try:
            data = self._control.recv(_MESSAGE_BYTES)
        except TimeoutError:
            raise ZygoteLostError(
                f"cannot use the zygote: not ready within {timeout_s:.0f} s (child.start_timeout_s)"
            ) from None
        except OSError:
            data = b""
        if not data:
            self.ended.wait(_STOP_S)
            if self._status == -signal.SIGKILL:
                raise ZygoteLostError(
                    "cannot use the zygote: it was killed while loading; look for the kernel's OOM killer"
                )
            words = " | ".join(self._printed) or "without a word"
            raise EngineError(f"cannot use the zygote: it ended while loading: {words[-1000:]}")
        message = json.loads(data)
        if "error" in message:
            raise EngineError(message["error"])
        if len(message["threads"]) != 1:
            raise NotSingleThreadedError(f"the warm process has threads {', '.join(message['threads'])}")
        self._control.settimeout(_STOP_S)
        manifest: dict[str, object] = message["engine"]
        return manifest

    def fork(self, ends: Ends, limits: sandbox.Limits) -> Handle:
        """Ask for one child. Raises OSError when the zygote is gone."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = dataclasses.asdict(limits)
        try:
            with its:
                descriptors = [its.fileno(), *ends.for_child()]
                socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except OSError:
            ours.close()
            self.kill()  # whatever it does now, it does not listen; the next attempt must see that it is gone
            self.ended.wait(_STOP_S)
            raise
        return Handle(ours, self)

    def kill(self) -> None:
        """SIGKILL; its children follow by themselves."""
        self._process.kill()  # which knows whether it was reaped

    def await_end(self, timeout_s: float) -> bool:
        """See `Supervisor`."""
        return self.ended.wait(timeout_s)

    def release(self) -> None:
        """See `Supervisor`: it goes on for the others."""

    def stop(self) -> None:
        """Hang up, and end it by force when it does not leave; reaped in either case."""
        self._stopping = True
        self._control.close()
        if not self.ended.wait(_STOP_S):
            self.kill()
        self._keeper.join(_STOP_S)
        end_marked(self.mark)


class ZygoteLauncher:
    """Keeps one zygote, and starts the next when a child is asked for and the last has died."""

    def __init__(
        self,
        spec: EngineSpec,
        *,
        clock: Clock,
        start_timeout_s: float,
        on_started: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        """`on_started` is told the pid of each zygote before that has loaded anything."""
        self._spec = spec
        self._clock = clock
        self._start_timeout_s = start_timeout_s
        self._on_started = on_started
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        #: The one that is loading, so that `stop` need not wait for it; and since when, a monotonic instant.
        self._loading: Zygote | None = None
        self._loading_since = 0.0
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The zygote's pid; None while there is none."""
        zygote = self._zygote
        return None if zygote is None or zygote.ended.is_set() else zygote.pid

    def begin(self) -> None:
        """See `Launcher`."""
        self._stopped = False
        with self._lock:
            self._load()

    def start(self) -> dict[str, object]:
        """See `Launcher`; raises NotSingleThreadedError besides."""
        with self._lock:
            return self._begin()

    def _load(self) -> Zygote:
        """The one that is loading: begun earlier, or now. Raises EngineError."""
        if self._loading is None:
            if self._stopped:
                raise EngineError("cannot start a child: we were told to stop")
            self._loading_since = self._clock.monotonic()
            self._loading = Zygote(self._spec)
            self._on_started(self._loading.pid)
            log.info("zygote.started", zygote_pid=self._loading.pid)
        return self._loading

    def _begin(self) -> dict[str, object]:
        zygote = self._load()
        try:
            manifest = zygote.await_ready(self._start_timeout_s)
        except BaseException:  # whatever it was, an interruption too: nobody else knows of this process
            zygote.stop()
            raise
        finally:
            self._loading = None
        self._zygote = zygote
        elapsed_s = round(self._clock.monotonic() - self._loading_since, 3)
        log.info("zygote.ready", zygote_pid=zygote.pid, elapsed_s=elapsed_s)
        return manifest

    def launch(self, ends: Ends, limits: sandbox.Limits) -> Handle:
        """See `Launcher`; raises NotSingleThreadedError besides."""
        for attempt in range(RESTARTS + 1):
            try:
                return self._living(attempt).fork(ends, limits)
            except NotSingleThreadedError:
                raise
            except (OSError, EngineError) as error:
                if attempt == RESTARTS or self._stopped:
                    log.error("zygote.unavailable", attempts=RESTARTS, error=str(error))  # noqa: TRY400  no traceback: the sentence says it
                    raise EngineError(f"cannot start the zygote again after {RESTARTS} attempts: {error}") from error
        raise AssertionError("the loop returns or raises")

    def _living(self, attempt: int) -> Zygote:
        """Return a zygote that was alive a moment ago; the first attempt waits for nothing."""
        with self._lock:
            if attempt and (self._zygote is None or self._zygote.ended.is_set()):
                threading.Event().wait(_FIRST_BACKOFF_S * 2 ** (attempt - 1))
            if self._zygote is not None and self._zygote.ended.is_set():
                self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                self._begin()
            assert self._zygote is not None, "begun just now"
            return self._zygote

    def stop(self) -> None:
        """See `Launcher`; a zygote that is still loading is not waited for."""
        self._stopped = True
        loading = self._loading
        if loading is not None:
            loading.kill()
        with self._lock:
            for zygote in (self._zygote, self._loading):  # one that was begun, and that nobody came to wait for
                if zygote is not None:
                    zygote.stop()
            self._zygote = self._loading = None
