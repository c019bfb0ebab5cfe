"""Run state: what actor and learner share besides the agent.

The two threads are given one barrier, on which the run state travels. A program that
starts them with a plain `threading.Barrier(2)` need not know about it.
"""

import contextlib
import threading
from collections.abc import Iterator

from ..shared.outcome import DURATION, STEPS, Outcome
from .supervision.health import Health

__all__ = ['DURATION', 'FAILURE', 'STEPS', 'RunState']

FAILURE = 'failure'  # of actor or learner; its error is raised by the agent process


class RunState:
    """Whether and why the agent process is to end, and how far the run has come.

    The actor sets `steps` from the answers of replay, and stops the run at run.steps.
    The learner stops it at run.duration, a signal stops it at once. Then acting ends.
    The learner trains as many updates as are owed, saves, and ends replay and logger.

    health: that of the agent process.
    steps: environment steps that replay has committed.
    played: those of them that were added since the first answer of replay.
    reason: why the run was stopped: STEPS, DURATION, FAILURE or a signal; '' before.
    """

    def __init__(self, health: Health | None = None) -> None:
        self.health = health or Health()
        self.steps = 0
        self.played = 0
        self.reason = ''
        self._answered = False  # by replay
        self._stopped = threading.Event()
        self._actor_over = threading.Event()  # set unless the actor is at work
        self._actor_over.set()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, barrier: threading.Barrier) -> 'RunState':
        """The run state of the threads that meet at this barrier."""
        return barrier.__dict__.setdefault('run_state', cls())

    def travel_on(self, barrier: threading.Barrier) -> None:
        """Becomes the run state of the threads that meet at this barrier."""
        barrier.__dict__['run_state'] = self

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def failed(self) -> bool:
        """Whether an error ends the agent process, after which the run may continue."""
        return self.reason == FAILURE

    @property
    def complete(self) -> bool:
        """Whether the run was stopped because it has reached a limit."""
        return self.reason in (STEPS, DURATION)

    @property
    def outcome(self) -> Outcome:
        """How the run ends, unless an error is raised."""
        return Outcome.of(self.reason)

    def advance(self, steps: int) -> None:
        """Takes the number of steps that replay has committed."""
        with self._lock:
            if self._answered:  # A restored agent does not know of the latest steps.
                self.played += steps - self.steps
            self.steps, self._answered = steps, True

    def stop(self, reason: str) -> None:
        """Ends acting. Only the first call has a reason that counts."""
        with self._lock:
            self.reason = self.reason or reason
            if not self.failed:
                # Before other roles end because of it, which is no failure then.
                self.health.ending(self.reason)
            self._stopped.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the run is stopped; False after `timeout` seconds."""
        return self._stopped.wait(timeout)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Context of the actor, until the logger has all its messages."""
        self._actor_over.clear()
        try:
            yield
        finally:
            self._actor_over.set()

    def await_actor(self, timeout: float) -> bool:
        """Blocks until the actor has ended, if it has begun; False after `timeout`."""
        return self._actor_over.wait(timeout)
