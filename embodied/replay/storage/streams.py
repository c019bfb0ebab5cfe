"""Table of streams: the chunk each one is writing to and its last serial number."""

from typing import Any

import numpy as np

from embodied.core.base import Array

from ..sampling.index import NONE

__all__ = ['StreamTable']


class StreamTable:
    """One slot per worker that ever added a step.

    ordinal: chunk that is being filled, or NONE; serial: number of the last step, -1
    before the first; count: steps so far, from which the online queue cuts sequences.
    """

    def __init__(self) -> None:
        self.ordinal = np.zeros(0, np.int64)
        self.serial = np.zeros(0, np.int64)
        self.count = np.zeros(0, np.int64)
        self.workers: list[int] = []
        self._slots: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.workers)

    def slot(self, worker: int) -> int:
        """Slot of a worker, which is added if new."""
        found = self._slots.get(worker)
        if found is None:
            found = self._slots[worker] = len(self.workers)
            self.workers.append(worker)
            if found == len(self.ordinal):
                self._grow()
        return found

    def slots(self, workers: list[int]) -> Array:
        return np.array([self.slot(worker) for worker in workers], np.int64)

    def leave(self, worker: int, ordinal: int) -> None:
        """The chunk is gone; a stream that was filling it starts a new one."""
        slot = self._slots.get(worker)
        if slot is not None and self.ordinal[slot] == ordinal:
            self.ordinal[slot] = NONE

    def save(self) -> dict[str, Any]:
        size = len(self)
        return {
            'workers': np.array(self.workers, np.int64),
            'ordinal': self.ordinal[:size].copy(),
            'serial': self.serial[:size].copy(),
            'count': self.count[:size].copy(),
        }

    def load(self, data: dict[str, Any]) -> None:
        for i, worker in enumerate(np.asarray(data['workers']).tolist()):
            slot = self.slot(worker)
            self.ordinal[slot] = data['ordinal'][i]
            self.serial[slot] = data['serial'][i]
            self.count[slot] = data['count'][i]

    def _grow(self) -> None:
        room = max(16, len(self.ordinal))
        fresh = np.full(room, -1, np.int64)
        self.ordinal = np.concatenate([self.ordinal, np.full(room, NONE)])
        self.serial = np.concatenate([self.serial, fresh])
        self.count = np.concatenate([self.count, np.zeros(room, np.int64)])
