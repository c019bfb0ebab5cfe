"""Online queue: each non-overlapping fresh sequence, to be served once and first."""

import collections
from typing import Any

import numpy as np

from embodied.core.base import Array

from ..storage.store import Appended, Store
from .index import NONE, Index

__all__ = ['OnlineQueue']


class OnlineQueue:
    """Starts of sequences in the order in which they were completed."""

    def __init__(self, index: Index):
        self._index = index
        self._starts: collections.deque[int] = collections.deque()

    def __len__(self) -> int:
        return len(self._starts)

    def added(self, new: Appended) -> None:
        """Every `length` steps of a stream complete one sequence."""
        done = (new.counts % self._index.length == 0) & (new.starts != NONE)
        if done.any():
            self._starts.extend(new.starts[done].tolist())
            self._drop_evicted()

    def take(self, count: int) -> Array:
        """Up to `count` starts that are still there."""
        taken: list[int] = []
        while self._starts and len(taken) < count:
            start = self._starts.popleft()
            if self._index.valid(np.array([start]))[0]:
                taken.append(start)
        return np.array(taken, np.int64)

    def save(self) -> Any:
        return np.array(self._starts, np.int64)

    def load(self, data: Any) -> None:
        self._starts = collections.deque(np.asarray(data).tolist())

    def catch_up(self, store: Store, slot: int, count: int) -> None:
        """Queues what a stream completed since it had `count` rows."""
        length, tail = self._index.length, store.tail(slot)
        now = int(store.streams.count[slot])
        for done in range((count // length + 1) * length, now + 1, length):
            start = int(self._index.shift(np.array([tail]), done - now - length + 1)[0])
            if start != NONE:
                self._starts.append(start)

    def _drop_evicted(self) -> None:
        # Bounds the queue while no training takes from it.
        while self._starts and not self._index.valid(np.array([self._starts[0]]))[0]:
            self._starts.popleft()
