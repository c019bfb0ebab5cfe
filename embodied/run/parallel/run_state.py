"""Run state: what the two threads of an agent process share besides the agent itself.

The actor and the learner are given one barrier; the session travels on it, so that
whoever starts the two threads with a plain `threading.Barrier(2)` need not know of it.
"""

import contextlib
import threading
from collections.abc import Iterator

from ..shared.outcome import DURATION, STEPS, Outcome
from .supervision.health import health

__all__ = ['DURATION', 'FAILURE', 'STEPS', 'RunState']

FAILURE = 'failure'  # of a thread, which is raised where it is awaited


class RunState:
    """Whether and why the agent process is to end, and how far the run has come.

    The actor sets `steps` from what replay acknowledged and stops the session at
    run.steps; the learner stops it at run.duration; a signal stops it at once. Then
    acting ends. The learner trains what the limits leave to be trained, saves, and
    tells replay and logger that the run is over.
    """

    def __init__(self) -> None:
        self.steps = 0  # environment steps committed to replay
        self.played = 0  # those of them since replay was first heard of
        self.reason = ''  # why it stopped: STEPS, DURATION, FAILURE or a signal
        self._heard = False
        self._stopped = threading.Event()
        self._silent = threading.Event()  # the actor tells nobody anything any more
        self._silent.set()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, barrier: threading.Barrier) -> 'RunState':
        """The session of the threads that meet at this barrier."""
        return barrier.__dict__.setdefault('session', cls())

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def failed(self) -> bool:
        """Whether an error of the agent ends it, after which the run may go on."""
        return self.reason == FAILURE

    @property
    def complete(self) -> bool:
        """Whether a limit of the run was reached, rather than somebody interrupting."""
        return self.reason in (STEPS, DURATION)

    @property
    def outcome(self) -> Outcome:
        """How the run ends, unless an error comes up."""
        return Outcome.of(self.reason)

    def advance(self, steps: int) -> None:
        """Replay says that it has so many; a restored agent did not know them all."""
        if self._heard:
            self.played += steps - self.steps
        self.steps, self._heard = steps, True

    def stop(self, reason: str) -> None:
        """Ends acting; the first reason counts."""
        with self._lock:
            self.reason = self.reason or reason
            if self.reason != FAILURE:
                # Before those hear of it who end because of it.
                health().ending(self.reason)
            self._stopped.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the session is stopped; False after `timeout` seconds."""
        return self._stopped.wait(timeout)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """To be held until the logger knows what the actor has to tell."""
        self._silent.clear()
        try:
            yield
        finally:
            self._silent.set()

    def await_actor(self, timeout: float) -> bool:
        """Blocks until acting is over, if it has begun; False after so many seconds."""
        return self._silent.wait(timeout)
