"""Limiters: admit inserts into a replay and samples from it, in exact arithmetic.

MinSize      sampling waits for a number of inserts
RateLimiter  both sides wait for each other to keep a ratio
"""

import math
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from .errors import ConfigError

__all__ = [
    'MinSize',
    'RateLimiter',
    'as_fraction',
    'earned',
    'steps_before_training',
]

N = TypeVar('N', int, Fraction)

UNLIMITED = -1
# A ratio such as 0.1 is one tenth, not the binary number next to it.
MAX_DENOMINATOR = 10**6


def as_fraction(ratio: float | Fraction) -> Fraction:
    """The fraction that the user means by a decimal number."""
    if isinstance(ratio, Fraction):
        return ratio
    return Fraction(str(ratio)).limit_denominator(MAX_DENOMINATOR)


def earned(count: int, start: int, before: N, ratio: N) -> N:
    """What `count` steps have earned, at `ratio` per step since `start`.

    before: what the steps up to `start` have earned. Any unit will do, as long as
    `before` and `ratio` have the same one.
    """
    return before + max(0, count - start) * ratio


def steps_before_training(batch_size: int, sequence_length: int, streams: int) -> int:
    """The minimum of every kind of run, from which the train ratio counts: as many
    steps as a batch has, and so many that one of the streams holds a whole sequence.

    sequence_length: steps of one sequence in the replay, context included.
    """
    return max(batch_size * sequence_length, streams * (sequence_length - 1) + 1)


