"""Replay completion: what a loop needs beyond `add` and `sample` of a replay."""

from collections.abc import Mapping
from typing import Any

from ...core import base
from ...core.step_keys import without_log

__all__ = ['Store', 'complete']

OPTIONAL = ('add_batch', 'update', 'stats', 'save', 'load')


class Store:
    """Counts the steps in a replay, which need not have a length of its own.

    `ready` says that it has been given `minimum` steps and can serve batches.
    """

    def __init__(self, replay: Any, minimum: int):
        self._given = replay
        self._replay = complete(replay)
        self._minimum = minimum
        self._steps = 0

    @property
    def ready(self) -> bool:
        return self._steps >= self._minimum

    def add(self, trans: base.Batch, workers: base.Array) -> None:
        """Stores one step of each worker, [N, ...] per key, without `log/` keys."""
        self._replay.add_batch(without_log(trans), workers)
        self._steps += len(workers)

    def update(self, data: base.Batch) -> None:
        self._replay.update(data)

    def stats(self) -> base.Metrics:
        return self._replay.stats()

    def save(self) -> dict[str, Any]:
        content = self._replay.save()
        # A replay that saves nothing comes back empty and has to be filled again.
        return {'content': content, 'steps': 0 if content is None else self._steps}

    def load(self, data: dict[str, Any]) -> None:
        self._replay.load(data['content'])
        self._steps = data['steps']

    def close(self) -> None:
        """Gives back what the replay holds, such as files."""
        if hasattr(self._given, 'close'):
            self._given.close()


def complete(replay: Any) -> base.Replay:
    """The replay itself or, if it has little more than `add`, one that has it all."""
    if all(hasattr(replay, name) for name in OPTIONAL):
        return replay
    return _CompletedReplay(replay)


class _CompletedReplay(base.Replay):
    """Methods that the inner replay lacks do what the contract does by default."""

    def __init__(self, inner: Any):
        self._inner = inner
        for name in OPTIONAL:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def add(self, step: Mapping[str, Any], worker: int = 0) -> None:
        self._inner.add(step, worker)
