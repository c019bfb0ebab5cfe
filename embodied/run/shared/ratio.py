"""Train ratio: how many updates the environment steps so far have earned."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ...core.ratios import as_fraction, earned

__all__ = ['RatioHistory', 'RatioPeriod', 'TrainRatio', 'measured_ratio']


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
        self._rate = as_fraction(ratio) / batch_steps
        self._minimum = minimum
        self._start = (minimum, 0)  # steps and earned updates to count from
        self._steps = 0
        self.earned = 0

    @property
    def since(self) -> tuple[int, int]:
        """Steps from which the ratio holds, and the updates earned by then."""
        return self._start

    def advance(self, steps: int) -> None:
        """Takes note of the environment steps played so far."""
        assert steps >= self._steps, (steps, self._steps)
        if self._rate >= 0:
            start, before = self._start
            self.earned = math.floor(earned(steps, start, Fraction(before), self._rate))
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


def measured_ratio(trained_steps: float, steps: int) -> float:
    """Replayed per environment step since the ratio holds.

    It may be 0 at first: updates that were made ahead belong to the ratio before.
    """
    return max(0.0, trained_steps) / steps if steps > 0 else 0.0


class RatioPeriod(NamedTuple):
    """Part of a run with one ratio; it lasts until the next one starts."""

    start: int  # environment steps before it
    earned: Fraction  # sequences that those have earned
    ratio: Fraction | None  # sequences per step; None: no limit

    def earned_at(self, steps: int) -> Fraction:
        """Sequences that so many steps have earned, all of them in this period."""
        assert self.ratio is not None
        return earned(steps, self.start, self.earned, self.ratio)


@dataclasses.dataclass(frozen=True)
class RatioHistory:
    """All ratios that a distributed run has had, each since the resume that set it.

        earned(n) = earned_i + (n - start_i) * ratio_i   in period i

    Steps of a distributed run are on the disk before the next checkpoint, so the
    period of each step is known from its number alone, whichever save was restored.
    """

    periods: tuple[RatioPeriod, ...] = ()

    @property
    def last(self) -> RatioPeriod:
        return self.periods[-1]

    def resume(
        self, ratio: Fraction | None, minimum: int, steps: int, trained: int
    ) -> 'RatioHistory':
        """The history as it goes on with `ratio` after so many steps.

        trained: sequences; where no ratio held, they are what was earned.
        """
        # Periods without a step: the run stopped before, or steps were lost since.
        used = [period for period in self.periods if period.start < steps]
        if not used:
            return RatioHistory((RatioPeriod(minimum, Fraction(0), ratio),))
        last = used[-1]
        if last.ratio != ratio:
            free = last.ratio is None
            before = Fraction(trained) if free else last.earned_at(steps)
            used.append(RatioPeriod(steps, before, ratio))
        return RatioHistory(tuple(used))

    def save(self) -> list[dict[str, Any]]:
        """As data that JSON can hold."""
        return [
            {
                'start': period.start,
                'earned': str(period.earned),
                'ratio': None if period.ratio is None else str(period.ratio),
            }
            for period in self.periods
        ]

    @classmethod
    def load(cls, data: Sequence[Mapping[str, Any]]) -> 'RatioHistory':
        ratio = lambda text: None if text is None else Fraction(text)
        return cls(
            tuple(
                RatioPeriod(int(x['start']), Fraction(x['earned']), ratio(x['ratio']))
                for x in data
            )
        )
