"""Trainer: owns the training stream and the carry that follows it."""

from collections.abc import Iterable
from typing import Any

from ...core import base
from ..shared.batches import Batches
from ..shared.replay_completion import Store

__all__ = ['Trainer']


class Trainer:
    """Trains the agent on a stream and writes latents back to the replay."""

    def __init__(
        self,
        agent: base.Agent,
        stream: Iterable[base.Batch],
        store: Store,
        batch_size: int,
    ):
        self._agent = agent
        self._store = store
        self._batches = Batches(agent, stream)
        self._carry = agent.init_train(batch_size)

    def update(self) -> base.Metrics:
        """One update; the metrics may belong to an earlier one."""
        batch = next(self._batches)
        self._carry, outs, metrics = self._agent.train(self._carry, batch)
        if outs.get('replay'):
            self._store.update(outs['replay'])
        return metrics

    def save(self) -> dict[str, Any]:
        return {'batches': self._batches.save(), 'carry': self._carry}

    def load(self, data: dict[str, Any]) -> None:
        self._batches.load(data['batches'])
        self._carry = data['carry']
