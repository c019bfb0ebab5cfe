"""Agent process: one agent object, with an actor and a learner thread around it."""

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core import base
from ...core.files import storage_errors
from ...processes import cpu
from ...processes.signals import StopSignals
from ..shared.outcome import Outcome
from . import run_id
from .actor.actor import parallel_actor
from .learner.learner import parallel_learner
from .pickling import unpack
from .run_state import FAILURE, RunState
from .settings import ParallelSettings
from .supervision.health import health
from .supervision.process import ENDED, RoleEvent

__all__ = ['AgentRun', 'AgentThread', 'parallel_agent']

SIDES = (parallel_actor, parallel_learner)
BROKEN = threading.BrokenBarrierError
FAREWELL = 10.0  # seconds for one side to end after the other has failed


def parallel_agent(
    make_agent: Callable[[], base.Agent] | bytes, args: Mapping[str, Any]
) -> Outcome:
    """Acts and trains until the run ends; a stop signal ends it with a last save."""
    settings = ParallelSettings.read(args)
    with storage_errors(settings.logdir):
        if not settings.run_id:  # a job of its own, which owns the folder
            run_id.create(settings.logdir)
        return AgentRun(make_agent, args)()


class AgentRun:
    """Starts both sides, passes a wish to stop on to them, raises the first error."""

    def __init__(
        self, make_agent: Callable[[], base.Agent] | bytes, args: Mapping[str, Any]
    ):
        self._make_agent = make_agent
        self._args = args
        # Signal handlers put into it, too, which no lock of our own would allow.
        self._events: queue.SimpleQueue[str | _End] = queue.SimpleQueue()

    def stop(self, reason: str) -> None:
        """From any thread or signal handler."""
        self._events.put(reason)

    def __call__(self) -> Outcome:
        # Until there is something to save, a signal may end the process at once.
        agent = unpack(self._make_agent)()
        with StopSignals(notify=self.stop):
            return self._run(agent)

    def _run(self, agent: base.Agent) -> Outcome:
        barrier = threading.Barrier(len(SIDES))
        threads = [
            threading.Thread(
                target=self._run_side,
                args=(side, agent, barrier),
                name=side.__name__,
                daemon=True,
            )
            for side in SIDES
        ]
        for thread in threads:
            thread.start()
        errors = self._await_end(RunState.of(barrier), barrier)
        if errors:
            # A side that found the barrier broken suffers from the other's error.
            raise next((e for e in errors if not isinstance(e, BROKEN)), errors[0])
        for thread in threads:
            thread.join()
        return RunState.of(barrier).outcome

    def _await_end(
        self, session: RunState, barrier: threading.Barrier
    ) -> list[BaseException]:
        """Blocks until both sides have ended; their errors, the first one first."""
        errors: list[BaseException] = []
        ended = 0
        while ended < len(SIDES):
            try:
                event = self._events.get(timeout=FAREWELL if errors else None)
            except queue.Empty:
                break  # It does not hear us; the error is more important.
            if isinstance(event, str):
                session.stop(health().asked or event)
                continue
            ended += 1
            if event.error:
                errors.append(event.error)
                # Whoever waits there shall not wait for ever.
                barrier.abort()
                session.stop(FAILURE)
        return errors

    def _run_side(
        self,
        side: Callable[..., None],
        agent: base.Agent,
        barrier: threading.Barrier,
    ) -> None:
        try:
            side(agent, barrier, self._args)
        except BaseException as error:  # noqa: BLE001 (raised by the main thread)
            self._events.put(_End(error))
        else:
            self._events.put(_End(None))


class AgentThread:
    """The agent in a thread of its launcher, which treats it like a child process.

    `notify` is called with each RoleEvent of it.
    """

    def __init__(
        self,
        make_agent: Callable[[], base.Agent] | bytes,
        args: Mapping[str, Any],
        notify: Callable[[RoleEvent], Any],
    ):
        self.name = 'agent'
        self.node = ''
        self.asked = False
        self._run = AgentRun(make_agent, args)
        self._notify = notify
        self._error: BaseException | None = None
        health().reset()
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
        """Asks for a clean end."""
        self.asked = True
        self._run.stop(reason or 'SIGTERM')

    def kill(self, cause: str = '') -> None:
        """A thread cannot be killed; it ends with the process at the latest."""
        self.ask()

    def go_on(self) -> None:
        """Nobody can stop a thread."""

    def show_stacks(self) -> None:
        """A debugger can."""

    def collect(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the end; the error that caused it, if any."""
        self._thread.join(timeout)
        return self._error

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 (the launcher raises it)
            self._error = error
        last = health().heartbeat()  # which knows how the run ends
        self._notify(RoleEvent(self, last))
        self._notify(RoleEvent(self, ENDED))

    def _heartbeat(self) -> None:
        while self._thread.is_alive():
            self._notify(RoleEvent(self, health().await_heartbeat()))


class _End(NamedTuple):
    """How one side ended."""

    error: BaseException | None
