"""Replicas: keeps the learners of a run in step, each with its own replay."""

from collections.abc import Iterator
from typing import Any

from .... import clock
from ....clock import Agreement, GlobalClock
from ....core import base
from ....core.errors import ConfigError
from ..run_state import RunState
from ..settings import ParallelSettings

__all__ = ['Replicas']

OTHER = 'another replica'  # reason of the end


class Replicas:
    """What the learner does because of other replicas; nothing if it is alone."""

    def __init__(self, agent: Any, run_state: RunState, settings: ParallelSettings):
        self._agent = agent
        self._run_state = run_state
        self._settings = settings
        self._agreement: Agreement | None = getattr(agent, 'agreement', None)
        # For an agent that carries no votes: due unless a replica vetoes.
        self._all_go_on: GlobalClock | None = None
        if settings.replicas > 1 and self._agreement is None:
            if clock.current() is None:
                raise ConfigError(
                    f'replicas={settings.replicas}: this agent trains in one process. '
                    'Leave it at 1, or call embodied.clock.setup before (clock_addr).'
                )
            self._all_go_on = GlobalClock(-1)

    @property
    def alone(self) -> bool:
        return self._agreement is None and self._all_go_on is None

    @property
    def leads(self) -> bool:
        """Whether this replica saves the agent."""
        return self._agreement is None or self._agreement.leads

    @property
    def over(self) -> bool:
        """Whether all stop; the last two updates do not count."""
        return self._agreement is not None and self._agreement.over

    def clock(self, every: float) -> GlobalClock:
        return GlobalClock(every, agreement=self._agreement)

    def follow(self, counters: list[int]) -> list[int]:
        """Takes over the agent and returns the counters of the replica that leads."""
        return counters if self._agreement is None else self._agent.follow(counters)

    def in_step(self, batches: Iterator[base.Batch]) -> Iterator[base.Batch]:
        """Batches until one of the replicas has none left or stops."""
        if self._all_go_on is None:
            return self._by_votes(batches)
        return self._by_clock(batches, self._all_go_on)

    def _by_clock(
        self, batches: Iterator[base.Batch], all_go_on: GlobalClock
    ) -> Iterator[base.Batch]:
        """All replicas ask before each batch; the first one without a batch vetoes."""
        for batch in batches:
            if not all_go_on():
                self._run_state.stop(OTHER)
                return
            yield batch
        if not self._run_state.failed:
            all_go_on(skip=True)

    def _by_votes(self, batches: Iterator[base.Batch]) -> Iterator[base.Batch]:
        """Votes travel with the updates, so the last one takes further updates."""
        for batch in batches:
            yield batch
            if self.over:
                self._run_state.stop(OTHER)
                return
        if self._agreement is None or self._run_state.failed:
            return  # After a failure the others fail, too, and all start again.
        self._agreement.stop()
        size, length = self._settings.batch_size, self._settings.batch_length
        while not self.over:
            yield self._agent.idle_batch(size, length)

    def part(self) -> None:
        """Waits until all have saved, since the first end of a replica ends all."""
        if self._agreement is not None:
            self._agent.part()
