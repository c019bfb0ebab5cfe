"""Track: follows the episodes of all training or of all evaluation environments."""

import time

from ...core import base
from ..episodes import Episodes

__all__ = ['Track']


class Track:
    """Hands rows on to `episodes`, and counts the episodes that have no result."""

    def __init__(self, prefix: str, episodes: Episodes):
        self.prefix = prefix
        self._episodes = episodes
        self._seen: dict[int, float] = {}  # when each environment sent its last row
        self._abandoned = 0  # that were reported already
        self._timeouts = 0

    def follow(self, transitions: base.Batch, envids: base.Array) -> None:
        self._seen.update(dict.fromkeys(envids.tolist(), time.monotonic()))
        for envid, result in self._episodes.follow(transitions, envids):
            self._episodes.record(envid, result)

    def drop_silent(self, timeout: float) -> None:
        """Forgets the episodes of environments that sent nothing for so long."""
        if not timeout:
            return
        now = time.monotonic()
        silent = [envid for envid, seen in self._seen.items() if now - seen > timeout]
        for envid in silent:
            del self._seen[envid]
            self._timeouts += self._episodes.drop(envid)

    def losses(self) -> base.Metrics:
        """Episodes without a result since the last call, if there are any."""
        abandoned = self._episodes.abandoned - self._abandoned
        losses = {'abandoned': abandoned, 'timeouts': self._timeouts}
        self._abandoned, self._timeouts = self._episodes.abandoned, 0
        return {name: count for name, count in losses.items() if count}
