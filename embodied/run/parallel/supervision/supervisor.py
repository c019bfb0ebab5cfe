"""Supervisor: starts the roles of a run and restarts them until the last one ends."""

import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from ....core.errors import DreamerError, RoleError
from ....processes.guard import Guard
from ....processes.signals import StopSignals
from ...shared.outcome import DURATION, FAILED, KILLED, STEPS, Outcome
from ..settings import ParallelSettings
from .failure import Failure, Report
from .health import Heartbeat
from .process import ENDED, PLACED, STOPPED, ChildProcess, RoleEvent, RoleSpec
from .role import DONE, RUNNING, Role, RoleProcess
from .role_logs import Logs
from .run_records import NoRecords, Records
from .status import HEARTBEAT

__all__ = ['Supervisor']

LAST_UPDATE = 20.0  # seconds for the lead to save after another role has failed
FLUSH_SECONDS = 5.0  # for the others to write what they have after that
MAYBE_OVER = 1.0  # seconds to hear that the run is over from a role that decides it
PATIENCE = 5.0  # seconds for whoever has stopped a role to let it go on
SUSPENDED = 5.0  # seconds that we are late only if we were stopped ourselves
MARK_BYTES = 8


class Supervisor:
    """Starts roles, starts those again that fail, and leaves nothing behind.

    The first stop signal asks `lead`, who tells the others, to end; without a lead it
    asks everybody. From then on, or when the lead has ended, all have `run.grace`
    seconds and nobody is started again. A failure that a restart cannot mend ends all.

    spawn: makes the processes, on this machine or another; called like ChildProcess.
    """

    def __init__(
        self,
        settings: ParallelSettings,
        records: Records | None = None,
        spawn: Callable[..., RoleProcess] = ChildProcess,
    ):
        self._spawn = spawn
        self._grace = settings.grace
        self._limits = settings.max_restarts, settings.hang_timeout
        self._logs = Logs(settings.logdir / 'logs')
        self._records = records or NoRecords()
        self._events: queue.SimpleQueue[str | RoleEvent] = queue.SimpleQueue()
        self._signals = StopSignals(notify=self._events.put)
        self._mark = os.urandom(MARK_BYTES).hex()  # of all our descendants
        self._guard = Guard(self._mark)
        self._members: list[Role] = []
        self._lead: Role | None = None
        self._stopping = False
        self._reason = ''  # that we were given to stop
        self._deadline: float | None = None  # for all of them to have ended
        self._late = False  # whether somebody may not make it, and was asked why
        self._tick = self._awake = time.monotonic()  # next status; last look around
        self._error: BaseException | None = None  # that came up while we were stopping

    def __enter__(self) -> 'Supervisor':
        self._guard.__enter__()
        self._signals.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        outcome = Outcome.after(error) if error else self.outcome
        if outcome.state == KILLED:
            self._write_status(outcome)  # before anything can keep us from it
        try:
            if isinstance(error, Exception):
                self._flush()
        finally:
            for member in self._alive:
                member.role.kill()
            for member in self._alive:
                member.role.collect()
                member.finish()
            self._guard.__exit__(kind, error, trace)
            failed = outcome.state == FAILED
            self._write_status(outcome, str(error) if failed else '')
            self._signals.__exit__(kind, error, trace)

    def start(
        self,
        name: str,
        role: Callable[..., Any],
        *args: Any,
        lead: bool = False,
        writes: bool = False,
        shown: bool = False,
    ) -> None:
        """Starts `role(*args)` in a process of its own, which logs to `logs/name.log`.

        writes: it has something to write to disk before it ends.
        shown: what it prints is for the user, rather than for the log.
        """
        order = RoleSpec.of(role, args)

        def start(life: int) -> RoleProcess:
            mark = f'{self._mark}.{name}.{life}.'
            log = self._logs.path(name)
            return self._spawn(name, order, log, mark, self._events.put, shown)

        self._join(Role(name, start, *self._limits, writes), lead)

    def add(self, role: RoleProcess, lead: bool = False) -> None:
        """Adds a role that cannot be started again, and that calls `notify`."""
        self._join(Role(role.name, lambda life: role, max_restarts=0), lead)

    def notify(self, notice: RoleEvent) -> None:
        self._events.put(notice)

    def end(self, reason: str) -> None:
        """As if a signal of that name had come; from any thread."""
        self._events.put(reason)

    @property
    def outcome(self) -> Outcome:
        """How the run ends, unless an error comes up."""
        told = self._lead.heartbeat.reason if self._lead else ''
        return Outcome.of(told if told in (STEPS, DURATION) else self._reason or told)

    def wait(self) -> None:
        """Blocks until all roles have ended; raises a failure that ends the run."""
        while any(member.unfinished for member in self._members):
            event = self._next_event()
            if isinstance(event, str):
                self._stop(event)
            elif event is not None:
                self._handle(event)
            self._do_what_is_due()
        if self._error:
            raise self._error

    # Time

    def _next_event(self) -> str | RoleEvent | None:
        """Blocks until something happens or is due."""
        now = time.monotonic()
        dues = [self._tick, self._deadline]
        dues += [due for member in self._members for due in (member.due, member.wake)]
        if self._deadline is not None and now < self._deadline - self._reserve:
            dues.append(self._deadline - self._reserve)
        soonest = min(due for due in dues if due is not None)
        try:
            return self._events.get(timeout=max(0.0, soonest - now))
        except queue.Empty:
            return None

    def _keep_time(self) -> None:
        """If we were suspended, it was nobody's fault that time has passed."""
        gap, self._awake = time.monotonic() - self._awake, time.monotonic()
        if gap > HEARTBEAT + SUSPENDED:
            self._records.event('suspended', seconds=round(gap, 1))
            for member in self._members:
                member.forgive()
            if self._deadline is not None:
                self._deadline += gap

    def _do_what_is_due(self) -> None:
        self._keep_time()
        now = self._awake
        if self._deadline is not None:
            self._end_in_time(self._deadline - now)
        for member in self._members:
            if member.wake is not None and now >= member.wake:
                member.go_on()
                self._note(member, 'continued', pid=member.role.pid)
            if member.due is not None and now >= member.due:
                self._start_again(member)
        if now >= self._tick:
            self._tick = now + HEARTBEAT
            for member in self._members:
                member.end_if_hung()
            self._write_status()

    # Starting

    def _join(self, member: Role, lead: bool) -> None:
        self._members.append(member)
        if lead:
            self._lead = member
        self._launch(member)

    def _launch(self, member: Role) -> None:
        try:
            member.start()
        except OSError as error:  # no memory, processes or descriptors left
            report = Report.of(error)
            self._retry(member, Failure(member.name, 0, 1, self._log(member), report))
            return
        self._note(member, pid=member.role.pid)

    def _start_again(self, member: Role) -> None:
        suspected, member.due = member.suspected, None
        # At the end, the lead still has to save, and needs those who write.
        needed = not suspected and (member.writes or member is self._lead)
        if self._stopping or (self._over and not needed):
            member.finish()
        elif suspected:
            self._retry(member, suspected)
        else:
            self._launch(member)
            if member is self._lead:
                # It had told them that the run is over, which is not so.
                for other in self._members:
                    if other.state == DONE:
                        self._launch(other)

    @property
    def _over(self) -> bool:
        """Whether the roles that end do so because the run does."""
        lead = self._lead
        return self._stopping or (lead is not None and lead.heartbeat.ending)

    # Events

    def _handle(self, notice: RoleEvent) -> None:
        member = next((m for m in self._members if m.owns(notice.role)), None)
        if member is None:
            return  # of a process that was collected since
        if isinstance(notice.what, Heartbeat):
            if member.hear(notice.what):
                self._note(member, pid=member.role.pid, seconds=member.seconds)
            if member is self._lead and self._stopping and member.loses_nothing:
                # Nobody can interrupt a compiler, and there is nothing to save.
                member.dismiss()
        elif notice.what == PLACED:
            member.forgive()  # that it had to wait
            self._note(member, PLACED, pid=member.role.pid, node=member.role.node)
        elif notice.what == STOPPED:
            member.stop(PATIENCE)
            self._note(member, 'stopped', pid=member.role.pid)
        else:
            self._part_with(member)

    def _stop(self, reason: str) -> None:
        """Somebody interrupts."""
        self._reason = self._reason or reason
        self._records.event('stopping', reason=reason)
        self._begin_end()
        lead = self._lead
        if lead is None or not lead.alive:
            self._ask_all()
        else:
            lead.role.ask(self._gone, reason)
            self._handle(RoleEvent(lead.role, lead.heartbeat))

    def _begin_end(self) -> None:
        self._stopping = True
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace
        for member in self._members:
            if member.due is not None:
                member.finish()

    def _end_in_time(self, left: float) -> None:
        """Lets go of those who cannot end before the grace does, in `left` seconds."""
        if self._lead and self._lead.compiles and left <= self._reserve:
            print(
                'The agent was compiling and could not be interrupted. The run goes '
                'on from its last save.'
            )
            self._lead.dismiss()
        elif left <= 0:
            names = ', '.join(member.name for member in self._alive)
            raise RoleError(
                f'{names} did not end within run.grace={self._grace} s and had to be '
                f'killed. Where they were is at the end of their logs in '
                f'{self._logs.folder}.'
            )
        elif left <= self._reserve and not self._late:
            self._late = True
            for member in self._alive:
                if member.heartbeat.progress:  # before, it would not understand
                    member.role.show_stacks()

    @property
    def _reserve(self) -> float:
        """Seconds of the grace in which the others write, once the lead has ended."""
        return min(FLUSH_SECONDS, self._grace / 2)

    def _part_with(self, member: Role) -> None:
        failure = member.role.collect()
        self._hear_the_last_of(member)
        if isinstance(failure, Failure):
            self._lose(member, failure)
        elif failure is not None:
            member.finish(str(failure))
            raise failure
        elif self._over or member.role.asked or self._lead in (member, None):
            member.finish()
        else:
            member.suspect(self._log(member), MAYBE_OVER)
        if member is self._lead and not member.unfinished:
            # It has told the others, unless it was stopped before it could.
            self._begin_end()
            self._ask_all()

    def _hear_the_last_of(self, member: Role) -> None:
        """Takes the beats that the end of the role has overtaken."""
        waiting = [self._events.get_nowait() for _ in range(self._events.qsize())]
        for event in waiting:
            match event:
                case RoleEvent(role, Heartbeat() as heartbeat) if member.owns(role):
                    member.hear(heartbeat)
                case _:
                    self._events.put(event)

    def _lose(self, member: Role, failure: Failure) -> None:
        if member.dismissed:
            member.finish()
        elif self._stopping:
            # The others still save what they have.
            member.finish(failure.summary)
            self._note(member, reason=failure.summary)
            self._error = self._error or failure.error()
        else:
            self._retry(member, failure)

    def _retry(self, member: Role, failure: Failure) -> None:
        try:
            delay = member.retry(failure)
        except DreamerError:
            self._note(member, reason=failure.summary)
            raise
        self._note(member, reason=failure.summary, delay=delay)

    # Ending

    @property
    def _alive(self) -> list[Role]:
        return [member for member in self._members if member.alive]

    @property
    def _gone(self) -> list[str]:
        """Roles that will not come back, now that nobody is started again."""
        return [member.name for member in self._members if not member.alive]

    def _ask_all(self) -> None:
        for member in self._alive:
            member.role.ask()

    def _flush(self) -> None:
        """After a failure, lets the others write what they have."""
        if self._lead and self._lead.alive:
            self._lead.role.ask(self._gone)
            self._await_end([self._lead], LAST_UPDATE)
        for member in self._alive:
            if not member.writes:
                member.role.kill()
        writers = [member for member in self._alive if member.writes]
        for member in writers:
            member.role.ask()
        self._await_end(writers, FLUSH_SECONDS)

    def _await_end(self, members: list[Role], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while any(member.alive for member in members):
            try:
                event = self._events.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return
            for member in self._alive:
                if event == RoleEvent(member.role, ENDED):
                    member.role.collect()  # Errors that follow from the first one.
                    member.finish()

    # Records

    def _log(self, member: Role) -> Path:
        return self._logs.path(member.name)

    def _note(self, member: Role, event: str = 'role', **details: Any) -> None:
        self._records.event(
            event,
            role=member.name,
            state=member.state,
            restarts=member.restarts,
            **details,
        )
        self._write_status()

    def _write_status(self, outcome: Outcome | None = None, error: str = '') -> None:
        state, reason = outcome or (RUNNING, self._reason)
        self._records.status(
            state=state,
            reason='' if error else reason,
            activity='stopping' if self._over and outcome is None else '',
            roles={member.name: member.describe() for member in self._members},
            lineage=self._mark,
            error=error,
        )
