"""Global clock: one answer for all replicas of a run."""

from typing import Any

from . import replica_clocks
from .agreement import Agreement
from .local_clock import LocalClock

__all__ = ['GlobalClock']


class GlobalClock:
    """As a local clock of replica 0, whose answer all replicas get; any `skip` vetoes.

    All replicas make the same clocks and call them in the same order.

    With an `agreement`, a clock is called once after each update, and answers to the
    votes of two calls before, which came with the updates. After `clock.setup`, a call
    returns when all replicas have made it. Without either there is one replica.
    """

    def __init__(
        self, every: float, first: bool = False, agreement: Agreement | None = None
    ):
        self._clock: LocalClock | VotingClock | replica_clocks.SharedClock
        clocks = replica_clocks.current()
        if agreement is not None:
            self._clock = VotingClock(every, first, agreement)
        elif clocks is not None:
            self._clock = clocks.make(every, first)
        else:
            self._clock = LocalClock(every, first)

    def __call__(self, step: Any = None, skip: bool | None = None) -> bool:
        """Whether it is time. `step` is accepted for clocks that count steps."""
        return self._clock(step, skip)


class VotingClock:
    """Asks one question of an agreement again and again."""

    def __init__(self, every: float, first: bool, agreement: Agreement):
        self._clock = LocalClock(every, first)
        self._agreement = agreement
        self._question = agreement.ask()
        self._answered = False  # by the vote that is still under way

    def __call__(self, step: Any = None, skip: bool | None = None) -> bool:
        answer = self._agreement.answer(self._question) and not self._answered
        self._answered = answer and self._clock.every > 0
        if answer:
            self._clock.restart()
        due = self._clock.is_due() if self._agreement.leads else True
        self._agreement.vote(self._question, due and not skip)
        return answer
