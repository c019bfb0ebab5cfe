"""Episodes: follows the episodes of many workers and records their results."""

from typing import Any

from ...core import base
from ...core.step_keys import is_log
from ...logging import EpisodeStats, ScoreFile

__all__ = ['Episodes']

FOLLOWED = ('reward', 'is_first', 'is_last')


class Episodes:
    """Results go to the logger under `prefix` and, line by line, to scores.jsonl."""

    def __init__(
        self, logger: base.Logger, scores: ScoreFile, prefix: str, is_eval: bool = False
    ):
        self._logger = logger
        self._scores = scores
        self._prefix = prefix
        self._is_eval = is_eval
        self._stats = EpisodeStats()

    def follow(
        self, trans: base.Batch, workers: base.Array
    ) -> list[tuple[int, base.Metrics]]:
        """Takes one step of each worker, [N, ...] per key.

        Returns worker and result of each episode that has ended.
        """
        keys = [k for k in trans if k in FOLLOWED or is_log(k)]
        ended = []
        for row, worker in enumerate(workers):
            result = self._stats.add({k: trans[k][row] for k in keys}, worker)
            if result is not None:
                ended.append((int(worker), result))
        return ended

    def record(self, worker: int, result: base.Metrics) -> None:
        """Adds the result of one episode to the metrics and to scores.jsonl."""
        self._logger.add(result, prefix=self._prefix)
        self.write_score(worker, result)

    def write_score(self, worker: int, result: base.Metrics) -> None:
        step = int(self._logger.step)
        self._scores.add(step, result, worker, self._is_eval)

    def show(self, film: base.Batch) -> None:
        """Logs a film {key: [T, H, W, C]} of an episode."""
        named = {f'film/{key}': video for key, video in film.items()}
        self._logger.add(named, prefix=self._prefix)

    @property
    def abandoned(self) -> int:
        """Episodes so far that began and never ended."""
        return self._stats.abandoned

    def drop(self, worker: int) -> bool:
        """Forgets the episode of a worker; returns whether there was one."""
        return self._stats.drop(worker)

    def save(self) -> Any:
        return self._stats.save()

    def load(self, data: Any) -> None:
        self._stats.load(data)
