"""Role: its state over all the processes that it has in turn."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .failure import Failure
from .hang import HangDetector
from .health import COMPILING, Heartbeat
from .restarts import Restarts

__all__ = ['DONE', 'RUNNING', 'Role', 'RoleProcess']

STARTING, RUNNING, WAITING = 'starting', 'running', 'waiting'
RESTARTING, FAILED, DONE = 'restarting', 'failed', 'done'


class RoleProcess(Protocol):
    """A child process, or a thread that is treated like one."""

    name: str

    @property
    def pid(self) -> int:
        """0 as long as it waits for a machine."""

    @property
    def node(self) -> str:
        """Where it runs; '' for this machine."""

    @property
    def asked(self) -> bool:
        """Whether it was asked to end."""

    def cpu_seconds(self) -> float:
        """Processor time of it and of what it started."""

    def ask(self, gone: Sequence[str] = (), reason: str = '') -> None:
        """Asks it to end cleanly, without waiting for roles that are gone.

        reason: the signal that the launcher got, if it did.
        """

    def kill(self, cause: str = '') -> None:
        """Ends it at once."""

    def go_on(self) -> None:
        """After somebody has stopped it."""

    def show_stacks(self) -> None:
        """Makes it write to its log where its threads are."""

    def collect(self) -> Failure | BaseException | None:
        """Waits for its end; how it failed, if it did."""


class Role:
    """Knows what a role does now, and starts it again.

    writes: it has something to write to disk before it ends.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[int], RoleProcess],
        max_restarts: int,
        hang_timeout: float = 0.0,
        writes: bool = False,
    ):
        self.name = name
        self.writes = writes
        self.state = STARTING
        self.due: float | None = None  # when it is to be started again
        self.wake: float | None = None  # when it is to go on, after it was stopped
        self.heartbeat = Heartbeat()
        self.error = ''  # of its last failure
        self.suspected: Failure | None = None  # if the run goes on
        self.dismissed = False
        self._role: RoleProcess | None = None
        self._start = start
        self._restarts = Restarts(max_restarts)
        self._watch = HangDetector(hang_timeout)
        self._asked_where = False
        self._lives = 0
        self._began = 0.0

    @property
    def alive(self) -> bool:
        """Whether there is a process, or one that nobody has collected yet."""
        return self._role is not None

    @property
    def role(self) -> RoleProcess:
        """The process of a member that is alive."""
        assert self._role is not None, self.name
        return self._role

    def owns(self, role: RoleProcess) -> bool:
        return self._role is role

    @property
    def restarts(self) -> int:
        return self._restarts.total

    @property
    def unfinished(self) -> bool:
        return self.state not in (DONE, FAILED)

    @property
    def seconds(self) -> float:
        """Since it was started the last time."""
        return round(time.monotonic() - self._began, 2)

    @property
    def loses_nothing(self) -> bool:
        """Whether it can be killed without a loss, but not be interrupted."""
        return self.compiles and not self.heartbeat.unsaved

    @property
    def compiles(self) -> bool:
        """Whether it cannot be interrupted, and nobody has given it up yet."""
        compiling = self.heartbeat.activity == COMPILING
        return self.alive and not self.dismissed and compiling

    def start(self) -> None:
        """The first time, or again."""
        self._role = self._start(self._lives)
        self._lives += 1
        self.due, self.wake, self.suspected = None, None, None
        self._began = time.monotonic()
        self.state, self.heartbeat = STARTING, Heartbeat()
        self._watch.reset()

    def hear(self, heartbeat: Heartbeat) -> bool:
        """Takes a heartbeat; whether it is the first with progress of this process."""
        first = not self.heartbeat.progress and bool(heartbeat.progress)
        if heartbeat.progress:
            moves = heartbeat.busy or heartbeat.progress != self.heartbeat.progress
            self.state = RUNNING if moves else WAITING
        self.heartbeat = heartbeat
        self._watch.hear(heartbeat)
        return first

    def stop(self, patience: float) -> None:
        """Somebody has stopped the process. It goes on when nobody else cares."""
        self.wake = time.monotonic() + patience

    def go_on(self) -> None:
        self.wake = None
        self.role.go_on()

    def end_if_hung(self) -> None:
        """The first time, it is given the time to tell where it hangs."""
        exists = self.alive and self.role.pid  # It may still wait for a machine.
        if not (exists and self._watch.hung(self.role.cpu_seconds)):
            self._asked_where = False
        elif not self._asked_where:
            self._asked_where = True
            self.role.show_stacks()
        else:
            self.role.kill('hung: no progress and no processor time')

    def forgive(self) -> None:
        """We could not watch it for a while."""
        self._watch.reset()

    def retry(self, failure: Failure) -> float:
        """Plans the next start; raises the failure if there is no use in it."""
        self._role, self.wake, self.suspected = None, None, None
        self.state, self.error = FAILED, failure.summary
        progress, self.heartbeat = bool(self.heartbeat.progress), Heartbeat()
        delay = self._restarts.delay(failure, progress, self.seconds)
        self.state, self.due = RESTARTING, time.monotonic() + delay
        return delay

    def suspect(self, log: Path, delay: float) -> None:
        """It has ended cleanly and unasked: either the run is over, which we will hear
        soon, or somebody has stopped it."""
        cause = 'ended although the run goes on'
        self.suspected = Failure(self.name, self.role.pid, 0, log, cause=cause)
        self._role, self.wake, self.state = None, None, RESTARTING
        self.due = time.monotonic() + delay

    def dismiss(self) -> None:
        """Ends it at once; that is no failure."""
        self.dismissed = True
        self.role.kill()

    def finish(self, error: str = '') -> None:
        """It has ended for good."""
        self._role, self.due, self.wake = None, None, None
        self.state = FAILED if error else DONE
        self.error = error or self.error

    def describe(self) -> dict[str, Any]:
        """For the status of the run."""
        return {
            'state': self.state,
            'activity': 'stopped' if self.wake else self.heartbeat.activity,
            'pid': self.role.pid if self.alive else None,
            'node': self.role.node if self.alive else '',
            'restarts': self.restarts,
            'progress': self.heartbeat.progress,
            'seconds': self.seconds,
            'error': self.error,
        }
