"""Train ratio: how many updates the environment steps so far have earned."""

import math
from fractions import Fraction
from typing import Any

__all__ = ['TrainRatio']


class TrainRatio:
    """Counts updates against environment steps in exact integers.

        earned(n) = floor(max(0, n - minimum) * ratio / batch_steps)

    with n environment steps, `ratio` replayed steps per environment step, and
    `batch_steps` = B * T replayed steps per update. Only n decides, so logging,
    reports, saves and restarts cannot bend it. Ratio 0 never trains; a negative ratio
    earns one update per call of `advance`, that is per step of all environments.

    A resumed run whose ratio or batch changed counts from where it stands: the new
    ratio holds for the steps to come, not for those that were trained on already.
    """

    def __init__(self, ratio: float, batch_steps: int, minimum: int):
        assert batch_steps >= 1 and minimum >= 0, (batch_steps, minimum)
        # Read as the decimal number that the user wrote: 0.1 is one tenth.
        self._rate = Fraction(str(ratio)) / batch_steps
        self._minimum = minimum
        self._start = (minimum, 0)  # steps and earned updates to count from
        self._steps = 0
        self.earned = 0

    def advance(self, steps: int) -> None:
        """Takes note of the environment steps played so far."""
        assert steps >= self._steps, (steps, self._steps)
        if self._rate >= 0:
            start, base = self._start
            self.earned = base + math.floor(max(0, steps - start) * self._rate)
        elif steps >= self._minimum:
            self.earned += 1
        self._steps = steps

    def save(self) -> dict[str, Any]:
        return {
            'rate': self._rate,
            'start': self._start,
            'steps': self._steps,
            'earned': self.earned,
        }

    def load(self, data: dict[str, Any]) -> None:
        self._steps, self.earned = data['steps'], data['earned']
        if data['rate'] == self._rate:
            self._start = data['start']
        else:
            self._start = (max(self._steps, self._minimum), self.earned)
