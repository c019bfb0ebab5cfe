"""Meters: averages, speeds and shares of time between two lines of the log."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.base import Metrics

__all__ = ['Allowance', 'Averages', 'Share', 'Speed', 'moving']

ALLOWED = 0.1  # of the time, for reports and for saves
NUMBERS = (float, int, np.number)


class Averages:
    """Averages scalars by name; of images, videos and texts the last is kept."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}  # sum and number of values
        self._others: dict[str, Any] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            # Every update comes by here with dozens of numbers: the usual case first.
            if not isinstance(value, NUMBERS) and (
                isinstance(value, str) or np.ndim(value)
            ):
                self._others[name] = value
            elif (known := self._sums.get(name)) is None:
                self._sums[name] = [float(value), 1]
            else:
                known[0] += float(value)
                known[1] += 1

    def result(self) -> Metrics:
        """Averages since the last call; counts from here on."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        result = {**self._others, **means}
        self._sums, self._others = {}, {}
        return result


class Speed:
    """Events per second between two calls."""

    def __init__(self) -> None:
        self._count = 0.0
        self._time = time.perf_counter()

    def __call__(self, count: float) -> float:
        """`count` is the number of events so far, of which some may be taken back."""
        now = time.perf_counter()
        events, seconds = count - self._count, now - self._time
        self._count, self._time = count, now
        return max(0, events) / seconds if seconds else 0.0


class Share:
    """Share of the time between two calls that was spent inside of `with`.

    One thread enters; any thread calls, also while the other one is inside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent = 0.0
        self._entered: float | None = None
        self._time = time.perf_counter()

    def __enter__(self) -> None:
        with self._lock:
            self._entered = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._settle(time.perf_counter())
            self._entered = None

    def __call__(self) -> float:
        with self._lock:
            now = time.perf_counter()
            self._settle(now)
            spent, seconds = self._spent, now - self._time
            self._spent, self._time = 0.0, now
        return spent / seconds if seconds else 0.0

    def _settle(self, now: float) -> None:
        if self._entered is not None:
            self._spent += now - self._entered
            self._entered = now


class Allowance(Share):
    """Share of the time of something that holds training up, kept at a tenth.

    After each time that it was entered it is used up for nine times as long. The first
    `free` times do not count, because programs are compiled then.

    every: seconds between two times that the user wants; negative is always, and then
    nothing is ever used up.
    """

    def __init__(self, every: float, free: int = 0) -> None:
        super().__init__()
        self._limited = every >= 0
        self._free = free
        self._begin = self._until = time.perf_counter()

    @property
    def used_up(self) -> bool:
        return self._limited and time.perf_counter() < self._until

    def __enter__(self) -> None:
        self._begin = time.perf_counter()
        if not self._free:
            super().__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._free:
            self._free -= 1
            return
        super().__exit__(*exc)
        now = time.perf_counter()
        pause = (now - self._begin) * (1 - ALLOWED) / ALLOWED
        self._until = max(self._until, now) + pause


def moving(speeds: Mapping[str, float]) -> Metrics:
    """The speeds above 0, for the last line of a run: what has ended has no speed."""
    return {name: speed for name, speed in speeds.items() if speed}
