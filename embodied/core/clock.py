"""Clocks: say when something periodic is due, such as logging, reports and saves."""

import time
from typing import Any

__all__ = ['GlobalClock', 'LocalClock']


class LocalClock:
    """True once per `every` seconds of this process; 0 is never, negative always.

    The first call starts the clock and answers `first`. A call with `skip` answers
    False and leaves the clock as it is, so that what was due stays due.
    """

    def __init__(self, every: float, first: bool = False):
        self.every = float(every)
        self.first = first
        self._last: float | None = None

    def __call__(self, step: Any = None, skip: bool | None = None) -> bool:
        """Whether it is time. `step` is accepted for clocks that count steps."""
        if skip or self.every == 0:
            return False
        if self.every < 0:
            return True
        now = time.monotonic()
        if self._last is None:
            self._last = now
            return self.first
        if now - self._last < self.every:
            return False
        self._last = now
        return True


class GlobalClock(LocalClock):
    """One answer for all replicas of a run: replica 0 decides, any `skip` vetoes.

    A run in one process has one replica, whose local clock is the answer. Replicas
    share theirs by overriding `__call__`.
    """
