"""Random agent: acts uniformly, learns nothing. A baseline, and a test of runs."""

from collections.abc import Iterator
from typing import Any

import elements
import numpy as np

from .base import Agent, Batch, Carry, Metrics, Spaces

__all__ = ['RandomAgent']


class RandomAgent(Agent):
    """Samples each action uniformly from its space.

    Where a continuous action has no finite bounds it samples a standard normal.
    """

    def __init__(
        self, obs_space: Spaces, act_space: Spaces, seed: int | None = None
    ) -> None:
        self.obs_space = obs_space
        self.act_space = act_space
        self._random = np.random.default_rng(seed)

    def init_policy(self, batch_size: int) -> Carry:
        return ()

    def policy(
        self, carry: Carry, obs: Batch, mode: str = 'train'
    ) -> tuple[Carry, Batch, Batch]:
        size = len(obs['is_first'])
        acts = {
            key: self._sample(space, size)
            for key, space in self.act_space.items()
            if key != 'reset'
        }
        return carry, acts, {}

    def init_train(self, batch_size: int) -> Carry:
        return ()

    def train(self, carry: Carry, batch: Batch) -> tuple[Carry, dict, Metrics]:
        return carry, {}, {}

    def init_report(self, batch_size: int) -> Carry:
        return ()

    def report(self, carry: Carry, batch: Batch) -> tuple[Carry, Metrics]:
        return carry, {}

    def stream(self, source: Iterator[Batch]) -> Iterator[Any]:
        return iter(source)

    def save(self) -> Any:
        return {'random': self._random.bit_generator.state}

    def load(self, data: Any, regex: str | None = None) -> None:
        self._random.bit_generator.state = data['random']

    def _sample(self, space: elements.Space, size: int) -> np.ndarray:
        shape = (size, *space.shape)
        if space.dtype == bool:
            return self._random.integers(0, 2, shape).astype(bool)
        if space.discrete:
            return self._random.integers(space.low, space.high, shape, space.dtype)
        finite = np.isfinite(space.low) & np.isfinite(space.high)
        low, high = np.where(finite, space.low, 0), np.where(finite, space.high, 1)
        bounded = self._random.uniform(low, high, shape)
        free = self._random.standard_normal(shape)
        return np.where(finite, bounded, free).astype(space.dtype)
