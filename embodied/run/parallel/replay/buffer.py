"""Buffer: one replay of a run, ours or a foreign one, and the streams that read it."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....core import base
from ....replay import Replay
from ....replay.recovery.damage import Damage
from ....streams.stateless import load_stream, save_stream
from ...shared.replay_completion import complete
from ..supervision.health import Health

__all__ = ['Buffer']


class Buffer:
    """Adds rows, serves batches, and counts the rows that were ever added.

    A foreign replay needs `add` and `sample` only. Rows are then added one by one,
    nothing is updated, and it is empty after a restart. It has no serial numbers, so
    rows that are sent twice are stored twice. It may not be thread-safe, so it is
    called by one thread at a time.

    empty: makes the arrays that batches are assembled in, as `numpy.empty`.
    """

    def __init__(
        self,
        replay: Any,
        make_stream: Callable[[Any, base.Mode], Any],
        modes: Sequence[base.Mode],
        health: Health,
        empty: Callable[..., base.Array] = np.empty,
    ):
        self._given = replay
        self._health = health
        self._replay = complete(replay)
        self._ours = isinstance(replay, Replay)
        source = _Assembler(replay, empty) if isinstance(replay, Replay) else replay
        self._open_stream = lambda mode: iter(make_stream(source, mode))
        self._streams = {mode: self._open_stream(mode) for mode in modes}
        one = threading.RLock()
        self._reading = {x: threading.RLock() if self._ours else one for x in modes}
        self._writing = contextlib.nullcontext() if self._ours else one
        self._added = 0

    @property
    def length(self) -> int | None:
        """Steps per sequence, if the replay has that attribute."""
        return getattr(self._given, 'length', None)

    @property
    def inserts(self) -> int:
        """Rows ever added, without repeats, as far as the replay was restored."""
        return self._given.inserts if self._ours else self._added

    @property
    def lost(self) -> int:
        """Steps that the replay had before a loss of power, as far as it knows."""
        return getattr(self._given, 'lost', 0)

    def take_damages(self) -> list[Damage]:
        """Damaged files of our replay that were found since the last call."""
        return self._given.take_damages() if self._ours else []

    @property
    def serves(self) -> bool:
        """Whether there is a whole sequence, if the replay has a length."""
        return not hasattr(self._given, '__len__') or len(self._given) > 0

    def add(self, steps: base.Batch, streams: base.Array, serials: base.Array) -> None:
        """Appends row i of every [n, ...] array to the stream streams[i]."""
        with self._writing, self._health.busy():
            if self._ours:
                self._given.add_batch(steps, streams ^ self._given.salt, serials)
            else:
                self._replay.add_batch(steps, streams)
                self._added += len(streams)

    def take(self, mode: base.Mode) -> base.Batch:
        """The next batch of the stream."""
        with self._reading[mode], self._health.busy():
            return next(self._streams[mode])

    def restart_stream(self, mode: base.Mode) -> None:
        """Skips the rest of a sequence whose first batches were taken."""
        with self._reading[mode]:
            self._streams[mode] = self._open_stream(mode)

    def update(self, data: base.Batch) -> None:
        with self._writing, self._health.busy():
            self._replay.update(data)

    def stats(self) -> base.Metrics:
        with self._writing:
            return self._replay.stats()

    def save(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            for lock in self._reading.values():
                stack.enter_context(lock)
            return {
                'content': self._replay.save(),
                'inserts': self.inserts,
                'streams': {k: save_stream(v) for k, v in self._streams.items()},
            }

    def load(self, data: dict[str, Any]) -> None:
        self._replay.load(data['content'])
        # A replay that saves nothing is empty now and has to be filled again.
        self._added = 0 if data['content'] is None else data['inserts']
        for mode, position in data['streams'].items():
            load_stream(self._streams[mode], position)

    def close(self) -> None:
        """Releases resources of the replay, such as files."""
        if hasattr(self._given, 'close'):
            self._given.close()


class _Assembler:
    """Our replay as its streams see it: assembles samples in memory of the server."""

    def __init__(self, replay: Replay, empty: Callable[..., base.Array]):
        self._replay = replay
        self._empty = empty

    def sample(self, batch: int, mode: base.Mode = 'train') -> base.Batch:
        spec = self._replay.batch_spec(batch)
        out = {key: self._empty(shape, dtype) for key, (shape, dtype) in spec.items()}
        return self._replay.sample(batch, mode, out=out)

    def __len__(self) -> int:
        return len(self._replay)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replay, name)
