"""Replicas: keeps the learners of a run in step, each with its own replay."""

from collections.abc import Iterator
from typing import Any

from ....core import base
from ....core.agreement import Agreement
from ....core.clock import GlobalClock
from ....core.errors import ConfigError
from ..run_state import FAILURE, RunState
from ..settings import ParallelSettings

__all__ = ['Replicas']

OTHER = 'another replica'  # why the session ends


class Replicas:
    """What this learner has to do because of the others; nothing if it is alone."""

    def __init__(self, agent: Any, session: RunState, settings: ParallelSettings):
        self._agent = agent
        self._session = session
        self._settings = settings
        self._agreement: Agreement | None = getattr(agent, 'agreement', None)
        if settings.replicas > 1 and self._agreement is None:
            raise ConfigError(
                f'replicas={settings.replicas}: this agent trains in one process. '
                'Leave it at 1.'
            )

    @property
    def alone(self) -> bool:
        return self._agreement is None

    @property
    def leads(self) -> bool:
        """Whether this one saves the agent."""
        return self._agreement is None or self._agreement.leads

    @property
    def over(self) -> bool:
        """Whether all stop; the last two updates do not count."""
        return self._agreement is not None and self._agreement.over

    def clock(self, every: float) -> GlobalClock:
        return GlobalClock(every, agreement=self._agreement)

    def follow(self, counters: list[int]) -> list[int]:
        """Takes the agent and the counters of the one that leads."""
        return counters if self.alone else self._agent.follow(counters)

    def in_step(self, batches: Iterator[base.Batch]) -> Iterator[base.Batch]:
        """Batches until one of the replicas has no more or wants no more."""
        for batch in batches:
            yield batch
            if self.over:
                self._session.stop(OTHER)
                return
        if self._agreement is None or self._session.reason == FAILURE:
            return  # After a failure the others fail, too, and all start again.
        self._agreement.stop()
        size, length = self._settings.batch_size, self._settings.batch_length
        while not self.over:
            yield self._agent.idle_batch(size, length)

    def part(self) -> None:
        """Waits until all have saved: whoever ends first takes the others along."""
        if not self.alone:
            self._agent.part()
