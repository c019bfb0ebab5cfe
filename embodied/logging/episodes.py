"""Episode statistics: score, length and `log/` values of each worker's episode."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.step_keys import is_log

__all__ = ['EpisodeStats']


class EpisodeStats:
    """Follows the episodes of many workers and yields a result at each end.

    An episode that is abandoned (a new one begins before it ended) is dropped, and so
    is one whose beginning was not seen: their scores would be of parts.
    """

    def __init__(self) -> None:
        self._open: dict[int, dict[str, Any]] = {}
        self.abandoned = 0  # episodes so far that began and never ended

    def add(self, tran: Mapping[str, Any], worker: int = 0) -> dict[str, float] | None:
        """Adds one step of `worker`; the result if it was the last of an episode.

        The result holds `score` (sum of rewards), `length` (actions taken) and, for
        each scalar key `log/x`, `log/x/sum`, `log/x/avg` and `log/x/max`.
        """
        worker = int(worker)
        if tran['is_first']:
            self.abandoned += worker in self._open
            self._open[worker] = {'score': 0.0, 'steps': 0, 'logs': {}}
        episode = self._open.get(worker)
        if episode is None:
            return None
        episode['score'] += float(tran['reward'])
        episode['steps'] += 1
        for key, value in tran.items():
            if is_log(key) and np.ndim(value) == 0:
                _accumulate(episode['logs'], key, float(value))
        if not tran['is_last']:
            return None
        return _result(self._open.pop(worker))

    def drop(self, worker: int) -> bool:
        """Forgets the episode of a worker; whether there was one."""
        return self._open.pop(int(worker), None) is not None

    def save(self) -> dict[int, dict[str, Any]]:
        return {worker: _copy(episode) for worker, episode in self._open.items()}

    def load(self, data: Mapping[int, Mapping[str, Any]]) -> None:
        self._open = {int(worker): _copy(episode) for worker, episode in data.items()}


def _accumulate(logs: dict[str, list[float]], key: str, value: float) -> None:
    total, count, largest = logs.get(key, (0.0, 0, value))
    logs[key] = [total + value, count + 1, max(largest, value)]


def _result(episode: Mapping[str, Any]) -> dict[str, float]:
    # The first observation of an episode is not the outcome of an action.
    result = {'score': episode['score'], 'length': episode['steps'] - 1}
    for key, (total, count, largest) in episode['logs'].items():
        result[f'{key}/sum'] = total
        result[f'{key}/avg'] = total / count
        result[f'{key}/max'] = largest
    return result


def _copy(episode: Mapping[str, Any]) -> dict[str, Any]:
    return {**episode, 'logs': {k: list(v) for k, v in episode['logs'].items()}}
