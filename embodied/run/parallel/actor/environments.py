"""Environments of a run: the worker, slot and stream of each one."""

import hashlib
import heapq
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....core import base
from ..timeouts import ENV_SILENT

__all__ = ['EnvRegistry', 'Admission']

STREAM_BYTES = 8
MOST_REPLACED = 10_000  # replaced workers that are remembered
SWEEP_SECONDS = 60.0  # between two searches for silent environments
LONGEST_REST = 1.0  # seconds without any acting that count; no environment is at fault


class Admission(NamedTuple):
    """Where the rows of a batch belong, [n] each."""

    envids: base.Array
    slots: base.Array  # of carries; 0 for rows that are not admitted
    streams: base.Array  # int64, names of the sequences in replay
    admitted: base.Array  # bool: part of an episode whose beginning was seen
    replaced: base.Array  # bool: another worker has taken over the environment
    renewed: base.Array  # [m] slots that begin with this batch


class Entry(NamedTuple):
    """An environment that is played."""

    worker_id: bytes
    slot: int


class EnvRegistry:
    """Environments that come and go; those for training and for evaluation apart.

    A new worker is admitted with a first step. Each of its environments takes the
    lowest free slot, from 1 on. A stream is one environment of one worker. A worker
    that was replaced is not admitted again: it was believed dead, or started twice. An
    environment that leaves, or is silent for long, frees its slot.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries: dict[str, dict[int, Entry]] = {'train': {}, 'eval': {}}
        self._free: list[int] = []  # slots below the highest one in use, as a heap
        self._streams = np.zeros(1, np.int64)  # by slot
        self._heard = np.zeros(1)  # by slot, in seconds of acting
        self._replaced: dict[bytes, None] = {}  # workers with environment, in order
        self._clock = clock
        self._looked = clock()
        self._acting, self._due = 0.0, SWEEP_SECONDS

    def __len__(self) -> int:
        """Environments that are played."""
        return sum(map(len, self._entries.values()))

    def count(self, mode: base.Mode) -> int:
        """Environments of one mode."""
        return len(self._entries[mode])

    @property
    def slots(self) -> int:
        """The highest slot that is in use."""
        return len(self._streams) - 1

    def leave(self, worker_id: base.Array) -> None:
        """Removes a worker and its environments."""
        name = worker_id.tobytes()
        self._remove(lambda entry: entry.worker_id == name)

    def sweep(self) -> bool:
        """Removes environments that were silent for long; whether there were any.

        To be called with every batch, since it measures the time of acting.
        """
        now = self._clock()
        self._acting += min(now - self._looked, LONGEST_REST)
        self._looked = now
        if self._acting < self._due:
            return False
        self._due = self._acting + SWEEP_SECONDS
        before, last = len(self), self._acting - ENV_SILENT
        self._remove(lambda entry: self._heard[entry.slot] < last)
        return len(self) < before

    def admit(
        self,
        mode: base.Mode,
        envids: base.Array,
        worker_ids: base.Array,
        is_first: base.Array,
        repeated: bool = False,
    ) -> Admission:
        """Finds the slots of rows, worker_ids [n, 16], and registers new workers.

        repeated: some rows were sent before, to an actor that is gone. New workers
        among them must begin with another step, since this one may be stored already
        with the action that was chosen then. All rows have passed `RowCheck`.
        """
        numbers = envids.tolist()
        names = [worker_id.tobytes() for worker_id in worker_ids]
        new: list[int] = []
        slots = self._find(mode, numbers, names)
        if not all(slots):
            for envid, name, first in zip(numbers, names, is_first, strict=True):
                if first and not repeated and self._register(mode, envid, name):
                    new.append(self._entries[mode][envid].slot)
            slots = self._find(mode, numbers, names)
        replaced = [
            not slot and _key(mode, envid, name) in self._replaced
            for slot, envid, name in zip(slots, numbers, names, strict=True)
        ]
        taken = np.array(slots, np.int32)
        self._heard[taken] = self._acting
        return Admission(
            envids,
            taken,
            self._streams[taken],
            taken > 0,
            np.array(replaced),
            np.unique(np.array(new, np.int32)),
        )

    def _find(self, mode: str, envids: list[int], names: list[bytes]) -> list[int]:
        """Slots of known workers, 0 for the others."""
        entries = [self._entries[mode].get(envid) for envid in envids]
        return [
            entry.slot if entry is not None and entry.worker_id == name else 0
            for entry, name in zip(entries, names, strict=True)
        ]

    def _register(self, mode: str, envid: int, name: bytes) -> bool:
        """Whether the worker is new."""
        key, before = _key(mode, envid, name), self._entries[mode].get(envid)
        if (before and before.worker_id == name) or key in self._replaced:
            return False
        if before is not None:
            self._replaced[_key(mode, envid, before.worker_id)] = None
            if len(self._replaced) > MOST_REPLACED:
                del self._replaced[next(iter(self._replaced))]
        slot = before.slot if before is not None else self._take_slot()
        self._entries[mode][envid] = Entry(name, slot)
        digest = hashlib.blake2b(key, digest_size=STREAM_BYTES).digest()
        self._streams[slot] = int.from_bytes(digest) >> 1  # not negative
        return True

    def _take_slot(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._streams = np.append(self._streams, 0)
        self._heard = np.append(self._heard, self._acting)
        return self.slots

    def _remove(self, gone: Callable[[Entry], bool]) -> None:
        for entries in self._entries.values():
            for envid in [envid for envid, entry in entries.items() if gone(entry)]:
                del entries[envid]
        used = {x.slot for entries in self._entries.values() for x in entries.values()}
        highest = max(used, default=0)
        self._free = sorted(set(range(1, highest)) - used)  # which is a heap
        self._streams = self._streams[: highest + 1].copy()
        self._heard = self._heard[: highest + 1].copy()


def _key(mode: str, envid: int, name: bytes) -> bytes:
    return name + envid.to_bytes(STREAM_BYTES) + mode.encode()
