"""Policy: calls the agent for rows of environments, in batches of few sizes."""

import collections
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....core import base
from ....core.errors import DreamerError
from ....processes import memory
from ..supervision.health import COMPILING, Health
from .carries import make_carries

__all__ = ['Policy', 'bucket_size']

WORTH_COMPILING = 1000  # calls for which a larger program was padded


class Policy:
    """Acts for environments in slots from 1 on; `slots` and `batch` rows are planned.

    There may be more of both. Batches are padded to one of few sizes, because a program
    is compiled for each, and stripped again. Acting stops while a program compiles, so
    a batch uses a larger program that exists already, until its size was wanted often
    enough. One call runs at a time.
    """

    def __init__(self, agent: base.Agent, slots: int, batch: int, health: Health):
        self._carries = make_carries(agent, slots)
        self._planned, self._batch = slots, batch
        self._health = health
        self._slots = slots
        self._lock = threading.Lock()  # of calls and of the table
        self._used: Callable[[], int] | None = None  # highest slot, after a leave
        self._compiled: set[tuple[int, int, str]] = set()  # slots, sizes and modes
        self._wanted: collections.Counter[tuple[int, str]] = collections.Counter()

    @property
    def slots(self) -> int:
        """Slots that there is room for."""
        return self._slots

    def __call__(
        self, slots: base.Array, renewed: base.Array, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, base.Batch]:
        """Acts and outs [n, ...] for obs [n, ...]; `renewed` slots start afresh."""
        try:
            return self._act(slots, renewed, obs, mode)
        finally:
            self._shrink_if_idle()

    def _act(
        self, slots: base.Array, renewed: base.Array, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, base.Batch]:
        count = len(slots)
        with self._lock:
            if (highest := int(slots.max())) > self._slots:
                self._resize(highest)
            if len(renewed):
                self._carries.renew(renewed)
            size = self._size(count, mode)
            if size > count:
                # A copy of a row is always a legal observation.
                rows = np.minimum(np.arange(size), count - 1)
                obs = {k: v[rows] for k, v in obs.items()}
                slots = np.concatenate([slots, np.zeros(size - count, slots.dtype)])
            kind = (self._slots, size, mode)
            with self._health.busy('' if kind in self._compiled else COMPILING):
                acts, outs = self._carries.act(slots, obs, mode)
            self._compiled.add(kind)
        acts = {k: v for k, v in acts.items() if k != 'reset'}
        return _strip(acts, size, count), _strip(outs, size, count)

    def _size(self, count: int, mode: str) -> int:
        """Rows to pad a batch of `count` to."""
        best = bucket_size(count, self._batch)
        self._wanted[best, mode] += 1
        if self._wanted[best, mode] > WORTH_COMPILING:
            return best
        fitting = (
            size
            for slots, size, its_mode in self._compiled
            if slots == self._slots and its_mode == mode and size >= count
        )
        return min(fitting, default=max(best, self._batch))

    def shrink(self, used: Callable[[], int]) -> None:
        """Frees slots that are no longer used; `used` returns the highest used one.

        Returns at once. A call that runs, maybe for long because it compiles, frees
        them when it ends.
        """
        self._used = used
        self._shrink_if_idle()

    def _shrink_if_idle(self) -> None:
        # If the lock is taken, its holder does the work: `_used` was set before, and
        # the holder comes here after the release. The highest slot is looked up with
        # the lock held, since environments that came meanwhile have slots, too, and
        # those that come from now on wait for the lock.
        while self._used is not None and self._lock.acquire(blocking=False):
            try:
                used, self._used = self._used, None
                before = self._slots
                if used is not None:
                    self._resize(used())
                if self._slots < before:
                    memory.give_back()
            finally:
                self._lock.release()

    def _resize(self, highest: int) -> None:
        slots = bucket_size(max(highest, self._planned), self._planned)
        if slots != self._slots:
            self._carries.resize(slots)
            self._slots = slots


def bucket_size(count: int, planned: int) -> int:
    """The next power of two, or `planned` if that is closer."""
    size = 1 << (count - 1).bit_length()
    return planned if count <= planned < size else size


def _strip(values: Mapping[str, Any], size: int, count: int) -> base.Batch:
    """The first `count` rows as NumPy arrays."""
    arrays = {k: np.asarray(v) for k, v in values.items()}
    for key, array in arrays.items():
        if array.shape[:1] != (size,):
            raise DreamerError(
                f"The policy returned '{key}' of shape {array.shape} for {size} rows. "
                f'The first dimension of all acts and outs must be the rows.'
            )
    return {k: v[:count] for k, v in arrays.items()}
