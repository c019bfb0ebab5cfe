"""Local clock: the time of one process decides."""

import time
from typing import Any

__all__ = ['LocalClock']


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
        if skip or not self.is_due():
            return False
        self.restart()
        return True

    def is_due(self) -> bool:
        """Whether it is time, which leaves the clock as it is."""
        if self.every <= 0:
            return self.every < 0
        now = time.monotonic()
        if self._last is None:
            self._last = now
            return self.first
        return now - self._last >= self.every

    def restart(self) -> None:
        """Counts the next period from now on."""
        self._last = time.monotonic()
