"""Evaluation: plays whole episodes with a fixed agent and sums them up."""

import functools
from typing import Any

import numpy as np

from ...core import base
from ...envs.runtime.driver import Driver
from ..shared.episode_statistics import Episodes
from ..shared.replay_completion import Store

__all__ = ['Evaluation']


class Evaluation:
    """Plays `count` episodes in each environment of the driver, step by step.

    Each environment gives its first `count` episodes, however long the others take:
    stopping at a total number would favor short episodes.
    """

    def __init__(
        self,
        agent: base.Agent,
        driver: Driver,
        episodes: Episodes,
        count: int,
        store: Store | None = None,
    ):
        self._agent = agent
        self._driver = driver
        self._episodes = episodes
        self._count = count
        self._store = store
        self._policy = functools.partial(agent.policy, mode='eval')
        self._results: list[list[base.Metrics]] | None = None
        self.steps = 0
        driver.on_batch(self._take)

    @property
    def running(self) -> bool:
        return self._results is not None

    def step(self) -> base.Metrics | None:
        """One step of each environment; begins an evaluation if none is running.

        Returns the summary with the last step of an evaluation, else None.
        """
        if self._results is None:
            self._results = [[] for _ in range(self._driver.length)]
            self._driver.reset(self._agent.init_policy)
        self._driver(self._policy, steps=1)
        if any(len(results) < self._count for results in self._results):
            return None
        summary, self._results = self.summary(), None
        return summary

    def summary(self) -> base.Metrics:
        """Number of episodes so far, and means of what they have come to."""
        results = [x for results in self._results or () for x in results]
        names = dict.fromkeys(name for result in results for name in result)
        means = {k: np.mean([x[k] for x in results if k in x]) for k in names}
        return {**means, 'episodes': len(results)}

    def save(self) -> dict[str, Any]:
        return {
            'envs': self._driver.length,
            'driver': self._driver.save(),
            'episodes': self._episodes.save(),
            'results': self._results,
        }

    def load(self, data: dict[str, Any]) -> None:
        # With another number of environments, a running evaluation begins again.
        if data['envs'] == self._driver.length:
            self._driver.load(data['driver'])
            self._episodes.load(data['episodes'])
            self._results = data['results']

    def _take(self, trans: base.Batch, workers: base.Array) -> None:
        assert self._results is not None
        self.steps += len(workers)
        if self._store is not None:
            self._store.add(trans, workers)
        for worker, result in self._episodes.follow(trans, workers):
            if len(self._results[worker]) < self._count:
                self._results[worker].append(result)
                self._episodes.write_score(worker, result)
