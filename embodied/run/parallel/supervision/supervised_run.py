"""Supervised run: a lifecycle whose actions start, ask and kill processes."""

from typing import Any

from ....core.errors import RoleError
from ....processes.failure import Failure
from ...shared.outcome import DURATION, STEPS, Outcome
from ..timeouts import CONTINUES, SUSPENDED
from . import flush
from .role import Role
from .role_failure import RoleFailure
from .role_logs import Logs
from .run_records import Records
from .states.lifecycle import Lifecycle
from .states.transitions import Action, Event, Phase, RunAction, RunEvent
from .status import HEARTBEAT

__all__ = ['SupervisedRun']

RUNNING = 'running'  # state of a run in its status
OVER_SECONDS = 1.0  # for the lead to say that the run is over, after a role has ended


class SupervisedRun(Lifecycle[Role]):
    """Performs the actions on the processes of roles, and records what happens.

    run_tag: what the environment of all processes of the run carries.
    """

    def __init__(self, grace: float, logs: Logs, records: Records, run_tag: str):
        super().__init__(longest_gap=HEARTBEAT + SUSPENDED)
        self.reason = ''  # for which the run was asked to stop
        self.error: BaseException | None = None  # for the end of the run
        self._grace = grace
        self._logs = logs
        self._records = records
        self._run_tag = run_tag
        self.set_deadline(RunEvent.TICK, 0.0)

    @property
    def outcome(self) -> Outcome:
        """How the run ends, unless an error comes up."""
        told = self.lead.heartbeat.reason if self.lead else ''
        return Outcome.of(told if told in (STEPS, DURATION) else self.reason or told)

    @property
    def alive(self) -> list[Role]:
        return [role for role in self.roles if role.alive]

    def launch(self, role: Role) -> None:
        """Starts a process of the role."""
        try:
            role.start()
        except OSError as error:  # no memory, processes or descriptors left
            log = self._logs.path(role.name)
            role.failure = RoleFailure(role.name, 0, 1, log, Failure.of(error))
            self.advance(role, Event.FAILED)
        else:
            self._note(role, pid=role.pid)

    def dismiss_compiling(self) -> None:
        """Raises that the lead compiles, if it does."""
        if self.lead and (event := self.lead.compiling()):
            self.advance(self.lead, event)

    def forgive_suspension(self) -> None:
        """Starts the watch for hangs again if this process was suspended."""
        if gap := self.catch_up():
            self._records.event('suspended', seconds=round(gap, 1))
            for role in self.roles:
                role.forgive()

    # Actions on a role

    def perform(self, action: Action, role: Role) -> None:
        match action:
            case Action.NOTE_PROGRESS:
                self._note(role, pid=role.pid, seconds=role.seconds)
            case Action.NOTE_PLACE:
                role.forgive()  # that it had to wait
                self._note(role, 'placed', pid=role.pid, node=role.process.node)
            case Action.AWAIT_CONTINUE:
                self.set_deadline(role, CONTINUES)
                self._note(role, 'stopped', pid=role.pid)
            case Action.CONTINUE:
                role.process.go_on()
                self._note(role, 'continued', pid=role.pid)
            case Action.SHOW_STACKS:
                role.process.show_stacks()
            case Action.KILL:
                role.process.kill()
            case Action.KILL_HUNG:
                role.process.kill('hung: no progress and no CPU time')
            case Action.SAY_DISMISSED:
                print(
                    'The agent was compiling and could not be interrupted. The run '
                    'goes on from its last save.'
                )
            case _:
                self._perform_between_processes(action, role)

    def _perform_between_processes(self, action: Action, role: Role) -> None:
        match action:
            case Action.AWAIT_OVER:
                role.leave(self._logs.path(role.name))
                self.set_deadline(role, OVER_SECONDS)
            case Action.PLAN_RESTART:
                self._plan_restart(role)
            case Action.LAUNCH:
                self.launch(role)
            case Action.RECALL_OTHERS:
                for other in self.roles:
                    self.advance(other, Event.RECALLED)
            case Action.KEEP_ERROR:
                assert role.failure
                role.error = role.failure.summary
                self._note(role, reason=role.error)
                self.error = self.error or role.failure.error()
            case Action.RAISE_ERROR:
                assert self.error
                self._note(role, reason=role.error)
                raise self.error
            case _:
                raise AssertionError(action)

    def _plan_restart(self, role: Role) -> None:
        try:
            delay = role.plan_restart()
        except BaseException as error:  # noqa: BLE001 (RAISE_ERROR raises it)
            self.error = error
            self.advance(role, Event.HOPELESS)
        else:
            self.set_deadline(role, delay)
            self._note(role, reason=role.error, delay=delay)

    # Actions on the run

    def perform_on_run(self, action: RunAction) -> None:
        match action:
            case RunAction.NOTE_STOP:
                self._records.event('stopping', reason=self.reason)
            case RunAction.START_GRACE:
                early = self._grace - flush.reserve(self._grace)
                self.set_deadline(RunEvent.GRACE_SHORT, early)
                self.set_deadline(RunEvent.GRACE_OVER, self._grace)
            case RunAction.CANCEL_RESTARTS:
                for role in self.roles:
                    self.advance(role, Event.CANCELED)
            case RunAction.ASK_LEAD if self.lead and self.lead.alive:
                gone = [role.name for role in self.roles if not role.alive]
                self.lead.process.ask(gone, self.reason)
            case RunAction.ASK_LEAD | RunAction.ASK_ALL:
                for role in self.alive:
                    role.process.ask()
            case RunAction.DISMISS_COMPILING:
                self.dismiss_compiling()
            case RunAction.SHOW_STACKS:
                for role in self.alive:
                    if role.heartbeat.progress:  # before, it would not understand
                        role.process.show_stacks()
            case RunAction.RAISE_LATE:
                raise self._late_error()
            case RunAction.LOOK_AROUND:
                self._look_around()

    def _late_error(self) -> RoleError:
        names = ', '.join(role.name for role in self.alive)
        return RoleError(
            f'{names} did not end within run.grace={self._grace} s and had to be '
            f'killed. Where they were is at the end of their logs in '
            f'{self._logs.folder}.'
        )

    def _look_around(self) -> None:
        self.set_deadline(RunEvent.TICK, HEARTBEAT)
        for role in self.roles:
            if event := role.look():
                self.advance(role, event)
        self.write_status()

    # Records

    def _note(self, role: Role, event: str = 'role', **details: Any) -> None:
        state, restarts = role.shown_state, role.restarts
        self._records.event(
            event, role=role.name, state=state, restarts=restarts, **details
        )
        self.write_status()

    def write_status(self, outcome: Outcome | None = None, error: str = '') -> None:
        """outcome: how the run has ended; without one it goes on."""
        state, reason = outcome or (RUNNING, self.reason)
        stopping = outcome is None and self.phase is not Phase.ACTIVE
        self._records.status(
            state=state,
            reason='' if error else reason,
            activity='stopping' if stopping else '',
            roles={role.name: role.describe() for role in self.roles},
            lineage=self._run_tag,
            error=error,
        )
