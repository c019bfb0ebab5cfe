"""Episode tracker: follows all training, or all evaluation, environments."""

import time

import numpy as np

from ....core import base
from ...shared.episode_statistics import Episodes

__all__ = ['EpisodeTracker']


class EpisodeTracker:
    """Passes transitions to `episodes`, and counts episodes without a result."""

    def __init__(self, prefix: str, episodes: Episodes):
        self.prefix = prefix
        self._episodes = episodes
        self._seen: dict[int, float] = {}  # time of the last row by environment
        self._serials: dict[int, int] = {}  # of these rows
        self._abandoned = 0  # episodes that were reported before
        self._timeouts, self._torn = 0, 0

    def follow(self, transitions: base.Batch, envids: base.Array) -> None:
        self._seen.update(dict.fromkeys(envids.tolist(), time.monotonic()))
        self._drop_torn(transitions, envids)
        for envid, result in self._episodes.follow(transitions, envids):
            self._episodes.record(envid, result)

    def drop_silent(self, timeout: float) -> None:
        """Drops the episodes of environments without a row for `timeout` seconds."""
        if not timeout:
            return
        now = time.monotonic()
        silent = [envid for envid, seen in self._seen.items() if now - seen > timeout]
        for envid in silent:
            del self._seen[envid]
            self._serials.pop(envid, None)
            self._timeouts += self._episodes.drop(envid)

    def losses(self) -> base.Metrics:
        """Episodes without a result since the last call, if there are any."""
        abandoned = self._episodes.abandoned - self._abandoned
        losses = {
            'abandoned': abandoned,
            'timeouts': self._timeouts,
            'torn': self._torn,
        }
        self._abandoned = self._episodes.abandoned
        self._timeouts, self._torn = 0, 0
        return {name: count for name, count in losses.items() if count}

    def _drop_torn(self, transitions: base.Batch, envids: base.Array) -> None:
        """Drops episodes with missing rows, whose scores would be wrong."""
        for i in np.unique(envids, return_index=True)[1]:
            envid, serial = int(envids[i]), int(transitions['serial'][i])
            follows = self._serials.get(envid, serial - 1) == serial - 1
            if not follows and not transitions['is_first'][i]:
                self._torn += self._episodes.drop(envid)
        self._serials.update(
            zip(envids.tolist(), transitions['serial'].tolist(), strict=True)
        )
