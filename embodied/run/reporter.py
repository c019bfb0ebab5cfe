"""Reporter: owns a report stream and the carry that follows it."""

from collections.abc import Iterable
from typing import Any

from ..core import base
from .batches import Batches
from .meters import Averages
from .settings import Settings

__all__ = ['Reporter']


class Reporter:
    """Reports on a stream of its own, so that training does not notice."""

    def __init__(
        self, agent: base.Agent, stream: Iterable[base.Batch], settings: Settings
    ):
        self._agent = agent
        self._report_batches = settings.report_batches
        self._batches = Batches(agent, stream)
        self._carry = agent.init_report(settings.batch_size)

    def report(self) -> base.Metrics:
        """Averages over `report_batches` batches; of pictures the last."""
        averages = Averages()
        for _ in range(self._report_batches):
            batch = next(self._batches)
            self._carry, metrics = self._agent.report(self._carry, batch)
            averages.add(metrics)
        return averages.result()

    def save(self) -> dict[str, Any]:
        return {'batches': self._batches.save(), 'carry': self._carry}

    def load(self, data: dict[str, Any]) -> None:
        self._batches.load(data['batches'])
        self._carry = data['carry']
