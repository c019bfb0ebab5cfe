"""Collector: plays the training environments into the replay."""

from typing import Any

from ...core import base
from ...envs.runtime.driver import Driver
from ...processes.timeline import Timeline
from ..shared.episode_statistics import Episodes
from ..shared.filming import Filming
from ..shared.meters import Share
from ..shared.progress import Progress
from ..shared.replay_completion import Store

__all__ = ['Collector']


class Collector:
    """Steps all environments together, stores the steps and follows the episodes."""

    def __init__(
        self,
        agent: base.Agent,
        driver: Driver,
        store: Store,
        episodes: Episodes,
        progress: Progress,
        filming: Filming,
        timeline: Timeline,
    ):
        self._driver = driver
        self._store = store
        self._episodes = episodes
        self._progress = progress
        self._filming = filming
        self._play = timeline.wrap('step', driver.__call__)
        self._choose = timeline.wrap('policy', agent.policy)
        self._playing, self._choosing = Share(), Share()
        driver.on_batch(timeline.wrap('insert', self._take))
        driver.reset(agent.init_policy)

    def step(self) -> None:
        with self._playing:
            self._play(self._policy, steps=1)

    def share_of_envs(self) -> float:
        """Share of the time since the last call that was not the agent's."""
        return max(0.0, self._playing() - self._choosing())

    def save(self) -> dict[str, Any]:
        return {'driver': self._driver.save(), 'episodes': self._episodes.save()}

    def load(self, data: dict[str, Any]) -> None:
        self._driver.load(data['driver'])
        self._episodes.load(data['episodes'])

    def _policy(self, carry: base.Carry, obs: base.Batch) -> Any:
        with self._choosing:
            return self._choose(carry, obs, mode='train')

    def _take(self, trans: base.Batch, workers: base.Array) -> None:
        self._store.add(trans, workers)
        self._progress.played(len(workers))
        for worker, result in self._episodes.follow(trans, workers):
            self._episodes.record(worker, result)
        film = self._filming.add(trans, workers)
        if film:
            self._episodes.show(film)
