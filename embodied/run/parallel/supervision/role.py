"""Role: its state, and what is known about it, over all its processes."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .hang import HangDetector
from .health import COMPILING, Heartbeat
from .role_failure import RoleFailure
from .states.restarts import Restarts
from .states.transitions import Event, State

__all__ = ['Role', 'RoleProcess']

# What readers of the status see of states that only the supervisor tells apart.
SHOWN = {
    State.SUSPENDED: State.RUNNING,
    State.DISMISSED: State.RUNNING,
    State.LEFT: State.RESTARTING,
}
LEFT = 'ended although the run goes on'


class RoleProcess(Protocol):
    """A child process, or a thread that is treated like one."""

    name: str

    @property
    def pid(self) -> int:
        """0 as long as it waits for a machine."""

    @property
    def node(self) -> str:
        """Where it runs; '' for this machine."""

    def cpu_seconds(self) -> float:
        """CPU time of it and of the programs that it has started."""

    def ask(self, gone: Sequence[str] = (), reason: str = '') -> None:
        """Asks it to end cleanly, without waiting for roles that are gone.

        reason: the signal that the launcher got, if it did.
        """

    def kill(self, cause: str = '') -> None:
        """Ends it at once."""

    def go_on(self) -> None:
        """Continues it after a stop signal."""

    def show_stacks(self) -> None:
        """Makes it write the stacks of its threads to its log."""

    def collect(self) -> RoleFailure | None:
        """Waits for its end; how it failed, if it did."""


class Role:
    """One role of a run, which has several processes if it fails.

    start: starts the process of this number, from 0.
    writes: the role has something to write to disk before it ends.
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
        self.state = State.STARTING
        self.heartbeat = Heartbeat()
        self.error = ''  # one line about the last failure
        self.failure: RoleFailure | None = None  # of its last process
        self._process: RoleProcess | None = None
        self._start = start
        self._processes = 0  # that were started
        self._last_pid = 0
        self._began = 0.0
        self._restarts = Restarts(max_restarts)
        self._detector = HangDetector(hang_timeout)
        self._hung = 0  # times in a row that it was found hung

    @property
    def alive(self) -> bool:
        """Whether it has a process that was not collected yet."""
        return self._process is not None

    @property
    def process(self) -> RoleProcess:
        """The process of a role that is alive."""
        assert self._process is not None, self.name
        return self._process

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def restarts(self) -> int:
        return self._restarts.total

    @property
    def seconds(self) -> float:
        """Since its last process was started."""
        return round(time.monotonic() - self._began, 2)

    @property
    def shown_state(self) -> str:
        state = SHOWN.get(self.state, self.state)
        return str(state.name).lower()

    def owns(self, process: RoleProcess) -> bool:
        return self._process is process

    def start(self) -> None:
        """Starts the first or the next process."""
        self._process = self._start(self._processes)
        self._processes += 1
        self._began = time.monotonic()
        self.heartbeat = Heartbeat()
        self._detector.reset()

    def hear(self, heartbeat: Heartbeat) -> Event | None:
        """Takes a heartbeat; what it says about the progress."""
        last, self.heartbeat = self.heartbeat, heartbeat
        self._detector.hear(heartbeat)
        if not heartbeat.progress:
            return None
        if not last.progress:
            return Event.BEGAN
        moves = heartbeat.busy or heartbeat.progress != last.progress
        return Event.MOVED if moves else Event.WAITED

    def compiling(self) -> Event | None:
        """Whether it compiles, by its last heartbeat."""
        if not self.alive or self.heartbeat.activity != COMPILING:
            return None
        return Event.COMPILES if self.heartbeat.unsaved else Event.COMPILES_SAVED

    def look(self) -> Event | None:
        """Whether it is hung, for the first time or since the last look."""
        found = self.pid and self._detector.hung(self.process.cpu_seconds)
        self._hung = self._hung + 1 if found else 0
        if not self._hung:
            return None
        return Event.HUNG if self._hung == 1 else Event.STILL_HUNG

    def forgive(self) -> None:
        """Restarts the watch for hangs: nothing was heard for a reason."""
        self._detector.reset()

    def drop(self) -> None:
        """Forgets a process that was collected."""
        self._last_pid, self._process = self.process.pid, None

    def finish(self) -> None:
        """Waits for the end of a process that was asked to end or killed."""
        self.process.collect()
        self.drop()
        self.state = State.DONE

    def leave(self, log: Path) -> None:
        """Keeps that it has ended unasked, which is a failure if the run goes on."""
        self.failure = RoleFailure(self.name, self._last_pid, 0, log, cause=LEFT)

    def plan_restart(self) -> float:
        """Seconds until the next process, after a failure. Raises the error of one
        that a restart does not help against."""
        assert self.failure
        self.error = self.failure.summary
        progress, self.heartbeat = bool(self.heartbeat.progress), Heartbeat()
        return self._restarts.delay(self.failure, progress, self.seconds)

    def describe(self) -> dict[str, Any]:
        """For the status of the run."""
        suspended = self.state is State.SUSPENDED
        return {
            'state': self.shown_state,
            'activity': 'stopped' if suspended else self.heartbeat.activity,
            'doing': 'stopped' if suspended else self.heartbeat.doing,
            'hardware': self.heartbeat.hardware,
            'pid': self.pid,
            'node': self._process.node if self._process else '',
            'restarts': self.restarts,
            'progress': self.heartbeat.progress,
            'seconds': self.seconds,
            'error': self.error,
        }
