"""Watching one child from its start to its end, in the thread that asked for it.

Shell: the processes of `launch.py` joined with the table of `lifecycle.py`. One poll over the child's frames, its
output, its end and the switch; no thread per child. What is seen becomes an event; the table says what
to do. Everything is read before the end is believed, and an end is always awaited. Nothing is decided here:
`classify.py` concludes from the Life that comes out, which `child_life.py` puts together.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from daemon import child_life, classify, frames, lifecycle, wire
from daemon.bounds import Bounds, Silence
from daemon.cgroup import Group
from daemon.clock import Clock
from daemon.errors import ProtocolError
from daemon.killswitch import KillSwitch
from daemon.launch import Abandoned, Ended, Ends, Handle, Output, await_traceback
from daemon.lifecycle import Action, Event, Phase
from daemon.model import Conversion, KillReason, PageRecord
from daemon.report import Report
from daemon.sampling import Sampler

log = structlog.get_logger()

#: A SIGKILLed child that is not reported as ended by then is in uninterruptible sleep, or its zygote is stuck.
_KILL_S = 5.0
_READ_BYTES = 2**18


class Watch:
    """One child under watch."""

    def __init__(
        self,
        handle: Handle,
        ends: Ends,
        job: frames.Job,
        *,
        bounds: Bounds,
        group: Group,
        clock: Clock,
        switch: KillSwitch,
        on_page: Callable[[PageRecord, int], None],
    ) -> None:
        self._handle = handle
        self._ends = ends
        self._job = job
        self._bounds = bounds
        self.group = group
        self._log = log.bind(document_id=job.document_id, child=job.child)
        self._clock = clock
        self._switch = switch
        self._on_page = on_page
        self._decoder = wire.Decoder(max_total_bytes=bounds.max_output_bytes)
        self._report = Report(job.plan.plan(), max_pages=bounds.max_pages)
        self._silence = Silence(bounds.stall_s)
        self._phase = Phase.STARTING
        self._met = False
        self._placed = False
        self.waited_s = 0.0
        self._kill: KillReason | None = None
        self._breach: str | None = None
        self._ended: Ended | None = None
        self._abandoned = False
        self._draining = False  # it is gone: read all that is left, without turns
        self.output = Output(ends.output, bounds.max_stderr_bytes)
        self._silent_s = 0.0
        self._started = clock.monotonic()
        self.sampler = Sampler(bounds, Path(job.scratch), group=group, silence=self._silence, clock=clock)
        self._leave_by: float | None = None
        self._killed_by: float | None = None
        self._poll = select.poll()
        for fd in (ends.frames.fileno(), ends.output, handle.fileno(), switch.fileno()):
            self._poll.register(fd, select.POLLIN)
        self._reading = {ends.frames.fileno(), ends.output}

    @property
    def conversion(self) -> Conversion | None:
        """What the child made, where it accounted for all of it; to be believed only if its outcome says so."""
        return self._report.conversion

    @property
    def orphans(self) -> int:
        """How many descendants outlived the child and were ended."""
        return self._ended.orphans if self._ended is not None else 0

    def watch(self) -> classify.Life:
        """Return when the child is gone."""
        while self._phase is not Phase.GONE:
            ready = {fd for fd, _ in self._poll.poll(self._patience_ms())}
            if self._switch.fileno() in ready and self._switch.reason is not None:
                self._poll.unregister(self._switch.fileno())
                self._happen(lifecycle.KILL_EVENTS[self._switch.reason])
            if self._ends.output in ready:
                self._read_output()
            if self._ends.frames.fileno() in ready:
                self._read_frames()
            if self._handle.fileno() in ready:
                self._hear_news()
            self._look_at_the_clock()
        return self._life()

    def _happen(self, event: Event, frame: frames.Frame | None = None) -> None:
        """Let the table decide about `event`, and do what it says."""
        self._phase, action = lifecycle.step(self._phase, event)
        if action in {Action.RECORD, Action.RECORD_LAST} and frame is not None:
            self._record(frame)
        if event in lifecycle.SIGNS_OF_LIFE:
            self._silence.end(self._clock.monotonic())
        if action in {Action.RECORD_LAST, Action.AWAIT_EXIT}:
            self._leave_by = self._clock.monotonic() + self._bounds.linger_s
        elif action is Action.SEND_JOB:
            self._met = True
            self.waited_s = self._clock.monotonic() - self._bounds.asked
            self._send_job()
        elif action in lifecycle.KILLS:
            self._end_child(action, event)

    def _end_child(self, action: Action, event: Event) -> None:
        self._kill = lifecycle.KILL_REASONS.get(action)
        if action is Action.KILL_PROTOCOL and self._breach is None:
            self._breach = f"a {event} frame out of order"
        if action in lifecycle.ASK_WHERE:
            await_traceback(self._handle, self._ends)
        self._handle.kill()
        self._killed_by = self._clock.monotonic() + _KILL_S
        self._log.info("child.killed", reason=self._kill, pid=self._handle.pid)

    def _send_job(self) -> None:
        """Give it the document, once it has said hello and is in its group, whichever comes last."""
        if not (self._met and self._placed and self._phase is Phase.RUNNING):
            return
        self._log.debug("child.started", pid=self._handle.pid)
        with suppress(OSError):  # it hung up: the end of its frames says so
            self._ends.frames.send(wire.encode(self._job))

    def _read_frames(self) -> None:
        """Read what there is; the end of the frames is an event of its own."""
        while self._ends.frames.fileno() in self._reading:
            try:
                data = self._ends.frames.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            try:
                if data:
                    for frame in self._decoder.feed(data):
                        self._happen(lifecycle.FRAME_EVENTS[frames.kind_of(frame)], frame)
                else:
                    self._stop_reading(self._ends.frames.fileno())
                    self._decoder.finish()
            except ProtocolError as error:
                self._breach = self._breach or str(error)
                self._stop_reading(self._ends.frames.fileno())
                # Half a frame at the end may be a death in mid-sentence: how it ended decides.
                if data:
                    self._happen(Event.PROTOCOL_ERROR)
            if not data:
                self._happen(Event.EOF)
            if not self._draining:
                return  # the switch, the clock and the memory get their turn between two reads

    def _record(self, frame: frames.Frame) -> None:
        record = self._report.accept(frame)
        if record is not None:
            assert self._report.pages is not None, "no page is accepted before"
            self._on_page(record, self._report.pages)
        elif isinstance(frame, frames.LogLine):
            said = {"level_claimed": frame.level, "message": frame.event, "fields": frame.fields}
            self._log.info("child.log", **said)

    def _read_output(self) -> None:
        while self._ends.output in self._reading:
            match self.output.read():
                case 0:
                    self._stop_reading(self._ends.output)
                case None:
                    return
            if not self._draining:
                return

    def _stop_reading(self, fd: int) -> None:
        if fd in self._reading:
            self._reading.discard(fd)
            self._poll.unregister(fd)

    def _hear_news(self) -> None:
        match self._handle.news():
            case Ended() as ended:
                self._poll.unregister(self._handle.fileno())
                self._ended = ended
                self._conclude()
            case Abandoned():
                self._abandoned = True
                self._poll.unregister(self._handle.fileno())
                self._happen(Event.SUPERVISOR_GONE)
                self._handle.ended_unreaped(_KILL_S)
                self._conclude()
            case None if not self._placed and self._handle.pid is not None:
                self._placed = True
                self.group.place(self._handle.pid)
                self._send_job()

    def _conclude(self) -> None:
        """Read what it left behind, then believe its end."""
        self._draining = True
        self._read_frames()
        self._read_output()
        self._happen(Event.EXITED)

    def _look_at_the_clock(self) -> None:
        now = self._clock.monotonic()
        if self._phase in {Phase.STARTING, Phase.RUNNING, Phase.LEAVING}:
            if now >= self.sampler.due:
                self._sample(now)
            if self._phase is Phase.STARTING:
                if now >= self._bounds.start_deadline:
                    self._happen(Event.START_EXPIRED)
            elif now >= self._deadline():
                self._happen(Event.DEADLINE)
            elif self._phase is Phase.RUNNING and self._silence.is_stall(now):
                self._silent_s = self._silence.lasted_s(now)
                self._happen(Event.STALL)
            elif self._leave_by is not None and now >= self._leave_by:
                self._happen(Event.LINGER_EXPIRED)
        elif self._killed_by is not None and now >= self._killed_by and self._phase is Phase.KILLING:
            if self._abandoned:
                self._conclude()
            else:
                self._abandoned = True
                self._handle.give_up()
                self._killed_by = now + _KILL_S

    def lost_s(self) -> float:
        """How much of the time that has passed is not the document's."""
        return self.waited_s + self.sampler.frozen_s

    def _deadline(self) -> float:
        return self._bounds.deadlines.at(self._report.pages) + self.lost_s()

    def _sample(self, now: float) -> None:
        excess = self.sampler.look(self._handle.pid, now)
        if excess is not None:
            self._happen(excess)
        elif self._phase is Phase.RUNNING and self._silence.is_worth_a_warning(now):
            self._tell_silence(now)

    def _tell_silence(self, now: float) -> None:
        report, silence = self._report, self._silence
        figures = {"silent_s": round(silence.lasted_s(now), 1), "cpu_s": round(silence.cpu_s, 1)}
        where = {"stage": report.stage, "page": report.page, "pid": self._handle.pid}
        self._log.warning("child.silent", **where, **figures, stall_s=self._bounds.stall_s)

    def _patience_ms(self) -> float:
        """How long nothing needs to be done if nothing happens."""
        instants = [self._killed_by]
        if self._killed_by is None:
            starting, running = self._phase is Phase.STARTING, self._phase is Phase.RUNNING
            instants = [self._bounds.start_deadline if starting else self._deadline(), self.sampler.due]
            instants += [self._leave_by, self._silence.ends_at() if running else None]
        until = min(instant for instant in instants if instant is not None)
        return max(0.0, until - self._clock.monotonic()) * 1000 + 1

    def _life(self) -> classify.Life:
        return child_life.seen(
            self._job,
            self._report,
            self._ended,
            self._ends,
            kill=self._kill,
            supervisor_gone=self._abandoned,
            met=self._met,
            breach=self._breach,
            elapsed_s=self._clock.monotonic() - self._started,
            silent_s=self._silent_s,
            silence=self._silence,
            sampler=self.sampler,
            group=self.group,
            output=self.output,
            bounds=self._bounds,
        )
