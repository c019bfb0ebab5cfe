"""Progress: how far a run has come, and whether a limit is reached."""

import os
import time
from collections.abc import Mapping
from typing import Any

from .outcome import DURATION, STEPS
from .ratio import TrainRatio
from .settings import Settings

__all__ = ['Progress', 'is_finished', 'say_finished']


class Progress:
    """Counts environment steps, updates and running time over all sessions of a run.

    `counter` is the logger's step, an `elements.Counter`: metrics are logged at the
    number of environment steps.
    """

    def __init__(self, counter: Any, settings: Settings):
        self._counter = counter
        self._settings = settings
        self._ratio = TrainRatio(
            settings.train_ratio, settings.batch_steps, settings.minimum
        )
        self._earlier = 0.0  # seconds of sessions before this one
        self._begin = time.monotonic()
        self.updates = 0
        self.complete = False  # all work up to a limit is done

    @property
    def steps(self) -> int:
        return int(self._counter)

    @property
    def seconds(self) -> float:
        """Running time; pauses between two sessions do not count."""
        return self._earlier + time.monotonic() - self._begin

    @property
    def owed(self) -> int:
        """Updates that the steps so far have earned and that are not done."""
        return self._ratio.earned - self.updates

    @property
    def train_ratio(self) -> float:
        """Replayed per environment step since training began."""
        beyond = self.steps - self._settings.minimum
        return self.updates * self._settings.batch_steps / beyond if beyond > 0 else 0.0

    @property
    def steps_reached(self) -> bool:
        return self.steps >= self._settings.steps

    @property
    def time_over(self) -> bool:
        return 0 < self._settings.duration <= self.seconds

    @property
    def limit(self) -> str:
        """The one that ends the run, if one does."""
        return STEPS if self.steps_reached else DURATION

    def played(self, steps: int) -> None:
        """All environments have taken one step, `steps` in sum."""
        self._counter.increment(steps)
        self._ratio.advance(self.steps)

    def save(self) -> dict[str, Any]:
        return {
            'steps': self.steps,
            'updates': self.updates,
            'seconds': self.seconds,
            'ratio': self._ratio.save(),
            'complete': self.complete,
        }

    def load(self, data: dict[str, Any]) -> None:
        self._counter.load(data['steps'])
        self.updates = data['updates']
        self._earlier = data['seconds']
        self._begin = time.monotonic()
        self._ratio.load(data['ratio'])
        # With a limit that was raised since, there is work again.
        limit = self.steps_reached or self.time_over
        self.complete = data['complete'] and limit


def is_finished(saved: Mapping[str, Any], settings: Settings) -> bool:
    """Whether all work up to a limit, which may have been raised since, was done."""
    time_over = 0 < settings.duration <= saved['seconds']
    return saved['complete'] and (saved['steps'] >= settings.steps or time_over)


def say_finished(
    logdir: str | os.PathLike, steps: int, updates: int, seconds: float
) -> None:
    """Tells somebody who starts a run that there is nothing left to do."""
    print(
        f'The run in {logdir} is finished: {steps:,} steps, {updates:,} updates, '
        f'{seconds / 3600:.1f} hours. Raise run.steps or run.duration to go on.'
    )
