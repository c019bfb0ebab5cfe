"""Clocks: say when something periodic is due, such as logging, reports and saves."""

import time
from typing import Any

from .agreement import Agreement

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
        if skip or not self._due():
            return False
        self._last = time.monotonic()
        return True

    def _due(self) -> bool:
        if self.every <= 0:
            return self.every < 0
        now = time.monotonic()
        if self._last is None:
            self._last = now
            return self.first
        return now - self._last >= self.every


class GlobalClock(LocalClock):
    """One answer for all replicas of a run: replica 0 decides, any `skip` vetoes.

    To be called once after each update. The answer is that to the votes of two calls
    before, which came with the updates. Without an agreement there is one replica,
    whose local clock is the answer.
    """

    def __init__(
        self, every: float, first: bool = False, agreement: Agreement | None = None
    ):
        super().__init__(every, first)
        self._agreement = agreement
        self._question = agreement.ask() if agreement else 0
        self._answered = False  # the vote under way was cast before we knew that

    def __call__(self, step: Any = None, skip: bool | None = None) -> bool:
        if self._agreement is None:
            return super().__call__(step, skip)
        answer = self._agreement.answer(self._question) and not self._answered
        self._answered = answer and self.every > 0
        if answer:
            self._last = time.monotonic()
        due = self._due() if self._agreement.leads else True
        self._agreement.vote(self._question, due and not skip)
        return answer
