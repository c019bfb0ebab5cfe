"""Deadlines: when something is due, and whether the process was suspended meanwhile."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ['Deadlines']

K = TypeVar('K')


class Deadlines(Generic[K]):
    """At most one deadline per key, in seconds of a monotonic clock.

    longest_gap: seconds between two calls of `gap` in a process that is not suspended.
    """

    def __init__(
        self, longest_gap: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._times: dict[K, float] = {}
        self._longest_gap = longest_gap
        self._clock = clock
        self._looked = clock()

    def set(self, key: K, seconds: float) -> None:
        """Makes the key due in that time, and not at any other."""
        self._times[key] = self._clock() + seconds

    def cancel(self, key: K) -> None:
        self._times.pop(key, None)

    def postpone(self, key: K, seconds: float) -> None:
        """Moves the deadline of the key, if it has one."""
        if key in self._times:
            self._times[key] += seconds

    def remaining(self) -> float | None:
        """Seconds until the first deadline; None without one."""
        if not self._times:
            return None
        return max(0.0, min(self._times.values()) - self._clock())

    def pop_due(self) -> K | None:
        """Removes the key that has been due for longest; None if no key is due."""
        key = min(self._times, key=self._times.__getitem__, default=None)
        if key is None or self._times[key] > self._clock():
            return None
        del self._times[key]
        return key

    def gap(self) -> float:
        """Seconds since the last call if this process was suspended, otherwise 0."""
        gap, self._looked = self._clock() - self._looked, self._clock()
        return gap if gap > self._longest_gap else 0.0
