"""Train ratio: how many updates the environment steps so far have earned."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ...core.limiters import as_fraction, earned

__all__ = ['RatioHistory', 'RatioPeriod', 'TrainRatio', 'measured_ratio']


class RatioPeriod(NamedTuple):
    """Part of a run with one ratio; it lasts until the next one starts.

    What a step earns are sequences, or updates.
    """

    start: int  # environment steps before it
    earned: Fraction  # what those have earned
    ratio: Fraction | None  # earned per step; None: no limit

    def earned_at(self, steps: int) -> Fraction:
        """What so many steps have earned, all of them in this period or before."""
        assert self.ratio is not None
        return earned(steps, self.start, self.earned, self.ratio)

    def followed_by(
        self, ratio: Fraction | None, steps: int, earned: Fraction
    ) -> 'RatioPeriod':
        """How a run goes on with `ratio` after `steps` steps that earned `earned`: in
        this period, or in a new one if the ratio is another."""
        return self if ratio == self.ratio else RatioPeriod(steps, earned, ratio)


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
        self._period = RatioPeriod(minimum, Fraction(0), _limit(self._rate))
        self._steps = 0
        self.earned = 0

    @property
    def since(self) -> tuple[int, int]:
        """Steps from which the ratio holds, and the updates earned by then."""
        return self._period.start, math.floor(self._period.earned)

    def advance(self, steps: int) -> None:
        """Takes note of the environment steps played so far."""
        assert steps >= self._steps, (steps, self._steps)
        if self._period.ratio is not None:
            self.earned = math.floor(self._period.earned_at(steps))
        elif steps >= self._minimum:
            self.earned += 1
        self._steps = steps

    def save(self) -> dict[str, Any]:
        return {
            'rate': self._rate,
            'start': (self._period.start, self._period.earned),
            'steps': self._steps,
            'earned': self.earned,
        }

    def load(self, data: dict[str, Any]) -> None:
        self._steps, self.earned = data['steps'], data['earned']
        start, before = data['start']
        saved = RatioPeriod(start, Fraction(before), _limit(data['rate']))
        now = max(self._steps, self._minimum)
        self._period = saved.followed_by(_limit(self._rate), now, Fraction(self.earned))


def _limit(rate: Fraction) -> Fraction | None:
    """The ratio of a period: a negative rate is no limit."""
    return None if rate < 0 else rate


def measured_ratio(trained_steps: float, steps: int) -> float:
    """Replayed per environment step since the ratio holds.

    It may be 0 at first: updates that were made ahead belong to the ratio before.
    """
    return max(0.0, trained_steps) / steps if steps > 0 else 0.0


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
        before = Fraction(trained) if last.ratio is None else last.earned_at(steps)
        following = last.followed_by(ratio, steps, before)
        used += [following] if following is not last else []
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