class RateLimiter:
    """Keeps `samples` near what the inserts have earned, in both directions.

        earned(n) = earned + max(0, n - start) * ratio

    inserts: rows committed to replay; samples: sequences trained on; ratio: samples
    per insert. A fresh run has earned 0 at start = minimum; `count_from` sets both for
    a run that had another ratio before. With the balance `earned(inserts) - samples`,

        an insert is admitted while inserts < minimum, if it leaves the balance
        <= tolerance - ahead, or if the balance is <= 0 before it;
        a sample is admitted once inserts >= minimum, if it leaves the balance
        >= -tolerance, or if the balance is >= 0 before it.

    So at every balance one side is admitted, whatever the sizes of requests, and the
    distance to the ratio never exceeds the larger of the tolerance and one request.
    `ahead` is how many samples may be handed out before they are trained on: taken off
    the tolerance of inserts, they leave the trained ones inside the band, too.
    `end_at` keeps samples below what the whole run earns.
    All arithmetic is exact. Ratio -1 lifts the ratio, the minimum stays.
    """

    def __init__(
        self,
        ratio: float | Fraction,
        minimum: int = 1,
        tolerance: float = 0.0,
        ahead: int = 0,
    ):
        _check(ratio, minimum, tolerance)
        self._unlimited = ratio == UNLIMITED
        self._ratio = as_fraction(ratio)
        self._minimum = int(minimum)
        self._tolerance = tolerance
        self._ahead = int(ahead)
        self._inserts = 0
        self._samples = 0
        self._end: int | None = None  # inserts of the whole run
        self._batch = 0  # sequences per request, near that end
        self._inserts_ended = False
        self._stopped = False
        self._change = threading.Condition()
        self._waiting: list[Callable[[], bool]] = []  # conditions of the waiters
        self.count_from(self._minimum, Fraction(0))

    @classmethod
    def for_training(
        cls,
        train_ratio: float,
        batch_size: int,
        batch_length: int,
        sequence_length: int,
        streams: int = 1,
        ahead: int = 0,
    ) -> 'RateLimiter':
        """Limiter of a run with `streams` environments, as in algorithm.md.

        The train ratio counts steps, samples count sequences of `batch_length` trained
        steps. With many streams the minimum is higher: sampling could else wait for
        inserts that wait for sampling.
        """
        ratio = as_fraction(train_ratio)
        return cls(
            ratio=ratio if ratio < 0 else ratio / batch_length,
            minimum=steps_before_training(batch_size, sequence_length, streams),
            tolerance=4 * batch_size,
            ahead=ahead,
        )

    @property
    def ratio(self) -> Fraction | None:
        """Samples per insert, exactly; None without a ratio."""
        return None if self._unlimited else self._ratio

    @property
    def minimum(self) -> int:
        return self._minimum

    @property
    def tolerance(self) -> float:
        return self._tolerance

    @property
    def inserts(self) -> int:
        return self._inserts

    @property
    def samples(self) -> int:
        return self._samples

    def balance(self) -> float:
        """Sequences that sampling is behind (positive) or ahead (negative)."""
        with self._change:
            return 0.0 if self._unlimited else self._balance() / self._unit

    def insert(self, count: int = 1, timeout: float | None = None) -> bool:
        """Waits until `count` inserts may happen and counts them.

        Returns False, without counting, after `timeout` seconds or `stop()`.
        """
        with self._change:
            if not self._wait(lambda: self._may_insert(count), timeout):
                return False
            self._inserts += count
            self._wake()
            return True

    def await_insert(self, count: int = 1, timeout: float | None = None) -> bool:
        """Waits as `insert` but counts nothing: for a single inserting thread, which
        reports with `correct` what was committed."""
        with self._change:
            return self._wait(lambda: self._may_insert(count), timeout)

    def sample(self, count: int = 1, timeout: float | None = None) -> bool:
        """Waits until `count` sequences may be sampled and counts them, as `insert`."""
        with self._change:
            goes_on = lambda: self._inserts_ended or self._may_sample(count)
            if not self._wait(goes_on, timeout) or not self._may_sample(count):
                return False
            self._samples += count
            self._wake()
            return True

    def correct(self, inserts: int | None = None, samples: int | None = None) -> None:
        """Sets a counter to what is true: rows in the store, sequences trained on.

        A repeated insert that stored nothing and batches that died with a learner are
        taken back this way.
        """
        with self._change:
            self._inserts = self._inserts if inserts is None else int(inserts)
            self._samples = self._samples if samples is None else int(samples)
            self._wake()

    def count_from(self, start: int, earned: Fraction) -> None:
        """The ratio holds from `start` inserts on, which have earned `earned`."""
        with self._change:
            # Balances count in units of one sample / unit, so all are whole numbers.
            self._unit = math.lcm(self._ratio.denominator, earned.denominator)
            self._per_insert = int(self._ratio * self._unit)
            self._start, self._earned_before = int(start), int(earned * self._unit)
            self._most_behind = (self._tolerance - self._ahead) * self._unit
            self._most_ahead = self._tolerance * self._unit
            self._wake()

    def end_at(self, inserts: int, batch: int) -> None:
        """The run ends after `inserts` inserts. Samples, which come in requests of
        `batch`, stay within what these earn, so that the run ends exactly at the ratio.
        """
        with self._change:
            self._end, self._batch = int(inserts), int(batch)
            self._wake()

    def end_inserts(self) -> None:
        """No insert will follow: samples are admitted up to the ratio, then refused
        instead of waiting."""
        with self._change:
            self._inserts_ended = True
            self._wake()

    def stop(self) -> None:
        """Wakes every waiter; from now on all requests return False."""
        with self._change:
            self._stopped = True
            self._wake()

    def save(self) -> dict[str, int]:
        with self._change:
            return {'inserts': self._inserts, 'samples': self._samples}

    def load(self, data: dict[str, int]) -> None:
        self.correct(**data)

    def _wait(self, allowed: Callable[[], bool], timeout: float | None) -> bool:
        goes_on = lambda: self._stopped or allowed()
        if not goes_on():
            self._waiting.append(goes_on)
            self._change.wait_for(goes_on, timeout)
            self._waiting.remove(goes_on)
        return not self._stopped and allowed()

    def _wake(self) -> None:
        # Most changes admit no waiter, and waking a thread costs more than a check.
        if any(goes_on() for goes_on in self._waiting):
            self._change.notify_all()

    def _earned(self, inserts: int) -> int:
        return earned(inserts, self._start, self._earned_before, self._per_insert)

    def _balance(self) -> int:
        return self._earned(self._inserts) - self._samples * self._unit

    def _fits(self, count: int) -> bool:
        """Whether the whole run earns `count` more samples."""
        if self._end is None:
            return True
        earned = self._earned(max(self._end, self._inserts))
        return (self._samples + count) * self._unit <= earned

    def _may_insert(self, count: int) -> bool:
        if self._unlimited or self._inserts < self._minimum:
            return True
        balance = self._balance()
        if balance <= 0 or balance + count * self._per_insert <= self._most_behind:
            return True
        # Before the last insert, no sample will change the balance any more.
        return not self._fits(self._batch)

    def _may_sample(self, count: int) -> bool:
        if self._inserts < self._minimum:
            return False
        if self._unlimited:
            return not self._inserts_ended
        balance = self._balance()
        if self._inserts_ended:
            return balance >= count * self._unit
        if balance < 0 and balance - count * self._unit < -self._most_ahead:
            return False
        return self._fits(count)


class MinSize(RateLimiter):
    """Sampling waits for `minimum` inserts; inserting never waits."""

    def __init__(self, minimum: int):
        super().__init__(UNLIMITED, minimum)


def _check(ratio: float | Fraction, minimum: int, tolerance: float) -> None:
    smallest = 1 / MAX_DENOMINATOR
    if not math.isfinite(ratio) or (ratio < smallest and ratio != UNLIMITED):
        raise ConfigError(
            f'A limiter with ratio={ratio} would never let sampling go on, so inserts '
            f'would wait for it without end. Give at least {smallest}, or -1 to let '
            f'both sides run freely.'
        )
    if minimum < 1:
        raise ConfigError(
            f'A limiter with minimum={minimum} would sample from an empty replay. Give '
            f'at least 1, better one batch of sequences.'
        )
    if not math.isfinite(tolerance) or tolerance < 0:
        raise ConfigError(
            f'A limiter with tolerance={tolerance} has an empty band: neither side '
            f'could go on at a balance of zero. Give a finite number >= 0.'
        )
