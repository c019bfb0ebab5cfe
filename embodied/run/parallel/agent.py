"""Agent process: one agent object, with an actor and a learner thread around it."""

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core import base
from ...core.files import storage_errors
from ...processes import cpu
from ...processes.failure import Failure
from ...processes.signals import StopSignals
from ..shared.outcome import Outcome
from . import run_id
from .actor.actor_server import parallel_actor
from .learner.learner import parallel_learner
from .pickling import unpack
from .run_state import FAILURE, RunState
from .settings import ParallelSettings
from .supervision.health import Health
from .supervision.process import ENDED, RoleEvent
from .supervision.role_failure import RoleFailure
from .timeouts import OTHER_THREAD_ENDS

__all__ = ['AgentRun', 'AgentThread', 'parallel_agent']

ROLES = (parallel_actor, parallel_learner)
BROKEN = threading.BrokenBarrierError


def parallel_agent(
    make_agent: Callable[[], base.Agent] | bytes,
    args: Mapping[str, Any],
    health: Health | None = None,
) -> Outcome:
    """Acts and trains until the run ends; a stop signal ends it with a last save."""
    settings = ParallelSettings.read(args)
    with storage_errors(settings.logdir):
        if not settings.run_id:  # a job of its own, which owns the folder
            run_id.create(settings.logdir)
        return AgentRun(make_agent, args, health or Health())()


class AgentRun:
    """Runs actor and learner in threads, and raises the first error of the two."""

    def __init__(
        self,
        make_agent: Callable[[], base.Agent] | bytes,
        args: Mapping[str, Any],
        health: Health,
    ):
        self._make_agent = make_agent
        self._args = args
        self._health = health
        self._run_state = RunState(health)
        # Signal handlers put reasons into it, which rules out a lock of our own.
        self._events: queue.SimpleQueue[str | _End] = queue.SimpleQueue()

    def stop(self, reason: str) -> None:
        """Ends the run with a last save; from any thread or signal handler."""
        self._events.put(reason)

    def __call__(self) -> Outcome:
        # Until there is something to save, a signal may end the process at once.
        agent = unpack(self._make_agent)()
        self._health.compiling = getattr(agent, 'compiling', tuple)
        self._health.hardware = getattr(agent, 'hardware', '')
        with StopSignals(notify=self.stop):
            return self._run(agent)

    def _run(self, agent: base.Agent) -> Outcome:
        barrier = threading.Barrier(len(ROLES))
        self._run_state.travel_on(barrier)
        threads = [
            threading.Thread(
                target=self._run_role,
                args=(role, agent, barrier),
                name=role.__name__,
                daemon=True,
            )
            for role in ROLES
        ]
        for thread in threads:
            thread.start()
        errors = self._await_end(barrier)
        if errors:
            # A thread that finds the barrier broken follows from the other's error.
            raise next((e for e in errors if not isinstance(e, BROKEN)), errors[0])
        for thread in threads:
            thread.join()
        return self._run_state.outcome

    def _await_end(self, barrier: threading.Barrier) -> list[BaseException]:
        """Blocks until both threads have ended: their errors, the first one first."""
        errors: list[BaseException] = []
        ended = 0
        while ended < len(ROLES):
            try:
                event = self._events.get(timeout=OTHER_THREAD_ENDS if errors else None)
            except queue.Empty:
                break  # The error must not wait for a thread that hangs.
            if isinstance(event, str):
                self._run_state.stop(self._health.asked or event)
                continue
            ended += 1
            if event.error:
                errors.append(event.error)
                barrier.abort()  # The other thread may wait there.
                self._run_state.stop(FAILURE)
        return errors

    def _run_role(
        self,
        role: Callable[..., None],
        agent: base.Agent,
        barrier: threading.Barrier,
    ) -> None:
        try:
            role(agent, barrier, self._args)
        except BaseException as error:  # noqa: BLE001 (raised by the main thread)
            self._events.put(_End(error))
        else:
            self._events.put(_End(None))


class AgentThread:
    """The agent in a thread of its launcher, with the interface of a child process.

    notify: called with each RoleEvent.
    """

    def __init__(
        self,
        make_agent: Callable[[], base.Agent] | bytes,
        args: Mapping[str, Any],
        notify: Callable[[RoleEvent], Any],
    ):
        self.name = 'agent'
        self.node = ''
        self._health = Health()
        self._run = AgentRun(make_agent, args, self._health)
        self._notify = notify
        self._error: BaseException | None = None
        threads = [
            threading.Thread(target=target, name=f'agent{target.__name__}', daemon=True)
            for target in (self._work, self._heartbeat)
        ]
        self._thread = threads[0]
        for thread in threads:
            thread.start()

    @property
    def pid(self) -> int:
        return os.getpid()

    def cpu_seconds(self) -> float:
        return cpu.of_family(self.pid)

    def ask(self, gone: Sequence[str] = (), reason: str = '') -> None:
        """Asks for a clean end, without waiting for the roles `gone`."""
        self._health.ask_to_end(reason, gone)
        self._run.stop(reason or 'SIGTERM')

    def kill(self, cause: str = '') -> None:
        """Asks it to end: a thread cannot be killed, but it ends with the process."""
        self._run.stop('SIGTERM')

    def go_on(self) -> None:
        """Nothing to do: a thread cannot be stopped by a signal."""

    def show_stacks(self) -> None:
        """Nothing to do: the thread has no log of its own."""

    def collect(self) -> RoleFailure | None:
        """Waits for the end: how it failed, if it did."""
        self._thread.join()
        if self._error is None:
            return None
        failure = Failure.of(self._error)
        return RoleFailure('agent', self.pid, 1, Path(), failure, raised=self._error)

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 (the launcher raises it)
            self._error = error
        last = self._health.heartbeat()  # It says how the run ends.
        self._notify(RoleEvent(self, last))
        self._notify(RoleEvent(self, ENDED))

    def _heartbeat(self) -> None:
        while self._thread.is_alive():
            self._notify(RoleEvent(self, self._health.await_heartbeat()))


class _End(NamedTuple):
    """How actor or learner ended."""

    error: BaseException | None
