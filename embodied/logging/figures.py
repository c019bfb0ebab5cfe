"""Figures: the few numbers of a run that a person watches, out of all its metrics."""

import collections
import math
import time
from collections.abc import Callable, Sequence

from . import charts
from .bottleneck import METRICS, WINDOW, Bottleneck, find_bottleneck, window_of
from .logger import Entry, scalars

__all__ = ['ENDLESS', 'Figures']

SCORE, EVAL_SCORE = 'episode/score', 'eval/score'
ENV_SPEED, TRAIN_SPEED = 'fps/env', 'fps/train'
RATIO = 'replay/train_ratio'
SECONDS = 'run/seconds'
STEPS, GIGABYTES = 'replay/steps', 'replay/gigabytes'
NEWEST = (EVAL_SCORE, RATIO, STEPS, GIGABYTES)  # not averaged
KEPT = {SCORE, ENV_SPEED, TRAIN_SPEED, *NEWEST, *METRICS}

ENDLESS = 10**10  # steps of a run that goes on until it is stopped
FAR = 100 * 86_400.0  # seconds; a time left beyond this says nothing


class Figures:
    """steps, duration: limits of the run. ratio: the train ratio that is wanted, 0 if
    unknown. restarts: counts the restarts of roles so far. doing: what takes roles long
    now, in words, such as a program that is being compiled."""

    def __init__(
        self,
        steps: float = math.inf,
        duration: float = 0.0,
        ratio: float = 0.0,
        restarts: Callable[[], int] = lambda: 0,
        doing: Callable[[], str] = str,
    ):
        self.doing = doing
        self.steps = steps
        self.duration = duration
        self.step = 0
        self.scores: list[float] = []
        self._ratio = ratio
        self._restarts = restarts
        self._recent: dict[str, collections.deque[float]] = {}
        self._begin = time.monotonic()
        self._counted = self._begin  # where the run begins to count its duration
        self._marks: collections.deque[tuple[float, int]] = collections.deque(
            maxlen=WINDOW + 1
        )

    def update(self, entries: Sequence[Entry]) -> None:
        self.step = max(step for step, _, _ in entries)
        found = scalars(entries)
        for name in KEPT & found.keys():
            size = 1 if name in NEWEST else window_of(name)
            recent = self._recent.setdefault(name, collections.deque(maxlen=size))
            recent.append(found[name])
        if SECONDS in found:
            self._counted = time.monotonic() - found[SECONDS]
            # The run knows of earlier sessions, but not of the time its start took.
            self._begin = min(self._begin, self._counted)
        if SCORE in found:
            self.scores.append(found[SCORE])
        self._marks.append((time.monotonic(), self.step))

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    @property
    def _used(self) -> float:
        """Seconds of the duration."""
        return time.monotonic() - self._counted

    @property
    def fraction(self) -> float:
        """Share of the run that is done, by whichever limit comes first."""
        by_time = self._used / self.duration if self.duration else 0.0
        return min(1.0, max(self.step / self.steps, by_time))

    @property
    def left(self) -> float:
        """Seconds to the end of the run, inf if that cannot be told."""
        by_time = self.duration - self._used if self.duration else math.inf
        by_steps = math.inf
        if len(self._marks) > 1:
            (time1, step1), (time2, step2) = self._marks[0], self._marks[-1]
            if step2 > step1:
                speed = (step2 - step1) / (time2 - time1)
                by_steps = (self.steps - self.step) / speed
        return max(0.0, min(by_time, by_steps))

    @property
    def bottleneck(self) -> Bottleneck | None:
        return find_bottleneck(self._means())

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of name and text, those that are known."""
        means = self._means()
        texts = {
            'score': (SCORE, '{:.4g}'),
            'eval score': (EVAL_SCORE, '{:.4g}'),
            'env steps/s': (ENV_SPEED, '{:,.0f}'),
            'updates/s': (TRAIN_SPEED, '{:.3g}'),
        }
        pairs = [
            (label, form.format(means[name]))
            for label, (name, form) in texts.items()
            if name in means
        ]
        if RATIO in means:
            wanted = f' of {self._ratio:g}' if self._ratio > 0 else ''
            pairs.append(('train ratio', f'{means[RATIO]:.4g}{wanted}'))
        if STEPS in means:
            size = f' ({means[GIGABYTES]:.2f} GB)' if GIGABYTES in means else ''
            pairs.append(('replay', f'{means[STEPS]:,.0f}{size}'))
        if restarts := self._restarts():
            pairs.append(('restarts', str(restarts)))
        pairs.append(('elapsed', charts.duration(self.elapsed)))
        if self.left < FAR:
            pairs.append(('left', charts.duration(self.left)))
        return pairs

    def _means(self) -> dict[str, float]:
        return {name: sum(x) / len(x) for name, x in self._recent.items()}
