"""Training progress: updates, sequences and running time over all starts of a run."""

import time
from typing import Any

from ...shared.progress import is_finished
from ..run_state import RunState
from ..settings import ParallelSettings
from .replicas import Replicas

__all__ = ['TrainingProgress']


class TrainingProgress:
    """Counts what the learner has done. A part of the agent's checkpoint.

    updates, trained: updates, and sequences that they were made of.
    finished: the run had reached a limit before this start, which still holds.
    """

    def __init__(self, run_state: RunState, settings: ParallelSettings):
        self.updates, self.trained = 0, 0
        self.finished = False
        self._run_state = run_state
        self._settings = settings
        self._earlier = 0.0  # seconds before this start
        self._begin = time.monotonic()

    @property
    def counters(self) -> dict[str, int]:
        return {'updates': self.updates, 'trained': self.trained}

    @property
    def seconds(self) -> float:
        """Running time; pauses between two starts do not count."""
        return self._earlier + time.monotonic() - self._begin

    @property
    def steps_reached(self) -> bool:
        """Whether the run has as many environment steps as it needs."""
        return self._run_state.steps >= self._settings.steps

    def add(self, updates: int) -> None:
        """Counts updates; a negative number takes them back."""
        self.updates += updates
        self.trained += updates * self._settings.batch_size

    def follow(self, replicas: Replicas) -> None:
        """Continues where replica 0 does, which may have saved less."""
        updates, finished = replicas.follow([self.updates, self.finished])
        self.add(min(0, updates - self.updates))
        self.updates, self.finished = updates, bool(finished)

    def save(self) -> dict[str, Any]:
        return {
            **self.counters,
            'seconds': self.seconds,
            'steps': self._run_state.steps,
            'complete': self._run_state.complete,
        }

    def load(self, data: dict[str, Any]) -> None:
        self.updates, self.trained = data['updates'], data['trained']
        self._earlier, self._begin = data['seconds'], time.monotonic()
        self._run_state.steps = max(self._run_state.steps, data['steps'])
        self.finished = is_finished(data, self._settings)
