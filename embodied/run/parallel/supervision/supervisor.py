"""Supervisor: starts the roles of a run and restarts them until the last one ends.

What it does about each event is in the tables of transitions.py.
"""

import os
import queue
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ....processes.guard import Guard
from ....processes.signals import StopSignals
from ...shared.outcome import FAILED, KILLED, Outcome
from ..settings import ParallelSettings
from .flush import end_roles, flush
from .health import Heartbeat
from .process import ENDED, ChildProcess, RoleEvent, RoleSpec
from .role import Role, RoleProcess
from .role_logs import Logs
from .run_records import NoRecords, Records
from .states.transitions import Event, RunEvent
from .supervised_run import SupervisedRun

__all__ = ['Supervisor']

RUN_TAG_BYTES = 8


class Supervisor:
    """Starts roles, starts those again that fail, and leaves no process behind.

    The first stop signal asks the lead, which tells the others, to end; without a lead
    it asks all roles. From then on, or when the lead has ended, all have `run.grace`
    seconds and none is started again. A failure that a restart does not help against
    ends all.

    spawn: makes the processes, on this machine or another; called like ChildProcess.
    """

    def __init__(
        self,
        settings: ParallelSettings,
        records: Records | None = None,
        spawn: Callable[..., RoleProcess] = ChildProcess,
    ):
        records = records or NoRecords()
        self._spawn = spawn
        self._incomplete = records.incomplete
        self._limits = settings.max_restarts, settings.hang_timeout
        self._logs = Logs(settings.logdir / 'logs')
        self._run_tag = os.urandom(RUN_TAG_BYTES).hex()  # of all our descendants
        self._run = SupervisedRun(settings.grace, self._logs, records, self._run_tag)
        self._events: queue.SimpleQueue[str | RoleEvent] = queue.SimpleQueue()
        self._signals = StopSignals(notify=self._events.put)
        self._guard = Guard(self._run_tag)

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
            self._run.write_status(outcome)  # before anything can keep us from it
        try:
            if isinstance(error, Exception):
                flush(self._run.roles, self._run.lead, self._events)
        finally:
            end_roles(self._run.roles)
            self._guard.__exit__(kind, error, trace)
            failed = outcome.state == FAILED
            self._run.write_status(outcome, str(error) if failed else '')
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
        """Starts a role in a process of its own, which logs to `logs/name.log`.

        role: called with `args` and the keyword `health`, see child_main.

        lead: it decides when the run is over and asks the others to end.
        writes: it has something to write to disk before it ends.
        shown: what it prints is for the user, rather than for the log.
        """
        spec = RoleSpec.of(role, args)

        def start(number: int) -> RoleProcess:
            tag = f'{self._run_tag}.{name}.{number}.'
            log = self._logs.path(name)
            notify, incomplete = self._events.put, self._incomplete
            return self._spawn(name, spec, log, tag, notify, shown, incomplete)

        self._join(Role(name, start, *self._limits, writes), lead)

    def add(self, process: RoleProcess, lead: bool = False) -> None:
        """Adds a role that cannot be started again, and that calls `notify`."""
        self._join(Role(process.name, lambda number: process, max_restarts=0), lead)

    def notify(self, event: RoleEvent) -> None:
        self._events.put(event)

    def end(self, reason: str) -> None:
        """Stops the run as a signal does, for another reason; from any thread."""
        self._events.put(reason)

    @property
    def outcome(self) -> Outcome:
        """How the run ends, unless an error comes up."""
        return self._run.outcome

    def wait(self) -> None:
        """Blocks until all roles have ended; raises a failure that ends the run."""
        while not self._run.over:
            event = self._await_event()
            if isinstance(event, str):
                self._run.reason = self._run.reason or event
                self._run.advance_run(RunEvent.STOP)
            elif event is not None:
                self._take(event)
            self._run.forgive_suspension()
            self._run.advance_due()
        if self._run.error:
            raise self._run.error

    def _join(self, role: Role, lead: bool) -> None:
        self._run.add(role, lead)
        self._run.launch(role)

    def _await_event(self) -> str | RoleEvent | None:
        """Blocks until something happens or is due."""
        try:
            return self._events.get(timeout=self._run.remaining())
        except queue.Empty:
            return None

    def _take(self, event: RoleEvent) -> None:
        role = next((x for x in self._run.roles if x.owns(event.process)), None)
        if role is None:
            return  # of a process that was collected since
        if event.what == ENDED:
            self._collect(role)
        elif isinstance(event.what, str):
            self._run.advance(role, Event(event.what))
        else:
            self._hear(role, event.what)
            if role is self._run.lead:
                self._run.dismiss_compiling()

    def _hear(self, role: Role, heartbeat: Heartbeat) -> None:
        if event := role.hear(heartbeat):
            self._run.advance(role, event)
        if role is self._run.lead and heartbeat.ending:
            self._run.advance_run(RunEvent.OVER)

    def _collect(self, role: Role) -> None:
        """Takes the end of a process."""
        failure = role.process.collect()
        self._hear_overtaken(role)
        role.drop()
        role.failure = failure
        self._run.advance(role, Event.FAILED if failure else Event.ENDED)

    def _hear_overtaken(self, role: Role) -> None:
        """Takes the heartbeats that the end of the role has overtaken."""
        waiting = [self._events.get_nowait() for _ in range(self._events.qsize())]
        for event in waiting:
            match event:
                case RoleEvent(process, Heartbeat() as heartbeat) if role.owns(process):
                    self._hear(role, heartbeat)
                case _:
                    self._events.put(event)
