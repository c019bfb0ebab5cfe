"""Progress: how far a run has come, and whether a limit is reached."""

import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.checkpoint import Checkpoint
from ...logging import add_event
from .outcome import DURATION, Outcome
from .ratio import TrainRatio, measured_ratio
from .settings import Settings

__all__ = ['Progress', 'announce_finished', 'is_finished']


class Progress:
    """Counts environment steps, updates and running time over all starts of a run.

    counter: the logger's step, an `elements.Counter`: metrics are logged at the number
    of environment steps. minimum: steps before training.
    """

    def __init__(self, counter: Any, settings: Settings, minimum: int):
        self._counter = counter
        self._settings = settings
        self._ratio = TrainRatio(settings.train_ratio, settings.batch_steps, minimum)
        self._earlier = 0.0  # seconds before this start
        self._begin = time.monotonic()
        self.updates = 0
        self.complete = False  # all work up to a limit is done

    @property
    def steps(self) -> int:
        return int(self._counter)

    @property
    def seconds(self) -> float:
        """Running time; pauses between two starts do not count."""
        return self._earlier + time.monotonic() - self._begin

    @property
    def owed(self) -> int:
        """Updates that the steps so far have earned and that are still to be made."""
        return self._ratio.earned - self.updates

    @property
    def train_ratio(self) -> float:
        """Replayed per environment step since the ratio holds."""
        start, earned = self._ratio.since
        trained = (self.updates - earned) * self._settings.batch_steps
        return measured_ratio(trained, self.steps - start)

    @property
    def steps_reached(self) -> bool:
        return self.steps >= self._settings.last_step

    @property
    def time_over(self) -> bool:
        return 0 < self._settings.duration <= self.seconds

    @property
    def limit(self) -> str:
        """Name of the limit that ends the run."""
        return self._settings.step_limit if self.steps_reached else DURATION

    def played(self, steps: int) -> None:
        """Counts one step of each environment, `steps` in all."""
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
    return saved['complete'] and (saved['steps'] >= settings.last_step or time_over)


def announce_finished(folder: Path, part: str, settings: Settings) -> Outcome | None:
    """Says so if the run has nothing left to do, and returns how it ended.

    folder: holds the checkpoints, whose `part` has saved how far the run has come.
    """
    note = functools.partial(add_event, settings.logdir)
    checkpoint = Checkpoint(folder, note=note, trust=settings.trust)
    if not checkpoint.exists():
        return None
    found = _Found()
    checkpoint.add(part, found)
    checkpoint.load()
    saved = found.data
    if not is_finished(saved, settings):
        return None
    hours = saved['seconds'] / 3600
    print(
        f'The run in {settings.logdir} is finished: {saved["steps"]:,} steps, '
        f'{saved["updates"]:,} updates, {hours:.1f} hours. Raise '
        f'{settings.step_limit} or run.duration to go on.'
    )
    steps_reached = saved['steps'] >= settings.last_step
    return Outcome.of(settings.step_limit if steps_reached else DURATION)


class _Found:
    """Keeps what a part of a checkpoint has saved."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def save(self) -> dict[str, Any]:
        return self.data

    def load(self, data: dict[str, Any]) -> None:
        self.data = data
